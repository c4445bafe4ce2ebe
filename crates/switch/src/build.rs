//! The tables of a new switch, made from its configuration, and their sizes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use sluice_base::{Batch, ByteCount, PortId, Priority, PriorityMask, SourceId, TunnelId, VnetId};

use crate::config::{InputFull, Limit, PortConfig, PortRole, SwitchConfig, Tags};
use crate::decap::make_decaps;
use crate::inspect::{Counter, Marks};
use crate::pause::{LINK_DEFAULT, PauseReceiver, PauseSender};
use crate::place::{Held, Input, NO_VNET, Port, QueueGroup, Tunnel, Vnet};
use crate::queues::{GROUPS_MAX, NODES_MAX};
use crate::receive::NO_PORT;
use crate::shaper::Shaper;
use crate::shared_buffer::OVER_MAX;
use crate::slots::{List, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::{BATCH_MAX, CONTROL_FRAMES};
use crate::tunnel::Outer;
use crate::underlay;

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
        let mut made = make_port(port, u32::try_from(at).expect("fewer than 2^16 ports"), first);
        made.elsewhere = config.handoff.is_elsewhere(at);
        made
    });
    ports.collect()
}

/// Returns a port in its initial state, with its own queue group.
pub(crate) fn make_port(port: &PortConfig, group: u32, first_input: u16) -> Port {
    let pause = match port.input_full {
        InputFull::Pause(pause) => Some(pause),
        InputFull::Wait | InputFull::Drop => None,
    };
    let link = pause.map(|p| p.link).or(port.rate.map(|r| r.rate)).unwrap_or(LINK_DEFAULT);
    Port {
        role: port.role,
        has_bundles: matches!(port.role, PortRole::Underlay { .. }),
        detached: false,
        elsewhere: false,
        careful: false,
        tags: port.tags,
        group,
        first_input,
        queues: port.queues,
        restrained: pause.is_some()
            || port.rx_pause
            || port.rate.is_some()
            || port.group_rate.is_some(),
        active: 0,
        class_turn: 0,
        shaper: Shaper::new(port.rate),
        timed_groups: 0,
        hold: port.hold,
        pause_in: PauseReceiver::new(port.rx_pause, link),
        pause_out: pause.map(|pause| PauseSender::new(pause, port.input)),
        trust: port.trust,
        default_priority: port.default_priority,
        frame_size_max: u32::from(port.mtu) + 14,
        outer: match port.role {
            PortRole::Underlay { local, mac } => Some(Outer::new(mac, local)),
            PortRole::Access { .. } | PortRole::Handoff => None,
        },
    }
}

pub(crate) fn make_inputs<B>(config: &SwitchConfig) -> Box<[Input<B>]> {
    let input = |port: u16, limit: Limit, full: InputFull, vnet: u16, priorities| Input {
        port,
        limit,
        full: full.into(),
        from_underlay: false,
        vnet,
        holding: PriorityMask::NONE,
        held: Held::default(),
        unreclaimed: 0,
        ended: Batch::with_limit(own_slots(limit.frames, full) as usize),
        excess: 0,
        ended_slots: NIL,
        awaiting: List::EMPTY,
        deferred: List::EMPTY,
        over: Vec::with_capacity(OVER_MAX),
        pooled_frames: 0,
        priorities,
        marks: Marks::default(),
        sweep: false,
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
            let mut input = input(id, port.input, port.input_full, vnet, priorities);
            match port.role {
                PortRole::Access { .. } => {}
                PortRole::Underlay { .. } => input.from_underlay = true,
                // Each handle goes back with its remote reference, which is in a slot.
                PortRole::Handoff => input.ended = Batch::with_limit(0),
            }
            inputs.push(input);
        }
    }
    let control = Limit { frames: CONTROL_FRAMES, bytes: ByteCount(u64::MAX) };
    inputs.push(input(NO_PORT, control, InputFull::Wait, NO_VNET, PriorityMask::ALL));
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
    let shaper = |port: &PortConfig| Shaper::new(port.group_rate);
    let unresolved = usize::from(config.unresolved.destinations);
    let mut groups = Vec::with_capacity(config.ports.len() + config.tunnels.len() + unresolved);
    for (at, port) in config.ports.iter().enumerate() {
        groups.push(make_port_group(PortId::from_index(at), port));
    }
    let vnet_mtu_min = config.vnets.iter().map(|vnet| vnet.mtu).min().unwrap_or(0);
    for (at, tunnel) in config.tunnels.iter().enumerate() {
        let port = &config.ports[tunnel.port.index()];
        let kind = QueueGroupKind::Tunnel(TunnelId::from_index(at));
        let mut group = QueueGroup::new(kind, tunnel.port.0, port.output, shaper(port));
        group.plain_size_max = plain_size_max(port.mtu.saturating_sub(50).min(vnet_mtu_min));
        groups.push(group);
    }
    let unlimited = Limit { frames: u32::MAX, bytes: ByteCount(u64::MAX) };
    assert!(groups.len() + unresolved + holds_max(config) <= GROUPS_MAX, "checked by `validate`");
    for _ in 0..unresolved + holds_max(config) {
        groups.push(QueueGroup::new(QueueGroupKind::Free, NO_PORT, unlimited, Shaper::new(None)));
    }
    groups.into()
}

