//! Verdicts from the facts of control and the state of the switch. Pure: one host's part of the
//! path at a time.
//!
//! ```text
//!   source:       source ─ port ─ resolve ─ FDB ─┬─ output (a port here)
//!                                                 └─ tunnel ─ class ──> the next host
//!   destination:  decap ─ FDB ─ output
//! ```
//!
//! Steps after one that ends the frame are not examined.

use std::collections::BTreeMap;

use sluice_api::show::losses_text;
use sluice_api::trace::{Destination, Grade, Looked, PortLook, Step, TunnelLook, Verdict};
use sluice_base::{HostId, Mac, PortId};
use sluice_control::directory::State;

use super::facts::{Claimed, Facts, HeldHere, LocalPort, Peer, To};
use crate::fabric::answer::priorities;

/// Continuation of a frame's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// None: the frame ends, is delivered, or its path is unknown.
    End,
    /// To another host, which can be asked.
    Host(HostId, Mac),
}

/// Steps up to the first that ends the frame.
struct Steps(Vec<Step>);

impl Steps {
    /// Adds a step; returns false if the frame ends there.
    fn add(&mut self, step: Step) -> bool {
        let goes_on = step.grade != Grade::Stop;
        self.0.push(step);
        goes_on
    }
}

/// Judges the sender's host. Without the switch's state only control's facts count.
pub(super) fn source(facts: &Facts, looked: &Looked, port: &LocalPort) -> (Vec<Step>, Next) {
    let mut steps = Steps(Vec::new());
    let next = along(&mut steps, facts, looked, port).unwrap_or(Next::End);
    (steps.0, next)
}

fn along(steps: &mut Steps, facts: &Facts, looked: &Looked, port: &LocalPort) -> Option<Next> {
    let go = |goes_on: bool| goes_on.then_some(());
    go(steps.add(sender(facts, port)))?;
    go(steps.add(input(port, port_of(looked, port.id))))?;
    if let To::Ip(_) = facts.frame.to {
        go(steps.add(resolve(facts)))?;
    }
    let target = match facts.frame.to {
        To::Mac(mac) if mac.is_group() => {
            let why = format!("{mac} is a group: every other port and host of the network gets it");
            steps.add(Step::new("resolve", Verdict::Group, why));
            return Some(Next::End);
        }
        To::Mac(mac) => mac,
        To::Ip(_) => facts.destination.as_ref()?.mac,
    };
    let (step, destination) = fdb(facts, looked, target);
    go(steps.add(step))?;
    match destination? {
        Destination::Port(at) if at == port.id.0 => {
            let why = format!("{} is behind port {} as well", target, port.name);
            steps.add(Step::new("output", Verdict::SamePort, why));
            None
        }
        Destination::Port(at) => {
            steps.add(output(&target, at, looked));
            None
        }
        Destination::Tunnel(at) => {
            let peer = facts.peer.as_ref().filter(|peer| peer.tunnel == at)?;
            go(steps.add(tunnel(peer, looked)))?;
            if let Some(step) = class(looked) {
                steps.add(step);
            }
            let can_say = peer.is_member && !peer.is_stale;
            can_say.then_some(Next::Host(peer.host, target))
        }
    }
}

fn sender(facts: &Facts, port: &LocalPort) -> Step {
    let (from, name) = (facts.frame.from, &port.name);
    let step = |verdict, why| {
        Step::new("source", verdict, why).seen("endpoints_learned", port.learned.into())
    };
    let known = facts.source.as_ref();
    let is_here = known.is_some_and(|known| known.state == State::Own && known.port == port.id);
    if port.is_bound {
        return match (port.has_sender, &facts.rivals) {
            (true, Some((first, second))) => {
                let why = format!("{from} is bound at {first} and at {second}: all follow {first}");
                step(Verdict::BoundTwice, why)
            }
            (true, None) => step(Verdict::Bound, format!("{from} is bound to port {name}")),
            (false, _) => {
                let why = format!("port {name} is bound, and not to {from}: `spoofed_mac`");
                step(Verdict::SpoofedMac, why)
            }
        };
    }
    if known.is_some_and(|known| known.is_frozen) {
        let why = format!("{from} moved too often, and is not followed for a while");
        return step(Verdict::Frozen, why);
    }
    match known {
        _ if is_here => step(Verdict::Learned, format!("{from} was learned at port {name}")),
        Some(known) => {
            let why = format!("{from} is known to be at {}, not at port {name}", place(known));
            step(Verdict::ElsewhereClaimed, why)
        }
        None if port.learned >= port.learn_max => {
            let why = format!("port {name} has {} endpoints, as many as it may", port.learned);
            step(Verdict::OverQuota, why)
        }
        None => step(Verdict::WouldLearn, format!("{from} is learned at port {name} from it")),
    }
}

