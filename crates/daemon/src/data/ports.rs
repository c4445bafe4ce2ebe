//! Ports that are added (`sluice port add`) and deleted while the process runs.
//!
//! ```text
//!   conversation: plan, open the device ── Ask::Add ──▶ worker: attach, watch, bind
//!                 forget it             ── Ask::Del ──▶ worker: detach, close the device
//! ```
//!
//! Slow system calls run in the thread of the conversation that asked; the worker stops for a few
//! table entries only. One port at a time comes or goes. Control remembers the ports that were
//! added, and adds them again after a restart of this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_api::port::{self, Card, Deleted, NewPort};
use sluice_base::PortId;
use sluice_ports::{Port, card};
use sluice_switch::{AttachError, PortConfig, PortValues};

use super::chip::Note;
use super::registry::Ports;
use super::taps::Taps;
use super::worker::WorkerRequest;
use super::{WorkerHandle, attach};
use crate::config::{self, BoundTo, Fingerprint, Plan};
use crate::ipc::protocol::{Done, not_added};

/// Longest time for which the frames of a deleted port may keep its place.
const PLACE_WAIT: Duration = Duration::from_secs(2);
const PLACE_RETRY: Duration = Duration::from_millis(5);

/// A port on its way to the worker.
pub(super) struct PendingPort {
    pub(super) name: String,
    pub(super) port: Box<dyn Port>,
    pub(super) config: PortConfig,
    pub(super) bound: Option<BoundTo>,
}

/// Outcome of adding a port; the port is returned if adding may be tried again.
pub(super) type AddResult = Result<PortId, (Option<Box<PendingPort>>, String)>;

/// Reason why a port was not added, and whether its device was opened.
pub(super) struct Refused {
    pub(super) error: String,
    is_open: bool,
}

impl From<String> for Refused {
    fn from(error: String) -> Self {
        Self { error, is_open: false }
    }
}

/// Adds and deletes ports.
pub(super) struct Changes {
    /// The plan that is in force.
    plan: Mutex<Arc<Plan>>,
    /// Fingerprint of the configuration that was asked for last.
    wanted: Mutex<Fingerprint>,
    taps: Arc<Taps>,
    ports: Ports,
    /// Held while a port is added or deleted: one at a time.
    turn: Mutex<()>,
}

impl Changes {
    pub(super) fn new(plan: Plan, taps: Arc<Taps>, ports: Ports) -> Self {
        let wanted = Mutex::new(plan.fingerprint);
        Self { plan: Mutex::new(Arc::new(plan)), wanted, taps, ports, turn: Mutex::new(()) }
    }

    /// Returns the plan that is in force.
    pub(super) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the fingerprint of the configuration that was asked for last.
    pub(super) fn wanted(&self) -> Fingerprint {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change of the plan: until it ends no port comes or goes.
    pub(super) fn begin(&self) -> PlanChange<'_> {
        PlanChange { changes: self, _turn: self.turn() }
    }

    /// Adds a port. A port that is there already, with its device, is reported again.
    pub(super) fn add(&self, asker: &WorkerHandle, new: &NewPort) -> Result<port::Added, String> {
        self.add_or_leave(asker, new).map_err(|refused| {
            if refused.is_open {
                self.taps.delete(new.name.as_deref().unwrap_or_default());
            }
            refused.error
        })
    }

    /// Adds a port like [`Self::add`], but leaves a device that was opened if its port cannot be
    /// added.
    pub(super) fn add_or_leave(
        &self,
        asker: &WorkerHandle,
        new: &NewPort,
    ) -> Result<port::Added, Refused> {
        let _turn = self.turn();
        let name = new.name.clone().unwrap_or_default();
        let wanted = config::plan_port(&self.plan(), &[], new)?;
        if let Some((id, known)) = self.ports.added(&name) {
            if asker.answer(|reply| WorkerRequest::IsOpen(id, reply))? {
                if known != *new {
                    self.rebind(asker, id, &known, (&wanted, new))?;
                    self.ports.add(id, &wanted.plan, new);
                }
                return Ok(config::added_answer(new, &wanted, id));
            }
            // The device went away; open it anew.
            asker.answer(|reply| WorkerRequest::Del(id, reply))?;
            self.ports.delete(id);
        }
        let port = attach::open(&mut attach::Shared::default(), &self.taps, &wanted.plan)
            .map_err(|error| error.to_string())?;
        let (config, bound) = (wanted.switch.clone(), wanted.bound.clone());
        let mut coming = Box::new(PendingPort { name, port, config, bound });
        let until = Instant::now() + PLACE_WAIT;
        let id = loop {
            match asker.answer(|reply| WorkerRequest::Add(coming, reply))? {
                Ok(id) => break id,
                Err((Some(back), _)) if Instant::now() < until => coming = back,
                Err((_, error)) => return Err(Refused { error, is_open: true }),
            }
            std::thread::sleep(PLACE_RETRY);
        };
        self.ports.add(id, &wanted.plan, new);
        if let Some(chip) = self.taps.chip()
            && let Some((vnet, device)) =
                attach::chip_port(&self.plan().config.host.name, &wanted.plan)
        {
            chip.tell(Note::Port { port: id, vnet, device, bound: wanted.bound.clone() });
        }
        Ok(config::added_answer(new, &wanted, id))
    }

