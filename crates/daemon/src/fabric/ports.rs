//! The ports of this host in the control plane.

use sluice_base::{Nanos, PortId};
use sluice_control::directory::PortRule;
use sluice_control::plane::{BindError, Plane};
use sluice_control::vport::Key;

use super::member::Member;
use crate::config::{Bound, FabricPlan, LocalPort};

/// Adds a port to the plane.
pub(super) fn add(plan: &FabricPlan, plane: &mut Plane, now: Nanos, id: PortId, port: &LocalPort) {
    let Some(vni) = plan.vni(port.vnet) else { return };
    let rule = match port.is_bound {
        true => PortRule::Bound,
        false => PortRule::Learn { quota: plan.learn_max, sticky: false },
    };
    plane.add_port(now, id, vni, rule);
    plane.allow(id, &port.allowed);
}

/// Binds an endpoint.
pub(super) fn bind(plane: &mut Plane, now: Nanos, bound: &Bound) -> Result<(), BindError> {
    let key = Key { vni: bound.vni, mac: bound.mac };
    plane.take(now, bound.port, key, bound.ips.iter().copied().collect(), bound.taken)
}

impl Member {
    /// Adds a port. An earlier port of its name, or of its number after its device went away, is
    /// gone. A port that is known unchanged is left alone, as after a restart of data that gave it
    /// the same number.
    pub(super) fn add_port(
        &mut self,
        now: Nanos,
        id: PortId,
        port: LocalPort,
        bound: Option<&Bound>,
    ) -> Result<(), String> {
        if self.plan.ports.get(&id) != Some(&port) {
            self.del_port(now, &port.name);
            if self.plan.ports.remove(&id).is_some() {
                self.plane.remove_port(now, id);
            }
            add(&self.plan, &mut self.plane, now, id, &port);
            if let Some(tap) = &port.tap {
                self.taps.add(id, tap);
            }
            self.plan.ports.insert(id, port);
        }
        self.plan.bound.retain(|known| known.port != id);
        let Some(bound) = bound else { return Ok(()) };
        self.plan.bound.push(bound.clone());
        bind(&mut self.plane, now, bound)
            .map_err(|error| format!("{} cannot be bound: {error}", bound.mac))
    }

    /// Deletes the port of this name.
    pub(super) fn del_port(&mut self, now: Nanos, name: &str) {
        let known = self.plan.ports.iter().find(|(_, port)| port.name == name);
        if let Some(id) = known.map(|(id, _)| *id) {
            self.plan.ports.remove(&id);
            self.taps.remove(id);
            self.plan.bound.retain(|known| known.port != id);
            self.plane.remove_port(now, id);
        }
    }
}
