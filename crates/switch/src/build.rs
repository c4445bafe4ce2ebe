//! The tables of a new switch, made from its configuration, and their sizes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use sluice_base::{ByteCount, PortId, Priority, PriorityMask, SourceId, TunnelId, VnetId};

use crate::config::{InputFull, Limit, PortConfig, PortRole, SwitchConfig, Tags};
use crate::egress::{GROUPS_MAX, NODES_MAX, Port, QueueGroup};
use crate::ingress::Input;
use crate::place::{NO_VNET, Tunnel, Vnet};
use crate::receive::NO_PORT;
use crate::switch::{BATCH_MAX, CONTROL_FRAMES};

pub(crate) fn mask_of(has: impl Fn(usize) -> bool) -> PriorityMask {
    let mut mask = PriorityMask::NONE;
    for priority in Priority::all().filter(|p| has(p.index())) {
        mask.insert(priority);
    }
    mask
}

pub(crate) fn make_ports(config: &SwitchConfig) -> Box<[Port]> {
    let mut first_input = 0;
    let ports = config.ports.iter().enumerate().map(|(at, port)| {
        let first = first_input;
        first_input += u16::from(port.queues);
        let group = u32::try_from(at).expect("fewer than 2^16 ports");
        Port::new(port, group, first, config.handoff.is_elsewhere(at))
    });
    ports.collect()
}

pub(crate) fn make_inputs<B>(config: &SwitchConfig) -> Box<[Input<B>]> {
    let input = |place, limit: Limit, full, priorities| {
        Input::new(place, (limit, full), own_slots(limit.frames, full), priorities)
    };
    // Allocates all inputs at once, so that their own memory does not lie before or between them.
    let queues: usize = config.ports.iter().map(|port| usize::from(port.queues)).sum();
    let mut inputs = Vec::with_capacity(queues + 1);
    for (at, port) in config.ports.iter().enumerate() {
        let vnet = match port.role {
            PortRole::Access { vnet } => vnet.0,
            PortRole::Underlay { .. } | PortRole::Handoff => NO_VNET,
        };
        for queue in 0..port.queues {
            let (id, priorities) = (PortId::from_index(at).0, priorities_of(port, queue));
            let input = input((id, vnet), port.input, port.input_full, priorities);
            inputs.push(match port.role {
                PortRole::Access { .. } => input,
                PortRole::Underlay { .. } => input.of_underlay(),
                PortRole::Handoff => input.of_handoff(),
            });
        }
    }
    let control = Limit { frames: CONTROL_FRAMES, bytes: ByteCount(u64::MAX) };
    inputs.push(input((NO_PORT, NO_VNET), control, InputFull::Wait, PriorityMask::ALL));
    inputs.into()
}

/// Returns the priorities that frames of a queue may have.
pub(crate) fn priorities_of(port: &PortConfig, queue: u8) -> PriorityMask {
    match port.role {
        PortRole::Access { .. } => {
            port.queue_priorities.get(usize::from(queue)).copied().unwrap_or(PriorityMask::ALL)
        }
        PortRole::Underlay { .. } | PortRole::Handoff => PriorityMask::ALL,
    }
}

pub(crate) fn make_groups(config: &SwitchConfig) -> Box<[QueueGroup]> {
    let unresolved = usize::from(config.unresolved.destinations);
    let count = first_hold_group(config) + holds_max(config);
    let mut groups = Vec::with_capacity(count);
    for (at, port) in config.ports.iter().enumerate() {
        groups.push(QueueGroup::of_port(PortId::from_index(at), port));
    }
    let vnet_mtu_min = config.vnets.iter().map(|vnet| vnet.mtu).min().unwrap_or(0);
    assert!(count <= GROUPS_MAX, "checked by `validate`");
    groups.resize_with(config.ports.len() + config.tunnel_places(), QueueGroup::free);
    for (at, tunnel) in config.numbered_tunnels() {
        let port = &config.ports[tunnel.port.index()];
        let mtu = port.mtu.saturating_sub(50).min(vnet_mtu_min);
        groups[config.ports.len() + at] =
            QueueGroup::of_tunnel(TunnelId::from_index(at), tunnel.port, port, mtu);
    }
    debug_assert_eq!(groups.len() + unresolved + holds_max(config), count);
    groups.resize_with(count, QueueGroup::free);
    groups.into()
}

/// Returns the queue groups for unresolved destinations, the first one on top.
pub(crate) fn unresolved_groups(config: &SwitchConfig, groups: usize) -> Vec<u32> {
    let first = config.ports.len() + config.tunnel_places();
    let groups = groups - holds_max(config);
    let index_of = |at: usize| u32::try_from(at).expect("fewer than 2^20 queue groups");
    (first..groups).rev().map(index_of).collect()
}

/// Returns the first queue group of held destinations, which have the last queue groups.
pub(crate) fn first_hold_group(config: &SwitchConfig) -> usize {
    let unresolved = usize::from(config.unresolved.destinations);
    config.ports.len() + config.tunnel_places() + unresolved
}

/// Returns the number of destinations that may be held at a time.
pub(crate) fn holds_max(config: &SwitchConfig) -> usize {
    config.isolation.map_or(0, |isolation| isolation.holds.into())
}

