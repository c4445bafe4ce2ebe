//! Ports that are added and deleted while the process runs.
//!
//! ```text
//!   conversation: plan, open the device ── Ask::Add ──▶ worker: attach, watch, bind
//!                 forget it             ── Ask::Del ──▶ worker: detach, close the device
//! ```
//!
//! Slow system calls run in the thread of the conversation that asked; the worker stops for a few
//! table entries only. One port at a time comes or goes. Control remembers the ports that were
//! added, and adds them again after a restart of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_api::port::{self, Deleted, NewPort};
use sluice_base::PortId;
use sluice_ports::Port;
use sluice_switch::{AttachError, PortConfig};

use super::answer::Names;
use super::taps::Taps;
use super::worker::WorkerRequest;
use super::{WorkerHandle, attach};
use crate::config::{self, BoundTo, Plan};
use crate::ipc::protocol::Done;

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

/// The ports that were added, by name.
type Added = BTreeMap<String, (NewPort, PortId)>;

/// Adds and deletes ports.
pub(super) struct Ports {
    plan: Plan,
    taps: Arc<Taps>,
    added: Mutex<Added>,
}

impl Ports {
    pub(super) const fn new(plan: Plan, taps: Arc<Taps>) -> Self {
        Self { plan, taps, added: Mutex::new(BTreeMap::new()) }
    }

    /// Adds a port. A port that is there already, with its device, is reported again.
    pub(super) fn add(
        &self,
        names: &Names,
        asker: &WorkerHandle,
        new: &NewPort,
    ) -> Result<port::Added, String> {
        self.add_or_leave(names, asker, new).map_err(|refused| {
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
        names: &Names,
        asker: &WorkerHandle,
        new: &NewPort,
    ) -> Result<port::Added, Refused> {
        let mut added = self.added();
        let name = new.name.clone().unwrap_or_default();
        let wanted = config::plan_port(&self.plan, &[], new)?;
        if let Some((known, id)) = added.get(&name) {
            if asker.answer(|reply| WorkerRequest::IsOpen(*id, reply))? {
                if known != new {
                    return Err(format!("there is another port `{name}`; delete it first").into());
                }
                return Ok(config::added_answer(new, &wanted, *id));
            }
            // The device went away; open it anew.
            asker.answer(|reply| WorkerRequest::Del(*id, reply))?;
            added.remove(&name);
        }
        let port = attach::open(&mut attach::Shared::default(), &self.taps, &wanted.plan)
            .map_err(|error| error.to_string())?;
        let (config, bound) = (wanted.switch.clone(), wanted.bound.clone());
        let mut coming = Box::new(PendingPort { name: name.clone(), port, config, bound });
        let until = Instant::now() + PLACE_WAIT;
        let id = loop {
            match asker.answer(|reply| WorkerRequest::Add(coming, reply))? {
                Ok(id) => break id,
                Err((Some(back), _)) if Instant::now() < until => coming = back,
                Err((_, error)) => return Err(Refused { error, is_open: true }),
            }
            std::thread::sleep(PLACE_RETRY);
        };
        names.add(id, &wanted.plan);
        added.insert(name, (new.clone(), id));
        Ok(config::added_answer(new, &wanted, id))
    }

    /// Returns the ports that were added, in the order of their numbers.
    pub(super) fn list(&self) -> Vec<NewPort> {
        let added = self.added();
        let mut list: Vec<&(NewPort, PortId)> = added.values().collect();
        list.sort_unstable_by_key(|(_, id)| *id);
        list.into_iter().map(|(new, _)| new.clone()).collect()
    }

    /// Deletes the added ports that control does not know, and the remains of an earlier process.
    pub(super) fn tidy(&self, asker: &WorkerHandle, known: &[String]) -> Result<Done, String> {
        let mut added = self.added();
        let others: Vec<String> =
            added.keys().filter(|name| !known.contains(name)).cloned().collect();
        for name in others {
            self.delete_one(&mut added, asker, &name)?;
        }
        self.taps.tidy();
        Ok(Done {})
    }

    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes a port that was added, with its device.
    pub(super) fn delete(&self, asker: &WorkerHandle, name: &str) -> Result<Deleted, String> {
        self.delete_one(&mut self.added(), asker, name)
    }

    fn delete_one(
        &self,
        added: &mut Added,
        asker: &WorkerHandle,
        name: &str,
    ) -> Result<Deleted, String> {
        let (_, id) = added.get(name).ok_or_else(|| format!("no port `{name}` was added"))?;
        let frames = asker.answer(|reply| WorkerRequest::Del(*id, reply))?;
        // The kernel takes time to delete a device; no worker waits for it.
        self.taps.delete(name);
        added.remove(name);
        Ok(Deleted { name: name.to_owned(), frames })
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
