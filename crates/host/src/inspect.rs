//! Snapshots of a switch between two turns, as plain rows. The thread that drives the switch takes
//! them and another one formats them, so that a request costs the data path little.

use alloc::vec::Vec;

use sluice_base::{
    Buf, DropReason, InputId, Mac, Nanos, PortId, Priority, SourceId, TunnelId, VnetId,
};
use sluice_switch::{
    AuditRow, Counter, Destination, IsolatedState, Marks, PauseState, QueueGroupKind, QueueState,
    Switch, TunnelCounters,
};

/// Counters of a port, and the frames that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// Frames that came in at the port.
    pub received: Counter,
    /// Frames that the driver took.
    pub sent: Counter,
    /// Frames held at the inputs now.
    pub held: Counter,
    /// High-water marks of the inputs.
    pub held_max: Marks,
    /// Frames that wait for the output now.
    pub queued: Counter,
    /// High-water marks of the output.
    pub queued_max: Marks,
}

/// Origin of the frames of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A local port.
    Port(PortId),
    /// Another host.
    Tunnel(TunnelId),
    /// The control plane of this host.
    Control,
}

/// A queue that holds frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Origin of its frames.
    pub source: Source,
    /// Destination of its frames.
    pub to: QueueGroupKind,
    /// Priority of its frames.
    pub priority: Priority,
    /// Frames that wait.
    pub held: Counter,
}

/// Frames that ended under a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The port at which they were classified; `None` for frames that control made.
    pub port: Option<PortId>,
    /// Priority of the frames.
    pub priority: Priority,
    /// The reason.
    pub reason: DropReason,
    /// Number of frames, and their bytes.
    pub count: Counter,
}

/// Flow control of one (port, priority).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The port.
    pub port: PortId,
    /// The priority.
    pub priority: Priority,
    /// Its pause state.
    pub state: PauseState,
    /// Its receiver, if it is isolated.
    pub isolated: Option<Isolation>,
}

/// A receiver that is isolated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// State in the switch.
    pub state: IsolatedState,
    /// The endpoints behind its port, the first few.
    pub endpoints: Vec<Mac>,
    /// Sources whose frames wait for it, and the hosts that were asked to hold it.
    pub waiting: Vec<Source>,
}

/// Upper bound of the endpoints that are listed for a port.
const ENDPOINTS_MAX: usize = 4;

/// The audit, with ports instead of inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOfPorts {
    /// True if every row closes, in frames and in bytes.
    pub closed: bool,
    /// The rows that are not empty; the port is `None` for frames that control made.
    pub rows: Vec<(Option<PortId>, AuditRow)>,
}

/// Returns the audit.
#[must_use]
pub fn audit<B: Buf>(switch: &Switch<B>) -> AuditOfPorts {
    let audit = switch.audit();
    let closed = audit.is_closed();
    let rows = audit.rows.into_iter().map(|row| (switch.port_of(row.input), row));
    AuditOfPorts { closed, rows: rows.collect() }
}

/// Returns the state of port `port`, over all of its `queues`.
#[must_use]
pub fn port<B: Buf>(switch: &Switch<B>, port: PortId, queues: u8) -> PortState {
    let mut state = PortState {
        sent: switch.sent(port),
        queued: switch.queued(port),
        queued_max: switch.queued_marks(port),
        ..PortState::default()
    };
    for queue in 0..queues {
        let input = switch.input(port, queue);
        add(&mut state.received, switch.received(input));
        add(&mut state.held, switch.held(input));
        let marks = switch.held_marks(input);
        state.held_max.frames_max += marks.frames_max;
        state.held_max.bytes_max += marks.bytes_max;
    }
    state
}

/// Returns the queues that hold frames.
#[must_use]
pub fn queues<B: Buf>(switch: &Switch<B>) -> Vec<Queue> {
    let rows = switch.queues().map(|queue| Queue {
        source: source(switch, queue.source),
        to: queue.to,
        priority: queue.priority,
        held: Counter { frames: queue.frames.into(), bytes: queue.bytes },
    });
    rows.collect()
}

