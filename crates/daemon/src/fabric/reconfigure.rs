//! A changed configuration for the running member.
//!
//! Networks, the networks of hosts that stay, and hosts that are no members change while the thread
//! runs. Members that come or go need connections and certificates: they are refused by name, and
//! take effect when control is started anew.

use std::collections::BTreeSet;

use sluice_base::{HostId, Nanos};
use sluice_control::plane::Kind;

use super::Fabric;
use super::member::{Member, MemberRequest};
use crate::config::{FabricPlan, HostPlan};

impl Fabric {
    /// Takes over the networks and hosts of another plan. The data process has them already.
    ///
    /// # Errors
    /// What takes effect only when control is started anew; the networks are taken over.
    pub(crate) fn reconfigure(&self, plan: &FabricPlan) -> Result<(), String> {
        let plan = Box::new(plan.clone());
        self.wait(|reply| MemberRequest::Reconfigure(plan, reply))?
    }
}

impl Member {
    pub(super) fn reconfigure(&mut self, now: Nanos, mut plan: FabricPlan) -> Result<(), String> {
        let old = self.plan.clone();
        for (vni, _) in old.vnets.iter().filter(|(vni, _)| plan.vnet(*vni).is_none()) {
            self.plane.remove_vnet(now, *vni);
        }
        for (vni, _) in plan.vnets.iter().filter(|(vni, _)| old.vnet(*vni).is_none()) {
            self.plane.add_vnet(*vni);
        }
        for host in old.hosts.iter().filter(|host| host.at.is_none()) {
            if !plan.hosts.contains(host) {
                self.plane.remove_host(now, host.host);
            }
        }
        let members = |plan: &FabricPlan| -> BTreeSet<HostId> {
            let members = plan.hosts.iter().filter(|host| host.at.is_some());
            members.map(|host| host.host).collect()
        };
        let (before, after) = (members(&old), members(&plan));
        for host in &plan.hosts {
            let kind = if host.at.is_some() { Kind::Member } else { Kind::Foreign };
            let is_known = kind == Kind::Foreign || before.contains(&host.host);
            if is_known && !old.hosts.contains(host) {
                self.plane.add_host(now, host.host, &host.vnets, kind);
            }
        }
        let differs = |host: &&HostPlan| {
            host.at.is_some() && before.contains(&host.host) != after.contains(&host.host)
        };
        let names = old.hosts.iter().chain(&plan.hosts).filter(differs);
        let names: Vec<&str> = names.map(|host| host.name.as_str()).collect();
        let refusal = (!names.is_empty()).then(|| {
            format!("members {} come or go when control is started anew", names.join(", "))
        });
        keep_members(&old, &mut plan);
        self.plan = plan;
        refusal.map_or(Ok(()), Err)
    }
}

/// Keeps the members of a plan: those that come are left out, and those that go stay.
fn keep_members(old: &FabricPlan, plan: &mut FabricPlan) {
    let is_member = |host: &HostPlan| host.at.is_some();
    let known = |plan: &FabricPlan, host: &HostPlan| plan.hosts.iter().any(|h| h.host == host.host);
    let (mut hosts, mut ids) = (Vec::new(), Vec::new());
    for (host, id) in plan.hosts.iter().zip(&plan.tunnel_ids) {
        if !is_member(host) || known(old, host) {
            hosts.push(host.clone());
            ids.push(*id);
        }
    }
    for (host, id) in old.hosts.iter().zip(&old.tunnel_ids) {
        if is_member(host) && !known(plan, host) {
            hosts.push(host.clone());
            ids.push(*id);
        }
    }
    (plan.hosts, plan.tunnel_ids) = (hosts, ids);
}
