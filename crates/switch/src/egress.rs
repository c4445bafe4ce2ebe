//! Egress: the places at which frames wait for an output, and whose turn it is.
//!
//! ```text
//!   enqueue ─> common queue of a (port, priority) ──────────────┐
//!          └─> queue of a (source, queue group, priority) ─ ring ┴─> schedule ─> a driver
//!                  │ the queue group may not send
//!                  └─> parked at its queue group ── open ──> ring
//! ```
//!
//! This module owns the ports, their priorities (*classes*), the queue groups and the queues, with
//! the scheduler among them. Nobody else changes them. It knows no input and ends no frame: the
//! switch charges and ends what it puts in and takes out here.

mod busy;
mod common;
mod enqueue;
mod group;
mod group_lists;
mod port;
mod queues;
mod schedule;
mod services;
mod surgery;
mod turn;

use alloc::boxed::Box;

use sluice_base::{Nanos, PortId, Priority, PriorityMask};

use crate::config::{
    Hold, Limit, PortConfig, PortRole, RateLimit, Service, SwitchConfig, Tags, Trust,
};
use crate::inspect::{Counter, Marks};
use crate::pause::{PauseReceiver, PauseSender};
use crate::place::Held;
use crate::shaper::Shaper;
use crate::slots::{BufferOwner, NIL};
use crate::surface::QueueGroupKind;
use crate::tunnel::Outer;

use self::busy::BusyPorts;
pub(crate) use self::common::{COMMON_FRAMES_MAX, Tag};
use self::common::{Common, CommonMax};
pub(crate) use self::group::Room;
use self::group::make_groups;
use self::group_lists::GroupLists;
pub(crate) use self::port::PortEgress;
use self::port::make_ports;
use self::queues::Queues;
pub(crate) use self::queues::{GROUPS_MAX, Key, NODES_MAX, Node, QUANTUM_BYTES};
use self::services::Services;
pub(crate) use self::turn::{Reach, Run, Turn};

/// The egress of a switch. The fields that every frame touches come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EgressTables<B> {
    ports: Box<[Port]>,
    /// Classes by priority and port, so that those used together lie together.
    classes: Box<[Class<B>]>,
    groups: Box<[QueueGroup]>,
    busy: BusyPorts,
    services: Services,
    common_max: CommonMax,
    lists: GroupLists,
    queues: Queues,
    /// Settings of the queue groups of tunnels that come, by underlay.
    underlays: Box<[TunnelGroups]>,
}

/// Settings of the queue groups of an underlay's tunnels.
#[derive(Clone, Copy, Debug)]
struct TunnelGroups {
    port: u16,
    output: Limit,
    rate: Option<RateLimit>,
}

/// A port. The fields that every frame touches come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// Priorities with frames that may be sent.
    active: u8,
    /// True if it has a rate or flow control, which are checked before each frame.
    restrained: bool,
    /// True if its queues are grouped in bundles: it has a queue group per tunnel.
    has_bundles: bool,
    detached: bool,
    /// True if another switch reads and writes it.
    elsewhere: bool,
    /// Access ports: true if frames need more than the fast path, since their sources or tags are
    /// checked, or they may find the input full.
    careful: bool,
    /// True if a device forwards between it and others that have this.
    offloaded: bool,
    tags: Tags,
    /// Its own queue group.
    group: u32,
    first_input: u16,
    queues: u8,
    class_turn: u8,
    role: PortRole,
    trust: Trust,
    default_priority: Priority,
    /// The largest frame without tag that may leave, Ethernet header included.
    frame_size_max: u32,
    /// Number of its queue groups that wait for their rate.
    timed_groups: u32,
    hold: [Hold; Priority::COUNT],
    shaper: Shaper,
    pause_out: Option<PauseSender>,
    /// Outer header of every frame through its tunnels.
    outer: Option<Outer>,
    pause_in: PauseReceiver,
}

/// One priority of a port.
#[derive(Debug)]
#[repr(C, align(64))]
struct Class<B> {
    /// Tail of the ring of queues (or bundles) with frames.
    ring: u32,
    deficit: i32,
    sent: Counter,
    common: Common<B>,
}

/// Reason why a queue group's queues stand in no port's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// The queues stand in their port's ring.
    Open,
    /// The rate of the queue group does not allow the next frame yet.
    Timed,
    /// The queue group has no destination yet: unresolved, or a tunnel without a next hop.
    Closed,
}

/// A destination that can be held back by itself. Every frame touches the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QueueGroup {
    port: u16,
    gate: Gate,
    /// True if a frame may be queued without further checks: a local port, or a tunnel with a next
    /// hop, that is not detached and has no rate of its own.
    plain: bool,
    /// Plain queue groups: tenants' frames up to this size fit.
    plain_size_max: u16,
    frames: u32,
    bytes: u64,
    marks: Marks,
    /// Room left in the output's own buffer (lossy priorities).
    room: Held,
    kind: QueueGroupKind,
    /// Tail of the ring of its parked queues.
    parked: u32,
    copies: u32,
    shaper: Shaper,
    /// Closed queue groups: when their frames end.
    deadline: Nanos,
    /// Unresolved queue groups: when the next punt may go.
    punt_at: Nanos,
    /// Unresolved queue groups: the input whose frame was the first.
    asker: u16,
}

