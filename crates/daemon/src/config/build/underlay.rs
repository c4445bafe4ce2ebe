//! The underlay as a port. Its way of holding frames back depends on its kind: a wire is paused
//! (PFC), a socket cannot be, and in memory (`vhost-user`) the sender's frames stay in its own
//! ring.

use sluice_api::config::{self as api, UnderlayKind};
use sluice_base::{Mac, Priority, PriorityMask};
use sluice_switch::{InputFull, PortConfig, PortRole, Sources, Tags, Trust};

use super::{Builder, MTU_DEFAULT, limit, rate};
use crate::config::plan::{Attachment, PortPlan};
use crate::config::workers::Workers;

impl Builder<'_> {
    /// Returns the underlay's own MAC.
    fn underlay_mac(&self, underlay: &api::Underlay) -> Mac {
        match &underlay.mac {
            Some(mac) => mac.parse().unwrap_or_default(),
            None => self.mac(&underlay.device),
        }
    }

    /// Returns the next hop to a peer, if known at the start.
    pub(super) fn next_hop(&self, peer: &api::Peer) -> Option<Mac> {
        match self.config.underlay.as_ref()?.kind {
            // The kernel's neighbours give it later.
            UnderlayKind::L2 => None,
            // The kernel routes frames of a UDP underlay.
            UnderlayKind::Udp => Some(Mac::default()),
            UnderlayKind::VhostUser => peer.next_hop.as_ref()?.parse().ok(),
        }
    }

    pub(super) fn underlay(&self, underlay: &api::Underlay) -> PortConfig {
        let buffers = &self.config.buffers;
        let mac = self.underlay_mac(underlay);
        let mtu = self.outer_mtu().unwrap_or(MTU_DEFAULT);
        let common = PortConfig {
            role: PortRole::Underlay { local: underlay.address, mac },
            queues: 1,
            queue_priorities: [PriorityMask::ALL; Priority::COUNT],
            input: limit(buffers.underlay_in),
            input_full: InputFull::Drop,
            output: limit(buffers.underlay_out),
            rate: None,
            group_rate: None,
            mtu,
            rx_pause: false,
            trust: Trust::PcpThenDscp,
            default_priority: Priority::ZERO,
            sources: Sources::Any,
            tags: Tags::Kept,
            hold: self.hold(None),
            is_offloaded: false,
        };
        let link = &underlay.link;
        if underlay.kind != UnderlayKind::VhostUser {
            return self.wire(link, mac, (buffers.underlay_in, buffers.underlay_out), common);
        }
        let waits = self.policy().physical_lossless();
        PortConfig {
            input: limit(link.input.unwrap_or(buffers.underlay_in)),
            // A sender's frames wait in its own ring; a pause would add nothing.
            input_full: if waits { InputFull::Wait } else { InputFull::Drop },
            output: limit(link.output.unwrap_or(buffers.underlay_out)),
            rate: link.rate_mbps.map(|mbps| rate(mbps, link.catch_up_us, mtu, 0)),
            ..common
        }
    }

    pub(super) fn underlay_plan(&self, underlay: &api::Underlay) -> PortPlan {
        let mtu = self.outer_mtu().unwrap_or(MTU_DEFAULT);
        let ring_bytes = self.ring_bytes(&underlay.link, mtu);
        let (attachment, lacks) = match underlay.kind {
            UnderlayKind::L2 => {
                let vtep = Some(underlay.address);
                let device = underlay.device.clone();
                (Attachment::L2 { device, ring_bytes, mtu, vtep }, "policy LZ or ZZ")
            }
            UnderlayKind::Udp => {
                let mac = self.mac(&underlay.device);
                let local = underlay.address;
                let workers = Workers::of(self.config);
                let is_spread = workers.ports.last().is_some_and(|placed| placed.worker.is_none());
                let sharers = if is_spread { workers.count } else { 1 };
                let receive_bytes = ring_bytes;
                let device = underlay.device.clone();
                let attachment =
                    Attachment::Udp { local, device, mac, receive_bytes, sharers, mtu };
                (attachment, "an l2 underlay")
            }
            UnderlayKind::VhostUser => {
                let socket = underlay.socket.clone().unwrap_or_default().into();
                let client = underlay.client;
                let (in_order, queues) = (false, Vec::new());
                // Frames out of a tunnel are verified here, and frames into it are finished before.
                let offload = false;
                let attachment =
                    Attachment::VhostUser { socket, client, in_order, queues, offload, mtu };
                (attachment, "policy LZ or ZZ")
            }
        };
        PortPlan {
            allowed: Vec::new(),
            name: "underlay".to_owned(),
            vnet: "underlay".to_owned(),
            attachment,
            policy_lacks: (!self.policy().physical_lossless()).then_some(lacks),
        }
    }
}
