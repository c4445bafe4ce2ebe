//! Notes on a plan for the operator.

use sluice_api::config::{self as api, Link, PortKind, UnderlayKind};
use sluice_ports::l2::{L2Config, RingPlan};

use super::{Builder, MTU_DEFAULT, RING_MEMORY_BYTES_MAX, TAG_SIZE, headroom, sharing};
use crate::config::policy;

impl Builder<'_> {
    /// Returns a note on the DSCPs with another priority than their upper bits.
    fn dscp_note(&self) -> Option<String> {
        let table = self.dscp_to_priority();
        let others: Vec<String> = (0..64_usize)
            .filter(|&dscp| table[dscp].index() != dscp / 8)
            .map(|dscp| format!("{dscp} is {}", table[dscp].get()))
            .collect();
        let others = others.join(", ");
        (!others.is_empty()).then(|| format!("priority of a packet: its DSCP / 8, but {others}"))
    }

    /// Returns the reason why the ring of a port does not hold its headroom, if it does not.
    fn ring_note(&self, name: &str, link: &Link, ring: u64, mtu: u16) -> Option<String> {
        let underlay = self.config.underlay.as_ref();
        let is_socket = underlay.is_some_and(|u| u.kind == UnderlayKind::Udp);
        if !self.policy().physical_lossless() || (name == "underlay" && is_socket) {
            return None;
        }
        let smallest = L2Config::new(name).wire_bytes_min;
        let covered = RingPlan::new(ring, smallest, mtu, RING_MEMORY_BYTES_MAX).covered_bytes;
        (covered < ring).then(|| {
            format!(
                "port {name}: not lossless: the ring may take {} MiB, which hold {covered} bytes \
                 in the smallest frames; {}",
                RING_MEMORY_BYTES_MAX >> 20,
                small_ring_remedy(link)
            )
        })
    }

    /// Returns a note if the largest frames of a VLAN, with their own tag, do not fit its device.
    fn tag_note(&self, port: &api::Port) -> Option<String> {
        let (vlan, facts) = (port.vlan?, self.devices.facts(&port.device)?);
        let needed = self.vnet_mtu(self.vnet_of(port)).saturating_add(TAG_SIZE);
        (needed > facts.mtu).then(|| {
            format!(
                "port {}: frames of full size with a tag of their own do not fit behind the tag of \
                 VLAN {vlan}; for them, `ip link set {} mtu {needed}`",
                port.name, port.device
            )
        })
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.dscp_note().into_iter().collect();
        let is_first = |port: &&api::Port| {
            sharing(self.config, port).next().is_some_and(|first| first.name == port.name)
        };
        let cables = self.config.ports.iter().filter(|port| port.kind == PortKind::L2);
        let cables = cables
            .filter(is_first)
            .map(|port| (port.name.as_str(), self.link(port), self.device_mtu(port)));
        // If a sender's frames wait in its own ring, none arrives that would need headroom.
        let underlay = self.config.underlay.as_ref().filter(|u| u.kind != UnderlayKind::VhostUser);
        let underlay = underlay.map(|underlay| {
            ("underlay", underlay.link.clone(), self.outer_mtu().unwrap_or(MTU_DEFAULT))
        });
        for (name, link, mtu) in cables.chain(underlay) {
            let need = headroom(self.config, &link, mtu);
            let ring = self.ring_bytes(&link, mtu);
            notes.push(format!(
                "port {name}: receive ring of {ring} bytes; headroom {} = {} x (2 x {} + {}) + \
                 response + 2 frames of {} for {} priorities",
                need.bytes(),
                need.rate,
                need.delay,
                need.stall,
                need.frame_max,
                need.lossless
            ));
            notes.extend(self.ring_note(name, &link, ring, mtu));
        }
        notes.extend(self.config.ports.iter().filter_map(|port| self.tag_note(port)));
        notes.extend(policy::notes(self.config));
        notes
    }
}

/// Returns the remedy for a ring that may not be as large as it must.
fn small_ring_remedy(link: &Link) -> &'static str {
    if link.rate_mbps.is_none() {
        "10 Gbit/s are assumed; set `rate_mbps` to the rate of the link, or lower `stall_ms`"
    } else {
        "lower `stall_ms` if the reader is never descheduled that long"
    }
}