/// Returns the size up to which a frame needs no further checks, by its MTU. It is below the
/// largest number, with which a driver tells that a frame is not plain
/// ([`sluice_base::Buf::plain_size`]).
pub(crate) fn plain_size_max(mtu: u16) -> u16 {
    mtu.saturating_add(14).min(u16::MAX - 1)
}

pub(crate) fn make_vnets(config: &SwitchConfig, inputs: usize) -> Box<[Vnet]> {
    let member = |at: usize, (p, port): (usize, &PortConfig)| {
        (port.role == PortRole::Access { vnet: VnetId::from_index(at) })
            .then(|| PortId::from_index(p).0)
    };
    let mut vnets: Vec<Vnet> = Vec::with_capacity(config.vnet_places());
    vnets.resize_with(config.vnet_places(), Vnet::free);
    for (at, vnet) in config.numbered_vnets() {
        let port_of = |tunnel: usize| {
            config.tunnel_at(TunnelId::from_index(tunnel)).map_or(NO_PORT, |tunnel| tunnel.port.0)
        };
        vnets[at] = Vnet::new(vnet, config.ports.len());
        vnets[at].set_tunnels(&vnet.tunnels, inputs, port_of);
        vnets[at].members.extend(config.ports.iter().enumerate().filter_map(|p| member(at, p)));
        vnets[at].own_tags = config.ports.iter().any(|port| {
            port.tags == Tags::Trunk
                && port.role == PortRole::Access { vnet: VnetId::from_index(at) }
        });
    }
    vnets.into()
}

pub(crate) fn make_tunnels(config: &SwitchConfig, inputs: usize) -> Box<[Tunnel]> {
    let place = |at: usize| {
        let group = u32::try_from(config.ports.len() + at).expect("fewer than 2^20 queue groups");
        Tunnel::free(group, SourceId::from_index(inputs + at).0)
    };
    let mut tunnels: Vec<Tunnel> = (0..config.tunnel_places()).map(place).collect();
    for (at, tunnel) in config.numbered_tunnels() {
        tunnels[at].begin(tunnel);
    }
    tunnels.into()
}

/// Returns the number of frames that can be in the switch at the same time.
pub(crate) fn slot_count(config: &SwitchConfig) -> u64 {
    let pool = &config.pool;
    let mut count = u64::from(CONTROL_FRAMES) * 2 + buffer_count(config);
    for frames in [pool.replicated_frames, pool.from_local.frames, pool.from_underlay.frames] {
        count += u64::from(frames);
    }
    count += config.isolation.map_or(0, |isolation| u64::from(isolation.reserve.frames));
    // A lossy frame with a remote reference has left the buffer of its output.
    count += u64::from(config.handoff.remote_refs_max());
    for (at, port) in config.ports.iter().enumerate() {
        if config.handoff.is_elsewhere(at) && !config.handoff.is_movable(at) {
            continue;
        }
        let priorities = match port.input_full {
            // Each paused priority may fill the buffer, and so may the others together.
            InputFull::Pause(pause) => pause.priorities.0.count_ones() + 1,
            InputFull::Wait | InputFull::Drop => 1,
        };
        let frames = u64::from(port.input.frames) * u64::from(priorities) + u64::from(BATCH_MAX);
        count += frames * u64::from(port.queues);
    }
    let groups = config.ports.len() as u64 + config.tunnel_places() as u64;
    count + groups * u64::from(pool.copies_per_group)
}

/// Returns the number of slots that an input has for itself. Each paused priority may fill the
/// buffer, and so may the others together.
pub(crate) fn own_slots(frames: u32, full: InputFull) -> u32 {
    let priorities = match full {
        InputFull::Pause(pause) => pause.priorities.0.count_ones() + 1,
        InputFull::Wait | InputFull::Drop => 1,
    };
    frames * priorities + BATCH_MAX
}

/// Returns the number of slots for lossy frames that wait for an output or to be resolved.
pub(crate) fn buffer_count(config: &SwitchConfig) -> u64 {
    let mut count = u64::from(config.unresolved.frames);
    if config.classes.iter().all(|class| class.lossless) {
        return count;
    }
    let groups = config
        .ports
        .iter()
        .chain(config.tunnels.iter().filter_map(|tunnel| config.ports.get(tunnel.port.index())));
    for port in groups {
        count += u64::from(port.output.frames);
    }
    // A spare tunnel may lead through any underlay.
    let underlays = config.ports.iter().filter(|p| matches!(p.role, PortRole::Underlay { .. }));
    let most = underlays.map(|port| u64::from(port.output.frames)).max().unwrap_or(0);
    count + most * config.spare_places.tunnels.len() as u64
}

/// Returns the number of nodes. A queue in use holds a frame, so there are at most as many as
/// frames, and a bundle per source and priority on each underlay port.
pub(crate) fn node_count(config: &SwitchConfig, slots: u32, inputs: usize) -> usize {
    let underlays =
        config.ports.iter().filter(|p| matches!(p.role, PortRole::Underlay { .. })).count();
    let sources = inputs + config.tunnel_places();
    (slots as usize + underlays * sources * Priority::COUNT).min(NODES_MAX)
}
