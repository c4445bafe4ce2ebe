//! Ways to open the ports of containers and machines.

use std::path::PathBuf;

use sluice_api::config as api;
use sluice_base::{Priority, PriorityMask, VnetId};

use super::plan::Attachment;

/// Returns the card of a container.
pub(super) fn tap(port: &api::Port, mtu: u16) -> Attachment {
    Attachment::Tap {
        device: port.device.clone(),
        netns: port.netns.clone().map(PathBuf::from),
        mac: port.mac.as_ref().and_then(|mac| mac.parse().ok()),
        routes: Vec::new(),
        addresses: Vec::new(),
        ring_frames: port.ring_frames,
        offload: port.offload,
        is_given_away: false,
        mtu,
    }
}

/// Returns the card of a container that holds its senders.
pub(super) fn veth(port: &api::Port, mtu: u16) -> Attachment {
    Attachment::Veth {
        device: port.device.clone(),
        netns: port.netns.clone().map(PathBuf::from),
        mac: port.mac.as_ref().and_then(|mac| mac.parse().ok()),
        routes: Vec::new(),
        addresses: Vec::new(),
        mtu,
    }
}

/// Returns the card of a container whose frames the kernel forwards.
pub(super) fn kernel(port: &api::Port, vnet: VnetId, mtu: u16) -> Attachment {
    Attachment::Kernel {
        device: port.device.clone(),
        netns: port.netns.clone().map(PathBuf::from),
        mac: port.mac.as_ref().and_then(|mac| mac.parse().ok()),
        routes: Vec::new(),
        addresses: Vec::new(),
        vnet,
        mtu,
    }
}

/// Returns the card of a virtual machine.
pub(super) fn machine(port: &api::Port, mtu: u16) -> Attachment {
    Attachment::VhostUser {
        socket: port.socket.clone().map(PathBuf::from).unwrap_or_default(),
        client: port.client,
        in_order: port.in_order,
        queues: queues_of(port),
        offload: port.offload,
        mtu,
    }
}

/// Returns the priorities of each queue of a port.
pub(super) fn queues_of(port: &api::Port) -> Vec<PriorityMask> {
    let mask = |priorities: &Vec<u8>| {
        let mut mask = PriorityMask::NONE;
        priorities.iter().for_each(|p| mask.insert(Priority::from_low_bits(*p)));
        mask
    };
    port.queues.iter().map(mask).collect()
}
