//! The ports of this host in the control plane.

use sluice_base::{Nanos, PortId};
use sluice_control::directory::PortRule;
use sluice_control::plane::{BindError, Plane};
use sluice_control::vport::Key;

use super::member::Member;
use crate::config::{Bound, LocalPort};
use crate::registry::{Entry, Registry};
use crate::sys::log::say;

/// A port that the plane has.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) local: LocalPort,
    /// Endpoints that are bound to it.
    pub(super) bound: Vec<Bound>,
}

impl Entry for Port {
    fn name(&self) -> &str {
        &self.local.name
    }
}

/// The ports that the plane has.
pub(super) type Ports = Registry<Port>;

/// Binds an endpoint in the plane.
fn bind(plane: &mut Plane, now: Nanos, bound: &Bound) -> Result<(), BindError> {
    let key = Key { vni: bound.vni, mac: bound.mac };
    plane.take(now, bound.port, key, bound.ips.iter().copied().collect(), bound.taken)
}

impl Member {
    /// Adds the ports of the configuration.
    pub(super) fn add_planned(&mut self, now: Nanos) {
        for (id, port) in self.plan.ports.clone() {
            self.insert_port(now, id, port);
        }
    }

    /// Binds the endpoints of the configuration.
    pub(super) fn bind_planned(&mut self, now: Nanos) {
        for bound in &self.plan.bound {
            if let Err(error) = bind(&mut self.plane, now, bound) {
                say!(warn: "{}: {error}", bound.mac);
            }
            if let Some(port) = self.ports.get_mut(bound.port) {
                port.bound.push(bound.clone());
            }
        }
    }

    /// Adds a port whose name and number no other one has.
    fn insert_port(&mut self, now: Nanos, id: PortId, local: LocalPort) {
        if let Some(vni) = self.plan.vni(local.vnet) {
            let rule = match local.is_bound {
                true => PortRule::Bound,
                false => PortRule::Learn { quota: self.plan.learn_max, sticky: false },
            };
            self.plane.add_port(now, id, vni, rule);
            self.plane.allow(now, id, &local.allowed);
        }
        // Nobody knows the namespace to which a device is given away.
        if let Some(tap) = local.tap.as_ref().filter(|tap| !tap.is_given_away) {
            self.taps.add(id, tap);
        }
        self.ports.insert(id, Port { local, bound: Vec::new() });
    }

    /// Takes over the policy of a port that is there. Returns true if nothing else of it differs.
    pub(super) fn refresh_port(&mut self, now: Nanos, id: PortId, local: &LocalPort) -> bool {
        let Some(port) = self.ports.get_mut(id) else { return false };
        let (policy, allowed) = (port.local.policy.clone(), port.local.allowed.clone());
        if port.local != (LocalPort { policy, allowed, ..local.clone() }) {
            return false;
        }
        if port.local.allowed != local.allowed {
            self.plane.allow(now, id, &local.allowed);
        }
        port.local.clone_from(local);
        true
    }

    /// Adds a port. An earlier port of its name, or of its number after its device went away, is
    /// gone. A port that is known unchanged but for its policy is left alone, as after a restart of
    /// data that gave it the same number.
    pub(super) fn add_port(
        &mut self,
        now: Nanos,
        id: PortId,
        local: LocalPort,
        bound: Option<Bound>,
    ) -> Result<(), String> {
        if !self.refresh_port(now, id, &local) {
            self.del_port(now, &local.name);
            self.remove_port(now, id);
            self.insert_port(now, id, local);
        }
        if let Some(port) = self.ports.get_mut(id) {
            port.bound = bound.iter().cloned().collect();
        }
        let Some(bound) = bound else { return Ok(()) };
        bind(&mut self.plane, now, &bound)
            .map_err(|error| format!("{} cannot be bound: {error}", bound.mac))
    }

    /// Deletes the port of this name.
    pub(super) fn del_port(&mut self, now: Nanos, name: &str) {
        if let Some((id, _)) = self.ports.named(name) {
            self.remove_port(now, id);
        }
    }

    /// Removes the port of this number, if there is one.
    fn remove_port(&mut self, now: Nanos, id: PortId) {
        if self.ports.remove(id).is_some() {
            self.taps.remove(id);
            self.plane.remove_port(now, id);
        }
    }
}
