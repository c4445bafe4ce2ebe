//! State of the switch on one frame's path, for `sluice trace`: entries of the forwarding table,
//! ports and tunnels, all at one moment between two turns. The question names all of them, so that
//! its cost for the worker does not depend on the size of the table.

use sluice_api::trace::Look;
use sluice_base::{DropReason, Mac, Nanos, PortId, Priority, TunnelId, VnetId};
use sluice_host::Host;
use sluice_host::inspect::{self, Dropped};
use sluice_ports::FrameBuf;
use sluice_switch::{Counter, Destination, Switch, TunnelCounters};

use super::snapshot::{self, PortShot};
use super::worker::Attached;

/// Most items of each kind in a question.
pub(super) const ITEMS_MAX: usize = 8;

/// The question.
#[derive(Clone, Debug)]
pub(super) struct StateQuery {
    vnet: VnetId,
    macs: Vec<Mac>,
    ports: Vec<PortId>,
    tunnels: Vec<TunnelId>,
}

impl StateQuery {
    /// Asks for ports alone, no more than [`ITEMS_MAX`].
    pub(super) fn of_ports(ports: &[PortId]) -> Self {
        let (macs, tunnels) = (Vec::new(), Vec::new());
        Self { vnet: VnetId(0), macs, ports: ports.to_vec(), tunnels }
    }

    /// Parses the question; `None` if it contains an invalid address, or too many items.
    pub(super) fn read(look: &Look) -> Option<Self> {
        let sizes = [look.macs.len(), look.ports.len(), look.tunnels.len()];
        if sizes.iter().any(|size| *size > ITEMS_MAX) {
            return None;
        }
        let macs: Option<Vec<Mac>> = look.macs.iter().map(|mac| mac.parse().ok()).collect();
        Some(Self {
            vnet: VnetId(look.vnet),
            macs: macs?,
            ports: look.ports.iter().copied().map(PortId).collect(),
            tunnels: look.tunnels.iter().copied().map(TunnelId).collect(),
        })
    }
}

/// The answer, and its time.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at: Nanos,
    pub(super) fdb: Vec<Option<Destination>>,
    pub(super) ports: Vec<PortSeen>,
    /// Tunnels, and the number of the network's frames that came out of each since its flow was
    /// made.
    pub(super) tunnels: Vec<(TunnelId, TunnelCounters, Option<u64>)>,
}

/// A port.
#[derive(Debug)]
pub(super) struct PortSeen {
    pub(super) id: PortId,
    pub(super) shot: PortShot,
    pub(super) window_frames: u32,
    pub(super) blocked: bool,
    pub(super) pauses: Vec<inspect::Pause>,
    pub(super) drops: Vec<Dropped>,
}

/// Answers a question. The underlay is always part of the answer.
pub(super) fn take(
    host: &Host<FrameBuf>,
    ports: &mut [Attached],
    tunnels: usize,
    wanted: &StateQuery,
    now: Nanos,
) -> Seen {
    let switch = host.switch();
    let fdb: Vec<_> = wanted.macs.iter().map(|mac| switch.mac(wanted.vnet, *mac)).collect();
    let (mut ids, mut tunnel_ids) = (wanted.ports.clone(), wanted.tunnels.clone());
    for to in fdb.iter().flatten() {
        match to {
            Destination::Port(port) => ids.push(*port),
            Destination::Tunnel(tunnel) => tunnel_ids.push(*tunnel),
        }
    }
    ids.extend(ports.iter().find(|port| port.name == "underlay").map(|port| port.id));
    ids.sort_unstable();
    ids.dedup();
    tunnel_ids.retain(|tunnel| tunnel.index() < tunnels);
    tunnel_ids.sort_unstable();
    tunnel_ids.dedup();
    let mut seen = Vec::new();
    for id in ids {
        let found = ports.iter_mut().find(|port| port.id == id);
        seen.extend(found.map(|port| port_seen(host, port, now)));
    }
    let tunnel = |tunnel: TunnelId| {
        let of =
            |flow: &sluice_switch::DecapFlow| (flow.vnet, flow.tunnel) == (wanted.vnet, tunnel);
        let decap = switch.decap_flows().find(of).map(|flow| flow.received.frames);
        (tunnel, switch.tunnel_counters(tunnel), decap)
    };
    Seen { at: now, fdb, ports: seen, tunnels: tunnel_ids.into_iter().map(tunnel).collect() }
}

fn port_seen(host: &Host<FrameBuf>, attached: &mut Attached, now: Nanos) -> PortSeen {
    let switch = host.switch();
    PortSeen {
        id: attached.id,
        shot: snapshot::port_shot(host, attached),
        window_frames: attached.inputs().map(|input| switch.window(input).frames).sum(),
        blocked: attached.room.is_missing(),
        pauses: inspect::pauses(switch, now, [attached.id]),
        drops: drops(switch, attached),
    }
}

fn drops(switch: &Switch<FrameBuf>, attached: &Attached) -> Vec<Dropped> {
    let mut rows = Vec::new();
    for priority in Priority::all() {
        for &reason in DropReason::ALL {
            let mut count = Counter::default();
            for input in attached.inputs() {
                let one = switch.dropped(input, priority, reason);
                count.frames += one.frames;
                count.bytes += one.bytes;
            }
            if count.frames > 0 {
                rows.push(Dropped { port: Some(attached.id), priority, reason, count });
            }
        }
    }
    rows
}
