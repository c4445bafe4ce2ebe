//! Facts of the control plane about one frame's path: read in the fabric's thread, at one moment,
//! and judged elsewhere.

use std::net::IpAddr;

use sluice_base::{HostId, Mac, PortId, PriorityMask, VnetId, Vni};
use sluice_control::directory::State;
use sluice_control::plane::{Kind, Plane};
use sluice_control::vport::Key;

use crate::config::FabricPlan;
use crate::fabric::ports::Ports;
use crate::registry::Entry as _;

/// Receiver of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// The endpoint with this MAC.
    Mac(Mac),
    /// The endpoint with this address; its MAC is resolved first.
    Ip(IpAddr),
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) vni: Vni,
    pub(crate) from: Mac,
    pub(crate) to: To,
}

impl Frame {
    /// Parses addresses.
    pub(crate) fn read(vni: Vni, from: &str, to: &str) -> Result<Self, String> {
        let sender = from.parse::<Mac>().map_err(|_| format!("`{from}` is no MAC address"))?;
        if sender.is_group() {
            return Err(format!("{from} is a group address, and sends nothing"));
        }
        let to = match (to.parse::<Mac>(), to.parse::<IpAddr>()) {
            (Ok(mac), _) => To::Mac(mac),
            (_, Ok(ip)) => To::Ip(ip),
            _ => return Err(format!("`{to}` is neither a MAC nor an IP address")),
        };
        Ok(Self { vni, from: sender, to })
    }

    /// Formats the receiver.
    pub(crate) fn to_text(self) -> String {
        match self.to {
            To::Mac(mac) => mac.to_string(),
            To::Ip(ip) => ip.to_string(),
        }
    }
}

/// The best claim for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) mac: Mac,
    pub(crate) host: HostId,
    pub(crate) host_name: String,
    pub(crate) state: State,
    pub(crate) port: PortId,
    pub(crate) is_frozen: bool,
    /// Time for which its entry in the forwarding table was not used, in nanoseconds.
    pub(crate) unused_ns: Option<u64>,
}

/// A port of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalPort {
    pub(crate) id: PortId,
    pub(crate) name: String,
    pub(crate) is_bound: bool,
    /// True if the sender is bound to it.
    pub(crate) has_sender: bool,
    pub(crate) learned: u32,
    pub(crate) learn_max: u32,
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) host: HostId,
    pub(crate) name: String,
    pub(crate) vtep: IpAddr,
    pub(crate) tunnel: u16,
    pub(crate) is_member: bool,
    pub(crate) is_stale: bool,
    pub(crate) has_network: bool,
}

/// Priorities that the receiver's host asked this host to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldHere {
    pub(crate) held: PriorityMask,
    pub(crate) stuck: PriorityMask,
}

/// The facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) host_name: String,
    pub(crate) frame: Frame,
    /// The network here; `None` if this host does not have it.
    pub(crate) vnet: Option<(VnetId, String)>,
    pub(crate) source: Option<Claimed>,
    /// The first and second host of those that are bound with the sender's MAC.
    pub(crate) rivals: Option<(String, String)>,
    /// Ingress port of the frame: the port that was named, or that of the sender.
    pub(crate) port: Option<LocalPort>,
    pub(crate) destination: Option<Claimed>,
    /// The receiver's host, or the one from which the frame comes.
    pub(crate) peer: Option<Peer>,
    /// Priorities of the receiver that are held here.
    pub(crate) hold: Option<HeldHere>,
}

