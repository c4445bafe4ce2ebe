//! A snapshot of the host between two turns of the worker, so that all its numbers belong together.
//! The thread that asked formats it ([`super::answer`]).

use sluice_api::show::Question;
use sluice_base::{Mac, Nanos, PortId, VnetId};
use sluice_host::{Host, inspect};
use sluice_ports::{Amount, FrameBuf, HeldBack, HeldSocket, Lossless, Outside, Ring, SocketsShot};
use sluice_switch::{Destination, FdbState, TunnelCounters};

use super::worker::{Attached, Times};

/// The state that was asked for, and its time.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) at: Nanos,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Ports(Vec<PortShot>),
    Queues(Vec<inspect::Queue>),
    Drops(Vec<inspect::Dropped>),
    Audit(inspect::AuditOfPorts),
    Pauses(Vec<inspect::Pause>, Vec<(PortId, HeldSocket)>),
    Tunnels(Vec<TunnelCounters>),
    Macs(Vec<(VnetId, Mac, Destination)>),
    /// Times of the workers that were asked.
    Worker(Vec<Times>),
    /// Answered from the plan.
    Placement,
    /// The switch's own table.
    Fdb(FdbState),
}

/// A port.
#[derive(Debug)]
pub(super) struct PortShot {
    pub(super) id: PortId,
    pub(super) kind: &'static str,
    pub(super) state: inspect::PortState,
    pub(super) pending: Amount,
    pub(super) lost: Amount,
    pub(super) ring: Ring,
    pub(super) aside: HeldBack,
    pub(super) lossless: Lossless,
    /// Its state outside the switch. The thread that asked reads it.
    pub(super) outside: Outside,
    pub(super) gone: Option<String>,
    /// UDP sockets behind it, if it knows them.
    pub(super) sockets: Option<SocketsShot>,
}

/// Takes a snapshot.
pub(super) fn take(
    host: &Host<FrameBuf>,
    ports: &mut [Attached],
    tunnels: usize,
    times: Times,
    question: Question,
    now: Nanos,
) -> Snapshot {
    let switch = host.switch();
    let body = match question {
        Question::Ports => {
            Body::Ports(ports.iter_mut().map(|port| port_shot(host, port)).collect())
        }
        Question::Queues => Body::Queues(inspect::queues(switch)),
        Question::Drops => Body::Drops(inspect::drops(switch)),
        Question::Audit => Body::Audit(inspect::audit(switch)),
        Question::Pauses => {
            let ids = ports.iter().map(|attached| attached.id);
            Body::Pauses(inspect::pauses(switch, now, ids), held_sockets(ports))
        }
        Question::Tunnels => Body::Tunnels(inspect::tunnels(switch, tunnels)),
        Question::Mac => Body::Macs(inspect::macs(switch)),
        Question::Worker => Body::Worker(vec![times]),
        Question::Placement => Body::Placement,
        Question::Chip => Body::Fdb(switch.fdb_state()),
    };
    Snapshot { at: now, body }
}

/// Returns the UDP sockets that are held, of all ports.
fn held_sockets(ports: &mut [Attached]) -> Vec<(PortId, HeldSocket)> {
    let of = |attached: &mut Attached| {
        let sockets = attached.port.receiving_sockets();
        let held = sockets.map_or(Vec::new(), |sockets| sockets.shot().held);
        let id = attached.id;
        held.into_iter().map(move |socket| (id, socket))
    };
    ports.iter_mut().flat_map(of).collect()
}

pub(super) fn port_shot(host: &Host<FrameBuf>, attached: &mut Attached) -> PortShot {
    let port = &mut attached.port;
    PortShot {
        id: attached.id,
        kind: port.kind(),
        state: inspect::port(host.switch(), attached.id, attached.queues),
        pending: port.pending(),
        lost: port.lost().total(),
        ring: port.ring(),
        aside: port.read_ahead().map_or(HeldBack::default(), |ahead| ahead.aside()),
        lossless: port.lossless(),
        outside: port.outside(),
        gone: attached.gone.as_ref().map(ToString::to_string),
        sockets: port.receiving_sockets().map(|sockets| sockets.shot()),
    }
}