/// Returns the queue groups for unresolved destinations, the first one on top.
pub(crate) fn unresolved_groups(config: &SwitchConfig, groups: usize) -> Vec<u32> {
    let first = config.ports.len() + config.tunnels.len();
    let groups = groups - holds_max(config);
    let index_of = |at: usize| u32::try_from(at).expect("fewer than 2^20 queue groups");
    (first..groups).rev().map(index_of).collect()
}

/// Returns the first queue group of held destinations, which have the last queue groups.
pub(crate) fn first_hold_group(config: &SwitchConfig) -> usize {
    let unresolved = usize::from(config.unresolved.destinations);
    config.ports.len() + config.tunnels.len() + unresolved
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

/// Returns the own queue group of a port.
pub(crate) fn make_port_group(id: PortId, port: &PortConfig) -> QueueGroup {
    let shaper = Shaper::new(port.group_rate);
    let mut group = QueueGroup::new(QueueGroupKind::Port(id), id.0, port.output, shaper);
    group.plain &= matches!(port.role, PortRole::Access { .. });
    // Larger frames are checked one by one: they may have a tag, which does not count.
    group.plain_size_max = plain_size_max(port.mtu);
    group
}

pub(crate) fn make_vnets(config: &SwitchConfig, inputs: usize) -> Box<[Vnet]> {
    let member = |at: usize, (p, port): (usize, &PortConfig)| {
        (port.role == PortRole::Access { vnet: VnetId::from_index(at) })
            .then(|| PortId::from_index(p).0)
    };
    let vnets = config.vnets.iter().enumerate().map(|(at, vnet)| Vnet {
        vni: vnet.vni,
        frame_size_max: u32::from(vnet.mtu) + 14,
        members: {
            // Any port may become a member.
            let mut members = Vec::with_capacity(config.ports.len());
            members.extend(config.ports.iter().enumerate().filter_map(|p| member(at, p)));
            members
        },
        tunnels: vnet.tunnels.iter().map(|t| t.0).collect(),
        tunnel_bits: bits_of(vnet.tunnels.iter().map(|t| t.index())),
        decaps: make_decaps(vnet, &config.tunnels, inputs),
        own_tags: config.ports.iter().any(|port| {
            port.tags == Tags::Trunk
                && port.role == PortRole::Access { vnet: VnetId::from_index(at) }
        }),
    });
    vnets.collect()
}

pub(crate) fn make_tunnels(config: &SwitchConfig, inputs: usize) -> Box<[Tunnel]> {
    let tunnels = config.tunnels.iter().enumerate().map(|(at, tunnel)| Tunnel {
        port: tunnel.port.0,
        remote: tunnel.remote,
        next_hop: None,
        group: u32::try_from(config.ports.len() + at).expect("fewer than 2^20 queue groups"),
        source: SourceId::from_index(inputs + at).0,
        foreign: tunnel.foreign,
        path_mtu: underlay::UNKNOWN,
        sent: Counter::default(),
        received: Counter::default(),
    });
    tunnels.collect()
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
    let groups = config.ports.len() as u64 + config.tunnels.len() as u64;
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
    count
}

/// Returns the number of nodes. A queue in use holds a frame, so there are at most as many as
/// frames, and a bundle per source and priority on each underlay port.
pub(crate) fn node_count(config: &SwitchConfig, slots: u32, inputs: usize) -> usize {
    let underlays =
        config.ports.iter().filter(|p| matches!(p.role, PortRole::Underlay { .. })).count();
    let sources = inputs + config.tunnels.len();
    (slots as usize + underlays * sources * Priority::COUNT).min(NODES_MAX)
}

/// Returns a set of small numbers, a bit each.
fn bits_of(members: impl Iterator<Item = usize>) -> Box<[u64]> {
    let mut bits = Vec::new();
    for member in members {
        if bits.len() <= member / 64 {
            bits.resize(member / 64 + 1, 0);
        }
        bits[member / 64] |= 1 << (member % 64);
    }
    bits.into()
}