impl<B> Class<B> {
    fn new() -> Self {
        Self { ring: NIL, deficit: 0, sent: Counter::default(), common: Common::new() }
    }

    /// Returns true if nothing waits.
    #[inline]
    const fn is_idle(&self) -> bool {
        self.ring == NIL && self.common.is_empty()
    }

    /// Returns the number of frames that its common queue takes before it holds `max`. Zero while a
    /// source has a queue of its own, whose frames would be overtaken.
    #[inline]
    const fn common_room(&self, max: CommonMax) -> u32 {
        if self.ring == NIL { max.get().saturating_sub(self.common.len()) } else { 0 }
    }
}

impl<B> EgressTables<B> {
    /// Makes the tables of a switch with so many slots and inputs. The tables that every frame
    /// touches are made first and together.
    pub(crate) fn new(config: &SwitchConfig, slots: u32, inputs: usize) -> Self {
        let nodes = node_count(config, slots, inputs);
        let ports = make_ports(config);
        let busy = BusyPorts::new(ports.len());
        let classes = (0..ports.len() * Priority::COUNT).map(|_| Class::new()).collect();
        let groups = make_groups(config);
        let is_underlay = |p: &PortConfig| matches!(p.role, PortRole::Underlay { .. });
        let underlays = config.ports.iter().enumerate().filter(|(_, port)| is_underlay(port));
        let underlays = underlays.map(|(at, port)| TunnelGroups {
            port: PortId::from_index(at).0,
            output: port.output,
            rate: port.group_rate,
        });
        Self {
            underlays: underlays.collect(),
            lists: GroupLists::new(config, groups.len()),
            services: Services::new(config),
            common_max: CommonMax::ZERO,
            queues: Queues::new(nodes),
            ports,
            classes,
            groups,
            busy,
        }
    }

    /// Returns the size of the common queues for inputs with these limits.
    pub(crate) fn common_max_of(&self, limits: impl Iterator<Item = Limit>) -> CommonMax {
        CommonMax::of(&self.ports, limits)
    }

    /// Sets the size of the common queues after inputs came or went.
    pub(crate) const fn set_common_max(&mut self, common_max: CommonMax) {
        self.common_max = common_max;
    }

    /// Returns the index of the class of a (port, priority).
    #[inline]
    pub(crate) fn class_of(&self, port: usize, priority: usize) -> usize {
        priority * self.ports.len() + port
    }

    /// Returns the frames that left a class.
    #[inline]
    pub(crate) fn sent(&self, class: usize) -> Counter {
        self.classes[class].sent
    }

    /// Counts a frame that left a class.
    #[inline]
    pub(crate) fn add_sent(&mut self, class: usize, bytes: u32) {
        self.classes[class].sent.add(bytes);
    }

    /// Returns true if no frame of a class waits.
    #[inline]
    pub(crate) fn is_idle(&self, class: usize) -> bool {
        self.classes[class].is_idle()
    }

    #[inline]
    fn mark_active(&mut self, port: usize, priority: usize) {
        self.ports[port].active |= 1 << priority;
        self.busy.insert(port);
    }

    /// Marks a priority as idle if the frame that left was its last one.
    #[inline]
    pub(crate) fn mark_idle(&mut self, port: usize, priority: usize) {
        if self.is_idle(self.class_of(port, priority)) {
            self.ports[port].active &= !(1 << priority);
        }
    }

    /// Returns the first port from `from` on that may have something to send.
    #[inline]
    pub(crate) fn busy_port(&self, from: usize) -> Option<usize> {
        self.busy.next(from)
    }

    /// Returns true if a port may have something to send.
    #[inline]
    pub(crate) fn is_busy(&self, port: usize) -> bool {
        self.busy.contains(port)
    }

    /// Returns true if no port has anything to send.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.busy.is_empty()
    }

    /// Sets the service of a priority.
    pub(crate) fn set_service(&mut self, priority: Priority, service: Service) {
        self.services.set(priority, service);
    }

    /// Returns the memory in which a frame of a priority waits: that of its input, or its output's
    /// share of it.
    #[inline]
    pub(crate) const fn owner_of(&self, priority: Priority) -> BufferOwner {
        if self.lossless().contains(priority) { BufferOwner::Ring } else { BufferOwner::Output }
    }

    /// Returns the lossless priorities.
    #[inline]
    pub(crate) const fn lossless(&self) -> PriorityMask {
        self.services.lossless()
    }
}

/// Returns the number of nodes. A queue in use holds a frame, so there are at most as many as
/// frames, and a bundle per source and priority on each underlay port.
fn node_count(config: &SwitchConfig, slots: u32, inputs: usize) -> usize {
    let underlays =
        config.ports.iter().filter(|p| matches!(p.role, PortRole::Underlay { .. })).count();
    let sources = inputs + config.tunnel_places();
    (slots as usize + underlays * sources * Priority::COUNT).min(NODES_MAX)
}
