//! Networks and peers that come and go in a running data process: the changes from one plan to
//! another, in an order in which each can be undone.
//!
//! ```text
//!   add what needs no name or address of something else
//!     ── set the networks' peers and MTU ── set classes and ports    an error up to here: undone
//!     ── remove ── add what takes a name or address over
//! ```
//!
//! All workers carry out each change before any of them gets the next one, so that no frame that is
//! handed off names a place that its receiver does not have yet.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::port::NewPort;
use sluice_base::{Mac, PortId, Priority, TunnelId, VnetId};
use sluice_switch::{ClassConfig, Destination, PortConfig, PortValues, TunnelConfig, VnetConfig};

use crate::config::{self, BoundTo, Plan};

/// One change of a switch.
#[derive(Clone, Debug)]
pub(super) enum PlaceChange {
    AddTunnel(TunnelId, TunnelConfig),
    RemoveTunnel(TunnelId),
    AddVnet(VnetId, VnetConfig),
    RemoveVnet(VnetId),
    /// MTU and tunnels of a network.
    SetVnet(VnetId, VnetConfig),
    SetNextHop(TunnelId, Option<Mac>),
    SetService(Priority, ClassConfig),
    /// Values of a port, by its policy.
    SetPort(PortId, PortValues),
}

/// A change, and what takes it back.
#[derive(Clone, Debug)]
pub(super) struct Undoable {
    pub(super) change: PlaceChange,
    pub(super) undo: PlaceChange,
}

/// Networks and tunnels of a plan, by number.
struct Numbered {
    vnets: BTreeMap<VnetId, VnetConfig>,
    tunnels: BTreeMap<TunnelId, TunnelConfig>,
}

impl Numbered {
    fn of(plan: &Plan) -> Self {
        let vnets = plan.config.vnets.iter().filter_map(|vnet| plan.numbers.vnet(&vnet.name));
        let tunnels = plan.config.peers.iter().filter_map(|peer| plan.numbers.tunnel(&peer.name));
        // A switch's lists are in the order of numbers.
        let (mut vnets, mut tunnels) = (vnets.collect::<Vec<_>>(), tunnels.collect::<Vec<_>>());
        vnets.sort_unstable();
        tunnels.sort_unstable();
        Self {
            vnets: vnets.into_iter().zip(plan.switch.vnets.iter().cloned()).collect(),
            tunnels: tunnels.into_iter().zip(plan.switch.tunnels.iter().copied()).collect(),
        }
    }
}

/// Returns the changes from one plan to another, which keeps the numbers of what stays. `added` are
/// the ports that were added at run time.
pub(super) fn changes(now: &Plan, next: &Plan, added: &[(PortId, NewPort)]) -> Vec<Undoable> {
    let (old, mut new) = (Numbered::of(now), Numbered::of(next));
    keep_default_mtus(now, next, (&old, &mut new));
    let mut all = Vec::new();
    let mut add = |change, undo| all.push(Undoable { change, undo });
    let gone_tunnels: Vec<_> =
        old.tunnels.iter().filter(|(id, _)| !new.tunnels.contains_key(id)).collect();
    let gone_vnets: Vec<_> =
        old.vnets.iter().filter(|(id, _)| !new.vnets.contains_key(id)).collect();
    let (late_tunnels, tunnels): (Vec<_>, Vec<_>) = new
        .tunnels
        .iter()
        .filter(|(id, _)| !old.tunnels.contains_key(id))
        .partition(|(_, tunnel)| gone_tunnels.iter().any(|(_, o)| o.remote == tunnel.remote));
    let come_vnets = || new.vnets.iter().filter(|(id, _)| !old.vnets.contains_key(id));
    // A network of a tunnel that comes late comes late, too.
    let is_late = |vnet: &VnetConfig| {
        vnet.tunnels.iter().any(|tunnel| late_tunnels.iter().any(|(id, _)| *id == tunnel))
    };
    let gone_vnis: BTreeSet<_> = gone_vnets.iter().filter_map(|(_, old)| old.vni).collect();
    let takes_over = |vnet: &VnetConfig| vnet.vni.is_some_and(|vni| gone_vnis.contains(&vni));
    for (id, tunnel) in tunnels {
        add(PlaceChange::AddTunnel(*id, *tunnel), PlaceChange::RemoveTunnel(*id));
    }
    let kept = || new.vnets.iter().filter_map(|(id, vnet)| Some((*id, vnet, old.vnets.get(id)?)));
    let is_changed = |a: &VnetConfig, b: &VnetConfig| a.mtu != b.mtu || a.tunnels != b.tunnels;
    for late in [false, true] {
        if late {
            for (id, vnet) in &gone_vnets {
                let undo = PlaceChange::AddVnet(**id, (*vnet).clone());
                add(PlaceChange::RemoveVnet(**id), undo);
            }
            for (id, tunnel) in &gone_tunnels {
                add(PlaceChange::RemoveTunnel(**id), PlaceChange::AddTunnel(**id, **tunnel));
            }
            for (id, tunnel) in &late_tunnels {
                add(PlaceChange::AddTunnel(**id, **tunnel), PlaceChange::RemoveTunnel(**id));
            }
        }
        for (id, vnet) in come_vnets() {
            if late == (is_late(vnet) || takes_over(vnet)) {
                add(PlaceChange::AddVnet(*id, vnet.clone()), PlaceChange::RemoveVnet(*id));
            }
        }
        for (id, vnet, was) in kept().filter(|(_, vnet, was)| is_changed(vnet, was)) {
            if late == is_late(vnet) {
                let undo = PlaceChange::SetVnet(id, was.clone());
                add(PlaceChange::SetVnet(id, vnet.clone()), undo);
            }
        }
    }
    for (id, tunnel) in &new.tunnels {
        if let Some(was) = old.tunnels.get(id).filter(|was| was.next_hop != tunnel.next_hop) {
            let undo = PlaceChange::SetNextHop(*id, was.next_hop);
            add(PlaceChange::SetNextHop(*id, tunnel.next_hop), undo);
        }
    }
    all.extend(class_changes(now, next));
    all.extend(port_changes(now, next, added));
    all
}

