//! Ports that were added while the host runs: the list that outlives both processes.
//!
//! ```text
//!   add: file ── data opens and attaches ── fabric claims its endpoint ── answer
//!   del: fabric withdraws ── data closes ── file ── answer
//! ```
//!
//! The file comes first when a port comes and last when it goes, so that a port that is there is
//! always in it: whoever is killed in between leaves a port that the next control opens again, and
//! none that nobody knows. It lies in the directory of the host, which a restart of the machine
//! empties, as it takes the namespaces.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use sluice_api::port::{Added, Deleted, NewPort};
use sluice_base::PortId;

use super::connect;
use super::kept::Kept;
use crate::config::{self, Plan};
use crate::fabric::Fabric;
use crate::log::say;
use crate::protocol::{self, Done, Request};
use crate::run_dir;

/// How long data may take to open a device and attach it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The ports that were added.
#[derive(Debug)]
pub(super) struct AddedPorts {
    plan: Plan,
    fabric: Option<Fabric>,
    kept: Arc<Kept>,
    /// Held for as long as a port comes or goes: one at a time.
    list: Mutex<Vec<Listed>>,
}

#[derive(Clone, Debug)]
struct Listed {
    new: NewPort,
    /// Whether data has it. One whose namespace is gone does not come back.
    is_open: bool,
}

impl AddedPorts {
    /// Those that an earlier control process kept.
    pub(super) fn load(
        plan: &Plan,
        fabric: Option<Fabric>,
        kept: Arc<Kept>,
    ) -> anyhow::Result<Self> {
        let path = plan.run_dir.join(run_dir::PORTS_FILE);
        let list: Vec<NewPort> = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{} is not what this program wrote; remove it to go on without the ports that \
                     were added",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        let list = list.into_iter().map(|new| Listed { new, is_open: false }).collect();
        Ok(Self { plan: plan.clone(), fabric, kept, list: Mutex::new(list) })
    }

    /// Opens again what data does not have, after a restart of it or of control.
    pub(super) fn restore(&self) {
        let mut list = self.list();
        let mut silent = false;
        for at in 0..list.len() {
            let done = self.open(&others(&list, at), &list[at].new);
            list[at].is_open = done.is_ok();
            if let Err(error) = done {
                silent |= matches!(error, Asked::Silent(_));
                let name = list[at].new.name.as_deref().unwrap_or_default();
                say!("port {name} does not come back: {}", error.words());
            }
        }
        // What it says nothing of may still be wanted.
        if !silent && let Err(error) = self.ask::<Done>(&Request::Tidy) {
            say!("devices of ports that are gone may be left: {}", error.words());
        }
        self.kept.borrow(&[]);
    }

    /// Adds a port. One that is there as it is wanted is told again, so that whoever got no answer
    /// may ask again.
    pub(super) fn add(&self, new: &NewPort) -> Result<Added, String> {
        let new = config::complete(&self.plan, new)?;
        let mut list = self.list();
        if let Some(at) = list.iter().position(|kept| kept.new.name == new.name) {
            if list[at].new == new {
                let done = self.open(&others(&list, at), &new);
                list[at].is_open |= done.is_ok();
                self.kept.borrow(new.name.as_slice());
                return done.map_err(Asked::words);
            }
            if !list[at].is_open {
                // Its place went away while no control was there to be told.
                list.remove(at);
            }
        }
        let last = list.len();
        config::plan_port(&self.plan, &others(&list, last), &new)?;
        list.push(Listed { new: new.clone(), is_open: true });
        let opened = || self.open(&others(&list, last), &new).map_err(Asked::words);
        let done = self.keep(&list).and_then(|()| opened());
        if done.is_err() {
            list.pop();
            self.keep(&list)?;
        } else {
            self.kept.borrow(new.name.as_slice());
        }
        done
    }

    /// Deletes a port.
    pub(super) fn delete(&self, name: &str) -> Result<Deleted, String> {
        let mut list = self.list();
        let at = list.iter().position(|kept| kept.new.name.as_deref() == Some(name));
        let Some(at) = at else { return Err(self.unknown(&list, name)) };
        if let Some(fabric) = &self.fabric {
            fabric.del_port(name)?;
        }
        self.kept.forget(name);
        let deleted = self.ask(&Request::Del(name.to_owned()));
        // A data process that does not have it has lost it already.
        let deleted = match deleted {
            Ok(deleted) => deleted,
            Err(Asked::Refused(_)) => Deleted { name: name.to_owned(), frames: 0 },
            Err(Asked::Silent(error)) => return Err(error),
        };
        list.remove(at);
        self.keep(&list)?;
        Ok(deleted)
    }

    fn unknown(&self, list: &[Listed], name: &str) -> String {
        if self.plan.config.ports.iter().any(|port| port.name == name) {
            return format!("port `{name}` is in the configuration file; take it out there");
        }
        let names: Vec<&str> = list.iter().filter_map(|kept| kept.new.name.as_deref()).collect();
        match names.is_empty() {
            true => format!("there is no port `{name}`: none was added"),
            false => format!("there is no port `{name}`; added were {}", names.join(", ")),
        }
    }

    /// Has data open it, and tells the fabric.
    fn open(&self, others: &[NewPort], new: &NewPort) -> Result<Added, Asked> {
        let planned = config::plan_port(&self.plan, others, new)?;
        let added: Added = self.ask(&Request::Add(Box::new(new.clone())))?;
        let id = PortId(added.number);
        let Some(fabric) = &self.fabric else { return Ok(added) };
        let bound = planned.bound.map(|bound| bound.at(id));
        if let Err(error) = fabric.add_port(id, planned.local, bound) {
            _ = fabric.del_port(&added.name);
            self.ask::<Deleted>(&Request::Del(added.name.clone()))?;
            return Err(error.into());
        }
        Ok(added)
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, Asked> {
        let silent = |error: std::io::Error| {
            Asked::Silent(format!("the data process does not answer ({error}); try again"))
        };
        let data = connect(&self.plan.run_dir).map_err(silent)?;
        data.set_read_timeout(Some(ANSWER_MAX)).map_err(silent)?;
        let line = protocol::ask(data, request).map_err(silent)?;
        protocol::expect(&line).map_err(|error| Asked::Refused(error.to_string()))
    }

    fn keep(&self, list: &[Listed]) -> Result<(), String> {
        let list: Vec<&NewPort> = list.iter().map(|kept| &kept.new).collect();
        let path = self.plan.run_dir.join(run_dir::PORTS_FILE);
        let text = serde_json::to_string(&list).expect("ports are plain data");
        run_dir::replace(&path, &text)
            .map_err(|error| format!("cannot write {}: {error}", Path::display(&path)))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All but the one at a position.
fn others(list: &[Listed], at: usize) -> Vec<NewPort> {
    let others = list.iter().enumerate().filter(|(index, _)| *index != at);
    others.map(|(_, kept)| kept.new.clone()).collect()
}

/// Why data did not do it.
enum Asked {
    /// It said no.
    Refused(String),
    /// It said nothing.
    Silent(String),
}

impl From<String> for Asked {
    fn from(error: String) -> Self {
        Self::Refused(error)
    }
}

impl Asked {
    fn words(self) -> String {
        match self {
            Self::Refused(error) | Self::Silent(error) => error,
        }
    }
}
