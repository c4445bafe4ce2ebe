//! The ports of this process: those of the configuration, the links between its workers, and those
//! that were added. A port that was deleted keeps its number until another one gets it, since its
//! counters can be read until then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_api::port::{AllowedIp, NewPort};
use sluice_base::PortId;

use crate::config::{self, Plan, PortPlan};
use crate::registry::{Entry, Registry};

/// A port.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) vnet: String,
    pub(super) policy_lacks: Option<&'static str>,
    pub(super) allowed: Vec<AllowedIp>,
    /// The request by which it was added, if it was.
    added: Option<NewPort>,
    is_there: bool,
}

impl Entry for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_there(&self) -> bool {
        self.is_there
    }
}

impl Port {
    fn of(port: &PortPlan, added: Option<NewPort>) -> Self {
        Self {
            name: port.name.clone(),
            vnet: port.vnet.clone(),
            policy_lacks: port.policy_lacks,
            allowed: port.allowed.clone(),
            added,
            is_there: true,
        }
    }

    /// Returns a port for a test.
    #[cfg(test)]
    pub(super) fn named(name: &str, vnet: &str) -> Self {
        Self { name: name.to_owned(), vnet: vnet.to_owned(), ..Self::of_link(0) }
    }

    fn of_link(worker: usize) -> Self {
        Self {
            name: format!("from worker {worker}"),
            vnet: String::new(),
            policy_lacks: None,
            allowed: Vec::new(),
            added: None,
            is_there: true,
        }
    }
}

/// The registry, shared by several threads.
#[derive(Clone, Debug)]
pub(super) struct Ports(Arc<Mutex<Registry<Port>>>);

impl Ports {
    /// Takes the ports of a plan, and with several workers the links between them.
    pub(super) fn new(plan: &Plan) -> Self {
        let ports = plan.ports.iter().map(|port| Port::of(port, None));
        let links = if plan.workers.count > 1 { plan.workers.count } else { 0 };
        let all = ports.chain((0..links).map(Port::of_link)).enumerate();
        let all = all.map(|(at, port)| (PortId::from_index(at), port));
        Self(Arc::new(Mutex::new(all.collect())))
    }

    /// Locks the registry for reading several entries.
    pub(super) fn lock(&self) -> MutexGuard<'_, Registry<Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the port that has a number, or had it last.
    pub(super) fn name(&self, id: PortId) -> Option<String> {
        Some(self.lock().get(id)?.name.clone())
    }

    /// Returns the numbers of all ports that may be there.
    pub(super) fn ids(&self) -> Vec<PortId> {
        self.lock().ids().collect()
    }

    /// Returns the number of an added port, and the request by which it was added.
    pub(super) fn added(&self, name: &str) -> Option<(PortId, NewPort)> {
        let ports = self.lock();
        let (id, port) = ports.named(name)?;
        Some((id, port.added.clone()?))
    }

    /// Returns the requests by which ports were added, in the order of their numbers.
    pub(super) fn all_added(&self) -> Vec<NewPort> {
        self.lock().there().filter_map(|(_, port)| port.added.clone()).collect()
    }

    /// Returns the numbers of the added ports, and the requests by which they were added.
    pub(super) fn numbered_added(&self) -> Vec<(PortId, NewPort)> {
        self.lock().there().filter_map(|(id, port)| Some((id, port.added.clone()?))).collect()
    }

    /// Takes the addresses over that each port may share by another plan.
    pub(super) fn follow_plan(&self, plan: &Plan) {
        let mut ports = self.lock();
        for id in ports.ids().collect::<Vec<_>>() {
            let Some(port) = ports.get_mut(id).filter(|port| port.is_there) else { continue };
            let planned = plan.ports.iter().find(|planned| planned.name == port.name);
            match (&port.added, planned) {
                (Some(new), _) => port.allowed = config::completed(&plan.config, new).allowed,
                (None, Some(planned)) => port.allowed.clone_from(&planned.allowed),
                (None, None) => {}
            }
        }
    }

    /// Returns the names of added ports that are not among the wanted ones.
    pub(super) fn unwanted(&self, wanted: &[String]) -> Vec<String> {
        self.lock().unwanted(wanted, |port| port.added.is_some())
    }

    /// Notes that a port was added.
    pub(super) fn add(&self, id: PortId, port: &PortPlan, new: &NewPort) {
        self.lock().insert(id, Port::of(port, Some(new.clone())));
    }

    /// Notes that a port was deleted.
    pub(super) fn delete(&self, id: PortId) {
        if let Some(port) = self.lock().get_mut(id) {
            port.is_there = false;
        }
    }
}