fn place(known: &Claimed) -> String {
    format!("port {} of {}", known.port, known.host_name)
}

fn port_of(looked: &Looked, id: PortId) -> Option<&PortLook> {
    looked.ports.iter().find(|port| port.index == id.0)
}

/// Adds the counters of a port that are not zero.
fn seen_at(mut step: Step, port: &PortLook) -> Step {
    let row = &port.row;
    for (name, value) in [
        ("rx_frames", row.rx_frames),
        ("tx_frames", row.tx_frames),
        ("held_frames", row.held_frames.into()),
        ("queued_frames", row.queued_frames.into()),
        ("driver_lost", row.driver_lost),
        ("paused_ns", port.pauses.iter().map(|pause| pause.paused_ns).sum()),
    ] {
        step = step.seen(name, value);
    }
    let mut drops: BTreeMap<String, u64> = BTreeMap::new();
    for row in &port.drops {
        *drops.entry(format!("drops.{}", row.reason)).or_default() += row.frames;
    }
    let kernel = row.kernel.iter().filter(|(_, count)| **count > 0);
    step.seen.extend(kernel.map(|(name, count)| (format!("kernel.{name}"), *count)));
    step.seen.extend(drops);
    if let Some(lost) = losses_text(&row.losses) {
        step.why += &format!("; but port {} {lost}", row.port);
    }
    step
}

/// Returns the fault of a port, for either direction.
fn broken(what: &str, port: &PortLook) -> Option<Step> {
    let name = &port.row.port;
    if let Some(error) = &port.gone {
        let why = format!("port {name} is closed: {error}");
        return Some(Step::new(what, Verdict::PortGone, why));
    }
    (port.up == Some(false))
        .then(|| Step::new(what, Verdict::PortDown, format!("the device of port {name} is down")))
}

fn input(port: &LocalPort, look: Option<&PortLook>) -> Step {
    let Some(look) = look else {
        let why = format!("the data process does not know port {}", port.name);
        return Step::new("port", Verdict::SwitchSilent, why);
    };
    let step = broken("port", look).unwrap_or_else(|| match look.window_frames {
        0 => {
            let why = format!("port {} is not read: what it sent is held", port.name);
            Step::new("port", Verdict::HeldBack, why)
        }
        window => {
            let why = format!("port {} may send {window} frames more", port.name);
            Step::new("port", Verdict::PortUp, why)
        }
    });
    seen_at(step, look)
}

fn resolve(facts: &Facts) -> Step {
    let ip = facts.frame.to_text();
    let Some(known) = &facts.destination else {
        let why =
            format!("nobody is known to have {ip}: its question is passed on, and not answered");
        return Step::new("resolve", Verdict::IpUnknown, why);
    };
    let mac = known.mac;
    if known.state == State::Stale {
        let why = format!("{ip} is {mac} of {}, which is silent", known.host_name);
        return Step::new("resolve", Verdict::IpStale, why);
    }
    Step::new("resolve", Verdict::Resolved, format!("{ip} is {mac} at {}", known.host_name))
}