impl Facts {
    /// Reads the facts. `port` is the ingress port of the frame, if one was named.
    pub(crate) fn gather(
        plan: &FabricPlan,
        (ports, plane): (&Ports, &Plane),
        frame: Frame,
        port: Option<&str>,
    ) -> Result<Self, String> {
        let name = plan.vnet_name(frame.vni).map(ToOwned::to_owned);
        let vnet = plan.vnet(frame.vni).zip(name);
        let source = claimed(plan, plane, Key { vni: frame.vni, mac: frame.from });
        let target = match frame.to {
            To::Mac(mac) => Some(mac),
            To::Ip(ip) => plane.vport_of_ip(frame.vni, ip).map(|vport| vport.claim.key.mac),
        };
        let destination = target.and_then(|mac| claimed(plan, plane, Key { vni: frame.vni, mac }));
        let at = match port {
            Some(name) => Some(named_port(ports, vnet.as_ref(), name)?),
            None => source.as_ref().filter(|one| one.state == State::Own).map(|one| one.port),
        };
        let remote = destination.as_ref().filter(|one| one.state != State::Own);
        let peer = remote.and_then(|one| peer(plan, plane, one.host, frame.vni));
        let port = at.and_then(|id| local_port(plan, (ports, plane), id, frame));
        let host_name = plan.name.clone();
        let hold = target.and_then(|mac| plane.hold_of(Key { vni: frame.vni, mac }));
        let hold = hold.map(|entry| HeldHere { held: entry.held, stuck: entry.stuck });
        let rivals = rivals(plan, plane, Key { vni: frame.vni, mac: frame.from });
        Ok(Self { host_name, frame, vnet, source, rivals, port, destination, peer, hold })
    }

    /// Reads the facts at the host at which the frame arrives.
    pub(crate) fn of_arrival(
        plan: &FabricPlan,
        (ports, plane): (&Ports, &Plane),
        frame: Frame,
        from: HostId,
    ) -> Result<Self, String> {
        let facts = Self::gather(plan, (ports, plane), frame, None)?;
        Ok(Self { peer: peer(plan, plane, from, frame.vni), port: None, ..facts })
    }
}

/// Returns the hosts that are bound with a MAC, if two are.
fn rivals(plan: &FabricPlan, plane: &Plane, key: Key) -> Option<(String, String)> {
    let rivals = plane.rivals();
    let here = rivals.iter().find(|rivals| rivals.first.ip.is_none() && rivals.first.key == key)?;
    let name = |host| plan.host_name(host).map_or_else(|| format!("host {host}"), str::to_owned);
    Some((name(here.first.host), name(here.second.host)))
}

fn named_port(
    ports: &Ports,
    vnet: Option<&(VnetId, String)>,
    name: &str,
) -> Result<PortId, String> {
    let (at, port) = ports.named(name).ok_or_else(|| {
        let names: Vec<&str> = ports.there().map(|(_, port)| port.name()).collect();
        format!("there is no port `{name}` here; there is {}", names.join(", "))
    })?;
    match vnet {
        Some((id, _)) if *id == port.local.vnet => Ok(at),
        _ => Err(format!("the port `{name}` is in another network")),
    }
}

fn claimed(plan: &FabricPlan, plane: &Plane, key: Key) -> Option<Claimed> {
    let info = plane.vport(key)?;
    let host = info.vport.owner;
    let name = plan.host_name(host).map_or_else(|| format!("host {host}"), str::to_owned);
    Some(Claimed {
        mac: key.mac,
        host,
        host_name: name,
        state: info.state,
        port: info.vport.claim.port,
        is_frozen: info.frozen_until.is_some(),
        unused_ns: info.installed.map(|(_, used)| plane.ago(used).0),
    })
}

fn local_port(
    plan: &FabricPlan,
    (ports, plane): (&Ports, &Plane),
    id: PortId,
    frame: Frame,
) -> Option<LocalPort> {
    let port = ports.get(id)?;
    let is_sender = |one: &crate::config::Bound| (one.vni, one.mac) == (frame.vni, frame.from);
    let key = Key { vni: frame.vni, mac: frame.from };
    let is_claimed = plane.claims(key).any(|vport| vport.owner == plan.own);
    Some(LocalPort {
        id,
        name: port.local.name.clone(),
        is_bound: port.local.is_bound,
        // A binding that another host took over is not claimed here any more.
        has_sender: port.bound.iter().any(is_sender) && is_claimed,
        learned: plane.learned_at(id),
        learn_max: plan.learn_max,
    })
}

fn peer(plan: &FabricPlan, plane: &Plane, host: HostId, vni: Vni) -> Option<Peer> {
    let known = plan.hosts.iter().find(|known| known.host == host)?;
    let info = plane.hosts().find(|info| info.host == host)?;
    Some(Peer {
        host,
        name: known.name.clone(),
        vtep: known.vtep,
        tunnel: plan.tunnel(host)?.0,
        is_member: info.kind == Kind::Member,
        is_stale: info.stale_since.is_some(),
        has_network: known.vnets.contains(&vni),
    })
}