    /// Gives a port that is there other addresses.
    fn rebind(
        &self,
        asker: &WorkerHandle,
        id: PortId,
        known: &NewPort,
        (wanted, new): (&config::AddedPort, &NewPort),
    ) -> Result<(), String> {
        let (name, bound) = (&wanted.local.name, wanted.bound.clone());
        let bound = bound.filter(|_| config::is_rebinding(known, new));
        let bound =
            bound.ok_or_else(|| format!("there is another port `{name}`; delete it first"))?;
        let values = PortValues {
            rate: wanted.switch.rate,
            default_priority: wanted.switch.default_priority,
            allowed: bound.allowed().to_vec(),
        };
        asker.answer(|reply| WorkerRequest::Rebind(id, Box::new((bound, values)), reply))?
    }

    /// Returns the ports that were added, in the order of their numbers.
    pub(super) fn list(&self) -> Vec<NewPort> {
        let _turn = self.turn();
        self.ports.all_added()
    }

    /// Looks at the device of an added port, in its namespace.
    pub(super) fn card(&self, name: &str) -> Result<Card, String> {
        // Not while the device is being made or deleted.
        let _turn = self.turn();
        let (_, new) = self.ports.added(name).ok_or_else(|| not_added(name))?;
        let planned = config::plan_port(&self.plan(), &[], &new)?;
        let place = planned.local.tap.ok_or_else(|| format!("port `{name}` has no device"))?;
        let card = card::look(place.netns.as_deref(), &place.device);
        Ok(config::card_answer(&place.device, &card.map_err(|error| error.to_string())?))
    }

    /// Deletes the added ports that control does not know, and the remains of an earlier process.
    pub(super) fn tidy(&self, asker: &WorkerHandle, known: &[String]) -> Result<Done, String> {
        let _turn = self.turn();
        for name in self.ports.unwanted(known) {
            self.delete_one(asker, &name)?;
        }
        self.taps.tidy();
        Ok(Done {})
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes a port that was added, with its device.
    pub(super) fn delete(&self, asker: &WorkerHandle, name: &str) -> Result<Deleted, String> {
        let _turn = self.turn();
        self.delete_one(asker, name)
    }

    fn delete_one(&self, asker: &WorkerHandle, name: &str) -> Result<Deleted, String> {
        let added = self.ports.added(name);
        let (id, _) = added.ok_or_else(|| not_added(name))?;
        let frames = asker.answer(|reply| WorkerRequest::Del(id, reply))?;
        if let Some(chip) = self.taps.chip() {
            chip.tell(Note::PortGone(id));
        }
        // The kernel takes time to delete a device; no worker waits for it.
        self.taps.delete(name);
        self.ports.delete(id);
        Ok(Deleted { name: name.to_owned(), frames })
    }
}

/// A change of the plan, while no port comes or goes.
pub(super) struct PlanChange<'a> {
    changes: &'a Changes,
    _turn: MutexGuard<'a, ()>,
}

impl PlanChange<'_> {
    /// Returns the plan that is in force.
    pub(super) fn plan(&self) -> Arc<Plan> {
        self.changes.plan()
    }

    /// Returns the ports that were added.
    pub(super) fn added(&self) -> Vec<NewPort> {
        self.changes.ports.all_added()
    }

    /// Returns the numbers of the ports that were added, and the requests by which they were.
    pub(super) fn numbered_added(&self) -> Vec<(PortId, NewPort)> {
        self.changes.ports.numbered_added()
    }

    /// Puts another plan into force, which is a part of the one that was asked for.
    pub(super) fn set_plan(&self, plan: Plan, wanted: Fingerprint) {
        self.changes.ports.follow_plan(&plan);
        let plan = Arc::new(plan);
        if let Some(chip) = self.changes.taps.chip() {
            chip.tell(Note::Plan(Arc::clone(&plan)));
        }
        *self.changes.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        *self.changes.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }
}

/// Returns the reason why a port has no place, in words.
pub(super) fn no_place(error: &AttachError) -> String {
    match error {
        AttachError::Full | AttachError::TooLarge => {
            "every place for added ports is taken; delete one, or raise `spare_ports` of `[host]`"
                .to_owned()
        }
        AttachError::Busy => {
            "frames of deleted ports still take all places; try again in a moment".to_owned()
        }
        other => format!("the switch refuses it: {other:?}"),
    }
}