/// Returns the changes of the service of priorities.
fn class_changes(now: &Plan, next: &Plan) -> Vec<Undoable> {
    let changes = Priority::all().filter_map(|priority| {
        let at = priority.index();
        let (was, is) = (now.switch.classes[at], next.switch.classes[at]);
        let set = |class| PlaceChange::SetService(priority, class);
        (was.service != is.service).then(|| Undoable { change: set(is), undo: set(was) })
    });
    changes.collect()
}

/// Returns the changes of the values of ports.
fn port_changes(now: &Plan, next: &Plan, added: &[(PortId, NewPort)]) -> Vec<Undoable> {
    let differs =
        |new: &NewPort| config::completed(&now.config, new) != config::completed(&next.config, new);
    let added: Vec<_> = added.iter().filter(|(_, new)| differs(new)).cloned().collect();
    let (was, is) = (values_of_ports(now, &added), values_of_ports(next, &added));
    let changes = is.into_iter().filter_map(|(id, values)| {
        let before = was.get(&id).filter(|was| **was != values)?;
        let undo = PlaceChange::SetPort(id, before.clone());
        Some(Undoable { change: PlaceChange::SetPort(id, values), undo })
    });
    changes.collect()
}

/// Returns the values of the ports of the file and of those that were added.
fn values_of_ports(plan: &Plan, added: &[(PortId, NewPort)]) -> BTreeMap<PortId, PortValues> {
    let of = |port: &PortConfig, allowed| PortValues {
        rate: port.rate,
        default_priority: port.default_priority,
        allowed,
    };
    let of_file = plan.switch.ports.iter().take(plan.config.ports.len()).enumerate();
    let of_file = of_file.map(|(at, port)| {
        let id = PortId::from_index(at);
        let allowed = plan.switch.control.allowed.iter().filter(|(port, _)| *port == id);
        (id, of(port, allowed.map(|(_, prefix)| *prefix).collect()))
    });
    // A port that cannot be planned any more keeps what it has.
    let of_added = added.iter().filter_map(|(id, new)| {
        let planned = config::plan_port(plan, &[], new).ok()?;
        let allowed = planned.bound.as_ref().map_or(&[][..], BoundTo::allowed).to_vec();
        Some((*id, of(&planned.switch, allowed)))
    });
    of_file.chain(of_added).collect()
}

/// Keeps the MTU of networks whose configuration did not change: without one it comes from the
/// device of the underlay, whose MTU the switch follows by itself.
fn keep_default_mtus(now: &Plan, next: &Plan, (old, new): (&Numbered, &mut Numbered)) {
    let before: BTreeMap<&str, Option<u16>> =
        now.config.vnets.iter().map(|vnet| (vnet.name.as_str(), vnet.mtu)).collect();
    for vnet in &next.config.vnets {
        let was = before.get(vnet.name.as_str());
        let id = next.numbers.vnet(&vnet.name).filter(|_| was == Some(&vnet.mtu));
        if let Some(id) = id
            && let (Some(was), Some(is)) = (old.vnets.get(&id), new.vnets.get_mut(&id))
        {
            is.mtu = was.mtu;
        }
    }
}

/// An address with its destination.
pub(super) type Address = (VnetId, Mac, Destination);

/// Returns the addresses of a plan that lead elsewhere, or nowhere, in another one.
pub(super) fn moved_addresses(now: &Plan, next: &Plan) -> Vec<(VnetId, Mac)> {
    let after: BTreeMap<(VnetId, Mac), Destination> =
        next.addresses.iter().map(|(vnet, mac, to)| ((*vnet, *mac), *to)).collect();
    let moved =
        now.addresses.iter().filter(|(vnet, mac, to)| after.get(&(*vnet, *mac)) != Some(to));
    moved.map(|(vnet, mac, _)| (*vnet, *mac)).collect()
}

#[cfg(test)]
mod tests;