/// Judges the entry of an address in the forwarding table (FDB). Returns the frame's destination.
fn fdb(facts: &Facts, looked: &Looked, target: Mac) -> (Step, Option<Destination>) {
    let in_fdb = looked.fdb.get(1).copied().flatten();
    let wanted = facts.destination.as_ref().and_then(|known| match known.state {
        State::Own => Some(Destination::Port(known.port.0)),
        _ => facts.peer.as_ref().map(|peer| Destination::Tunnel(peer.tunnel)),
    });
    let step = |verdict, why| {
        let step = Step::new("chip", verdict, why);
        match facts.destination.as_ref().and_then(|known| known.unused_ns) {
            Some(ns) => step.seen("unused_ns", ns),
            None => step,
        }
    };
    let at = facts.destination.as_ref().map_or_else(String::new, place);
    match (in_fdb, wanted) {
        (Some(there), Some(wanted)) if there == wanted && facts.hold.is_some() => {
            let HeldHere { held, stuck } = facts.hold.unwrap_or_default();
            let (verdict, what, mask) = match stuck.is_empty() {
                true => (Verdict::HeldRemote, "held here", held),
                false => (Verdict::StuckRemote, "ended as `receiver_stuck`", stuck),
            };
            let mask = priorities(mask);
            let why = format!("{at} does not take frames of priority {mask}: they are {what}");
            (step(verdict, why), in_fdb)
        }
        (Some(there), Some(wanted)) if there == wanted => {
            (step(Verdict::Installed, format!("the FDB sends {target} to {at}")), in_fdb)
        }
        (Some(_), Some(_)) => {
            let why = format!("the FDB sends {target} elsewhere than to {at}, where it is");
            (step(Verdict::ChipDiffers, why), wanted)
        }
        (Some(_), None) => {
            let why = format!("the FDB knows {target}, and nobody claims it any more");
            (step(Verdict::ChipDiffers, why), in_fdb)
        }
        (None, Some(_)) => {
            let why = format!("the FDB does not know {target}; control installs it: {at}");
            (step(Verdict::WouldInstall, why), wanted)
        }
        (None, None) => {
            let why = format!("nobody claims {target}: `unresolved`");
            (step(Verdict::DestinationUnknown, why), None)
        }
    }
}

/// Judges whether a frame leaves through a port and reaches the machine behind it.
fn output(target: &Mac, at: u16, looked: &Looked) -> Step {
    let Some(port) = port_of(looked, PortId(at)) else {
        let why = format!("the data process does not know port {at}");
        return Step::new("output", Verdict::SwitchSilent, why);
    };
    let name = &port.row.port;
    let step = broken("output", port).unwrap_or_else(|| {
        if port.pauses.iter().any(|pause| pause.paused) {
            let why = format!("{} frames wait for port {name}: paused", port.row.queued_frames);
            Step::new("output", Verdict::Paused, why)
        } else if port.blocked {
            let why = format!("port {name} takes nothing; {} frames wait", port.row.queued_frames);
            Step::new("output", Verdict::Blocked, why)
        } else {
            Step::new("output", Verdict::Delivered, format!("{target} gets it at port {name}"))
        }
    });
    seen_at(step, port)
}

fn tunnel_of(looked: &Looked, peer: &Peer) -> Option<TunnelLook> {
    looked.tunnels.iter().find(|tunnel| tunnel.index == peer.tunnel).cloned()
}

fn tunnel(peer: &Peer, looked: &Looked) -> Step {
    let (name, vtep) = (&peer.name, peer.vtep);
    let underlay = underlay_of(looked);
    let Some(look) = tunnel_of(looked, peer) else {
        let why = format!("the data process does not know the tunnel to {name}");
        return Step::new("tunnel", Verdict::SwitchSilent, why);
    };
    let next_hop = &look.row.next_hop;
    let mut step = if let Some(step) = underlay.and_then(|port| broken("tunnel", port)) {
        step
    } else if next_hop == "unresolved" {
        let why = format!("the next hop to {vtep} of {name} is not known");
        Step::new("tunnel", Verdict::NextHopUnknown, why)
    } else if !peer.has_network {
        let why = format!("{name} is not in the network, as this host is configured");
        Step::new("tunnel", Verdict::NotInNetwork, why)
    } else if peer.is_stale {
        let why = format!("{name} is silent; frames go to {vtep} all the same");
        Step::new("tunnel", Verdict::HostStale, why)
    } else if !peer.is_member {
        let why = format!("{name} at {vtep} does not speak the protocol");
        Step::new("tunnel", Verdict::ForeignHost, why)
    } else if underlay.is_some_and(|port| port.pauses.iter().any(|pause| pause.paused)) {
        let why = format!("the underlay is paused; {} frames wait", look.row.queued_frames);
        Step::new("tunnel", Verdict::Paused, why)
    } else {
        let why = format!("VXLAN to {vtep} of {name}, next hop {next_hop}");
        Step::new("tunnel", Verdict::TunnelUp, why)
    };
    if let Some(port) = underlay {
        step = seen_at(step, port);
    }
    step.seen("tx_frames", look.row.tx_frames)
        .seen("rx_frames", look.row.rx_frames)
        .seen("queued_frames", look.row.queued_frames.into())
}

