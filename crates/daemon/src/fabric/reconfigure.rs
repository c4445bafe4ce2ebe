//! Changes of this host's plan while it runs: members and networks come and go, and sessions with
//! members that stay go on.
//!
//! ```text
//!   check the whole plan ──> take away, by the old plan ──> outputs ──> new plan ──> add
//! ```
//!
//! | what changes | what happens |
//! |---|---|
//! | a member is new | it is connected to, or its connection is accepted |
//! | a member is gone, or has another name | it hears why; its connection, keys and claims go |
//! | a member's address | its connection is made anew, its claims stay |
//! | a member's networks | its claims count in these |
//! | networks, quotas, rates, thresholds | take effect |
//! | what [`fixed`] names | nothing: the plan is refused |
//!
//! Ports come and go by [`Fabric::add_port`] and [`Fabric::del_port`].

use std::collections::BTreeSet;

use sluice_base::Nanos;
use sluice_control::directory::PortRule;
use sluice_control::plane::{Config, Kind};

use super::member::{Member, MemberRequest};
use super::{Fabric, bound};
use crate::config::{FabricPlan, HostPlan};
use crate::sys::log::say;

impl Fabric {
    /// Takes over a plan: the whole new plan of this host. Returns when its members, networks and
    /// limits count; a session with a member that stays is not broken by it.
    ///
    /// **Order.** The data process is told of a network or a tunnel *before* a plan that adds it,
    /// and of its end *after* the plan without it. Between the two the numbers of both processes
    /// differ by these networks and tunnels only: a number keeps its meaning for as long as either
    /// process has it. An event of data with a number that the plan does not have is ignored.
    /// Commands about what the plan has not any more are not sent, so that data itself drops the
    /// entries of a network or a tunnel that it removes.
    ///
    /// # Errors
    /// The plan changes what needs a restart, contradicts itself, or takes a network away from a
    /// port. Nothing has changed then.
    pub(crate) fn reconfigure(&self, plan: &FabricPlan) -> Result<(), String> {
        let plan = Box::new(plan.clone());
        self.wait(|reply| MemberRequest::Reconfigure(plan, reply))?
    }
}

/// Returns the setting of a plan that a running host cannot change, if it differs.
fn fixed(old: &FabricPlan, new: &FabricPlan) -> Option<&'static str> {
    let settings = [
        ("the name of the fabric", old.fabric != new.fabric),
        ("the number of this host", old.own != new.own),
        ("the name of this host", old.name != new.name),
        ("the address of this host", old.listen != new.listen),
        ("the folder of the certificates", old.certificates != new.certificates),
        ("the largest number of flows", old.chip_flows != new.chip_flows),
        ("the number of workers", old.workers.count != new.workers.count),
    ];
    settings.into_iter().find(|(_, differs)| *differs).map(|(name, _)| name)
}

/// Checks that a plan does not contradict itself.
fn check(plan: &FabricPlan) -> Result<(), String> {
    let (mut ids, mut names, mut vnis) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    ids.insert(plan.own);
    names.insert(plan.name.as_str());
    for host in &plan.hosts {
        if !ids.insert(host.host) {
            return Err(format!("{}: host {} is there twice", host.name, host.host));
        }
        if !names.insert(&host.name) {
            return Err(format!("two hosts have the name {}", host.name));
        }
    }
    if let Some((vni, name)) = plan.vnets.iter().find(|(vni, _)| !vnis.insert(*vni)) {
        return Err(format!("{name}: VNI {vni} is there twice"));
    }
    if plan.moves.freeze < plan.moves.window {
        return Err("`freeze_s` is less than `moves_window_s`; make it as long at least".to_owned());
    }
    Ok(())
}

/// Returns true if two entries of a host are of one and the same: same number, name and kind.
fn is_same(one: &HostPlan, other: &HostPlan) -> bool {
    one.host == other.host && one.name == other.name && one.at.is_some() == other.at.is_some()
}

/// Returns the hosts of a plan that another one does not have.
fn missing<'a>(of: &'a FabricPlan, there: &FabricPlan) -> impl Iterator<Item = &'a HostPlan> {
    of.hosts.iter().filter(|host| !there.hosts.iter().any(|other| is_same(host, other)))
}