/// Returns the dropped frames, by port, priority and reason.
#[must_use]
pub fn drops<B: Buf>(switch: &Switch<B>) -> Vec<Dropped> {
    let inputs = 0..=switch.control_input().index();
    let mut rows: Vec<Dropped> = Vec::new();
    for input in inputs.map(InputId::from_index) {
        let port = switch.port_of(input);
        for priority in Priority::all() {
            for &reason in DropReason::ALL {
                let count = switch.dropped(input, priority, reason);
                if count.frames == 0 {
                    continue;
                }
                // Another queue of the port may have a row already.
                let is_it = |row: &&mut Dropped| {
                    (row.port, row.priority, row.reason) == (port, priority, reason)
                };
                match rows.iter_mut().find(is_it) {
                    Some(row) => add(&mut row.count, count),
                    None => rows.push(Dropped { port, priority, reason, count }),
                }
            }
        }
    }
    rows
}

/// Returns the flow control of some ports, if there was any, and the receivers among them that are
/// isolated.
#[must_use]
pub fn pauses<B: Buf>(
    switch: &Switch<B>,
    now: Nanos,
    ports: impl IntoIterator<Item = PortId>,
) -> Vec<Pause> {
    let mut rows = Vec::new();
    for port in ports {
        for priority in Priority::all() {
            let state = switch.pause_state(now, port, priority);
            let mut isolated = switch.isolated();
            let isolated = isolated.find(|one| (one.port, one.priority) == (port, priority));
            if state != PauseState::default() || isolated.is_some() {
                let isolated = isolated.map(|state| isolation(switch, state));
                rows.push(Pause { port, priority, state, isolated });
            }
        }
    }
    rows
}

/// Returns an isolated receiver, with its endpoints and senders.
#[must_use]
pub fn isolation<B: Buf>(switch: &Switch<B>, state: IsolatedState) -> Isolation {
    let is_here = |to: &Destination| *to == Destination::Port(state.port);
    let endpoints = switch.macs().filter(|(_, _, to)| is_here(to)).map(|(_, mac, _)| mac);
    let waits = |queue: &QueueState| {
        (queue.to, queue.priority) == (QueueGroupKind::Port(state.port), state.priority)
    };
    let mut waiting: Vec<Source> = Vec::new();
    for queue in switch.queues().filter(waits) {
        let source = source(switch, queue.source);
        if !waiting.contains(&source) {
            waiting.push(source);
        }
    }
    for tunnel in switch.senders(state.port).map(Source::Tunnel) {
        if !waiting.contains(&tunnel) {
            waiting.push(tunnel);
        }
    }
    Isolation { state, endpoints: endpoints.take(ENDPOINTS_MAX).collect(), waiting }
}

/// Returns the counters of the first `tunnels` tunnels.
#[must_use]
pub fn tunnels<B: Buf>(switch: &Switch<B>, tunnels: usize) -> Vec<TunnelCounters> {
    (0..tunnels).map(|at| switch.tunnel_counters(TunnelId::from_index(at))).collect()
}

/// Returns the entries of the forwarding table (FDB), sorted.
#[must_use]
pub fn macs<B: Buf>(switch: &Switch<B>) -> Vec<(VnetId, Mac, Destination)> {
    let mut rows: Vec<_> = switch.macs().collect();
    rows.sort_by_key(|(vnet, mac, _)| (*vnet, *mac));
    rows
}

fn source<B: Buf>(switch: &Switch<B>, source: SourceId) -> Source {
    match switch.source_tunnel(source) {
        Some(tunnel) => Source::Tunnel(tunnel),
        None => switch.port_of(InputId(source.0)).map_or(Source::Control, Source::Port),
    }
}

fn add(sum: &mut Counter, one: Counter) {
    sum.frames += one.frames;
    sum.bytes += one.bytes;
}