/// Returns the underlay, which is always part of the state. No other port may have its name.
fn underlay_of(looked: &Looked) -> Option<&PortLook> {
    looked.ports.iter().find(|port| port.row.port == "underlay")
}

/// Judges whether the underlay is lossless.
fn class(looked: &Looked) -> Option<Step> {
    let row = &underlay_of(looked)?.row;
    let verdict = if row.lossless == "yes" { Verdict::Lossless } else { Verdict::Lossy };
    Some(Step::new("class", verdict, format!("lossless on the underlay: {}", row.lossless)))
}

/// Judges the receiver's host.
pub(super) fn arrival(facts: &Facts, looked: &Looked, target: Mac) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    let (step, peer) = decap(facts, looked);
    if !steps.add(step) {
        return steps.0;
    }
    let here = facts.destination.as_ref().filter(|known| known.state == State::Own);
    let in_fdb = looked.fdb.get(1).copied().flatten();
    match (here, facts.destination.as_ref()) {
        (Some(known), _) => {
            let verdict = match in_fdb {
                None => Verdict::WouldInstall,
                Some(Destination::Port(port)) if port == known.port.0 => Verdict::Installed,
                Some(_) => Verdict::ChipDiffers,
            };
            let why = format!("{target} is at {}", place(known));
            let step = Step::new("chip", verdict, why);
            steps.add(match known.unused_ns {
                Some(ns) => step.seen("unused_ns", ns),
                None => step,
            });
            steps.add(output(&target, known.port.0, looked));
        }
        (None, Some(known)) => {
            let why = format!(
                "{target} is at {}, and what {peer} sends goes to no other host",
                place(known)
            );
            steps.add(Step::new("chip", Verdict::MovedAway, why));
        }
        (None, None) => {
            let why = format!("nobody claims {target} here: `unresolved`");
            steps.add(Step::new("chip", Verdict::DestinationUnknown, why));
        }
    }
    steps.0
}

fn decap(facts: &Facts, looked: &Looked) -> (Step, String) {
    let vni = facts.frame.vni;
    let Some(peer) = &facts.peer else {
        let why = "the sender's host is no peer of this one".to_owned();
        return (Step::new("decap", Verdict::UnknownVtep, why), String::new());
    };
    let name = peer.name.clone();
    if facts.vnet.is_none() || !peer.has_network {
        let whose = if facts.vnet.is_none() { "this host" } else { &name };
        let why = format!("{whose} does not have VNI {vni}, as this host is configured");
        return (Step::new("decap", Verdict::UnknownVni, why), name);
    }
    if let Some(step) = underlay_of(looked).and_then(|port| broken("decap", port)) {
        return (step, name);
    }
    let why = format!("VNI {vni} is accepted from {} of {name}", peer.vtep);
    let mut step = Step::new("decap", Verdict::Accepted, why);
    if let Some(look) = tunnel_of(looked, peer) {
        step = step.seen("rx_frames", look.row.rx_frames);
        if let Some(frames) = look.decap_frames {
            step = step.seen("decap_frames", frames);
        }
    }
    let mut drops: BTreeMap<String, u64> = BTreeMap::new();
    for row in underlay_of(looked).iter().flat_map(|port| &port.drops) {
        *drops.entry(format!("drops.{}", row.reason)).or_default() += row.frames;
    }
    step.seen.extend(drops);
    (step, name)
}

#[cfg(test)]
mod tests;