impl Member {
    /// Takes over a plan.
    pub(super) fn reconfigure(&mut self, now: Nanos, plan: FabricPlan) -> Result<(), String> {
        if let Some(name) = fixed(&self.plan, &plan) {
            return Err(format!("{name} changes when the daemon of this host is restarted"));
        }
        check(&plan)?;
        self.check_ports(&plan)?;
        let gone: Vec<HostPlan> = missing(&self.plan, &plan).cloned().collect();
        for host in &gone {
            self.expel(now, host);
        }
        let stay: BTreeSet<_> = plan.vnets.iter().map(|vnet| vnet.0).collect();
        let vnets = self.plan.vnets.iter().map(|vnet| vnet.0);
        let leave: BTreeSet<_> = vnets.filter(|vni| !stay.contains(vni)).collect();
        if !leave.is_empty() {
            self.plane.remove_vnets(now, &leave);
        }
        // Names and numbers of what is gone are those of the old plan.
        self.apply_outputs();
        let old = std::mem::replace(&mut self.plan, plan);
        self.add_new(now, &old);
        self.set_limits(now, &old);
        self.follow_evpn_plan(Some(&old));
        for (id, local) in self.plan.ports.clone() {
            // A port of the file that has gone, or differs otherwise, waits for a restart.
            self.refresh_port(now, id, &local);
        }
        if let Some(data) = &mut self.data {
            data.recall(now, &self.plan, &mut self.plane);
        }
        self.handle.agreement.reconfigure(&self.plan);
        Ok(())
    }

    /// Checks that every port keeps its network.
    fn check_ports(&self, plan: &FabricPlan) -> Result<(), String> {
        let lost = |vnet| self.plan.vni(vnet) != plan.vni(vnet);
        match self.ports.there().find(|(_, port)| lost(port.local.vnet)) {
            None => Ok(()),
            Some((_, port)) => Err(format!(
                "port {} is in a network that is to go; delete the port first",
                port.local.name
            )),
        }
    }

    /// Removes a host, and tells it why its connection ends.
    fn expel(&mut self, now: Nanos, host: &HostPlan) {
        let id = host.host;
        self.plane.dismiss(now, id);
        self.end_connection(now, id);
        self.wires.forget(id);
        self.plane.remove_host(now, id);
        self.handle.trust.forget(&host.name);
        if host.at.is_some() {
            say!("{}: it is no member any more", host.name);
        }
    }

    /// Adds the networks and hosts that are new, and follows the changes of others.
    fn add_new(&mut self, now: Nanos, old: &FabricPlan) {
        let known: BTreeSet<_> = old.vnets.iter().map(|vnet| vnet.0).collect();
        for (vni, _) in self.plan.vnets.iter().filter(|vnet| !known.contains(&vnet.0)) {
            self.plane.add_vnet(*vni);
        }
        for host in &self.plan.hosts {
            let before = old.hosts.iter().find(|before| is_same(before, host));
            if before == Some(host) {
                continue;
            }
            let kind = if host.at.is_some() { Kind::Member } else { Kind::Foreign };
            self.plane.add_host(now, host.host, &host.vnets, kind);
            if before.is_some_and(|before| before.at != host.at) {
                // The member has left the old address, or is about to.
                self.wires.close(host.host);
                self.plane.disconnected(now, host.host);
            }
        }
    }

    /// Sets limits and quotas.
    fn set_limits(&mut self, now: Nanos, old: &FabricPlan) {
        let plan = &self.plan;
        let mut config = Config::new(plan.own, 1, plan.fabric, plan.ports_max);
        bound(plan, &mut config);
        self.plane.reconfigure(&config);
        if plan.learn_max == old.learn_max {
            return;
        }
        let rule = PortRule::Learn { quota: plan.learn_max, sticky: false };
        for (id, port) in self.ports.there().filter(|(_, port)| !port.local.is_bound) {
            if let Some(vni) = plan.vni(port.local.vnet) {
                self.plane.add_port(now, id, vni, rule);
            }
        }
    }
}

#[cfg(test)]
mod tests;
