//! Ports that were added at run time (`sluice port add`): the list that outlives both processes and
//! a restart of the machine.
//!
//! ```text
//!   add: file ── data opens and attaches ── fabric claims its endpoint ── answer
//!   del: file ── fabric withdraws ── data closes ── answer
//! ```
//!
//! The file comes first. If it cannot be written nothing is done, and the answer says so. If a
//! later step fails, the old list is written back. A process that is killed in between leaves a
//! port too many in the file, which the next control process opens, or one too few, which the next
//! control process lets data delete ([`Request::Tidy`]).
//!
//! A port of which nobody could be told, since whoever asked for it was killed, is deleted again
//! (`ports/notices.rs`).
//!
//! After a restart of the machine namespaces are made anew, later than control starts: a port waits
//! for its own namespace. The process of a `--pid` is another one by then, so such a port is
//! forgotten.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_api::client::{is_busy, while_busy};
use sluice_api::config::HostConfig;
use sluice_api::port::{Added, Deleted, NewPort, Place, PortState};
use sluice_base::PortId;

use super::kept::DescriptorStore as Files;
use crate::config::{self, Plan};
use crate::configuration::Configuration;
use crate::fabric::Fabric;
use crate::ipc::protocol::{self, Done, Places, Request};
use crate::sys::log::say;
use crate::sys::run_dir;
use crate::sys::threads::spawn;

mod notices;

/// Time between two searches for namespaces that ports wait for.
const NAMESPACE_RETRY: Duration = Duration::from_secs(1);
/// Longest time for data to open a device and attach it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The ports that were added.
#[derive(Debug)]
pub(super) struct AddedPorts {
    /// The plan that is in force.
    plan: Mutex<Arc<Plan>>,
    /// Places of the data process that runs, once it has said so.
    places: Mutex<Option<Places>>,
    fabric: Option<Fabric>,
    /// The configuration of a fabric that was made by command.
    configuration: Option<Configuration>,
    files: Arc<Files>,
    /// Serial number of the next port.
    next: AtomicU64,
    /// Held while a port is added or deleted: one at a time.
    list: Mutex<Vec<Listed>>,
}

#[derive(Clone, Debug)]
struct Listed {
    new: NewPort,
    /// Number of this port among all that were added: names come again.
    serial: u64,
    /// Answers about it that are being written.
    answers: usize,
    /// True if a client was told of it.
    is_told: bool,
    /// True if data has the port. A port whose namespace is gone does not come back.
    is_open: bool,
    /// True if the port was added before the machine was started, and its namespace may still come.
    waits: bool,
    /// True if this host does not know the port's network yet.
    waits_for_network: bool,
}

impl Listed {
    const fn of(new: NewPort, serial: u64) -> Self {
        let (answers, is_told) = (0, false);
        let (is_open, waits, waits_for_network) = (false, false, false);
        Self { new, serial, answers, is_told, is_open, waits, waits_for_network }
    }
}

/// Contents of the file.
#[derive(Serialize, Deserialize)]
struct PortsFile {
    /// Boot id of the machine at the time of writing.
    boot: String,
    ports: Vec<NewPort>,
}

impl AddedPorts {
    /// Loads the ports that an earlier control process kept.
    pub(super) fn load(
        plan: &Plan,
        (fabric, configuration): (Option<Fabric>, Option<Configuration>),
        files: Arc<Files>,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&plan.state_dir)
            .with_context(|| format!("cannot make {}", plan.state_dir.display()))?;
        let path = plan.state_dir.join(run_dir::PORTS_FILE);
        let kept = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{} is not what this program wrote; remove it to go on without the ports that \
                     were added",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                PortsFile { boot: boot(), ports: Vec::new() }
            }
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        let waits = kept.boot != boot();
        let is_lost = |new: &NewPort| waits && matches!(new.place, Place::Pid(_));
        for lost in kept.ports.iter().filter(|new| is_lost(new)) {
            let name = lost.name.as_deref().unwrap_or_default();
            say!(warn: "port {name} is forgotten: its process ended with the machine");
        }
        let list = kept.ports.into_iter().filter(|new| !is_lost(new));
        let list: Vec<Listed> = (0..)
            .zip(list)
            .map(|(serial, new)| Listed { waits, is_told: true, ..Listed::of(new, serial) })
            .collect();
        let next = AtomicU64::new(list.len() as u64);
        let plan = Mutex::new(Arc::new(plan.clone()));
        let places = Mutex::default();
        Ok(Self { plan, places, fabric, configuration, files, next, list: Mutex::new(list) })
    }

    /// Lists the ports with their states. It waits for a port that is about to come or go.
    pub(super) fn report(&self) -> sluice_api::port::AddedPorts {
        let row = |listed: &Listed| PortState { port: listed.new.clone(), open: listed.is_open };
        sluice_api::port::AddedPorts { ports: self.list().iter().map(row).collect() }
    }

    /// Returns the ports that are open.
    pub(super) fn open_ports(&self) -> Vec<NewPort> {
        others(&self.list(), usize::MAX)
    }

    /// Notes the places of the data process; none when it ends.
    pub(super) fn set_places(&self, places: Option<Places>) {
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// Returns the places of the data process that runs, if they are known.
    pub(super) fn places(&self) -> Option<Places> {
        *self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that every port's network stays.
    ///
    /// # Errors
    /// Ports that are in a network that would go, and what to do.
    pub(super) fn check(&self, config: &HostConfig) -> Result<(), String> {
        let stays = |name: &str| config.vnets.iter().any(|vnet| vnet.name == name);
        let list = self.list();
        // A port that waits for its network keeps nothing from changing.
        let in_way =
            list.iter().filter(|listed| !listed.waits_for_network && !stays(&listed.new.vnet));
        let names: Vec<String> = in_way
            .map(|listed| {
                let port = listed.new.name.as_deref().unwrap_or("?");
                format!("port `{port}` is in network `{}`", listed.new.vnet)
            })
            .collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(format!("{}; `sluice port del` deletes a port", names.join(", "))),
        }
    }

    /// Starts a thread that looks from time to time for the namespaces that ports wait for.
    pub(super) fn wait_for_namespaces(self: &Arc<Self>) -> anyhow::Result<()> {
        let waits = |list: &[Listed]| list.iter().any(|listed| listed.waits && !listed.is_open);
        if !waits(&self.list()) {
            return Ok(());
        }
        let ports = Arc::clone(self);
        spawn("namespaces", move || {
            loop {
                std::thread::sleep(NAMESPACE_RETRY);
                let mut list = ports.list();
                if !waits(&list) {
                    return;
                }
                ports.open_those_that_wait(&mut list);
            }
        })
    }

    fn open_those_that_wait(&self, list: &mut [Listed]) {
        for at in 0..list.len() {
            let listed = &list[at];
            if listed.is_open || !listed.waits || !config::place_is_there(&listed.new) {
                continue;
            }
            if !self.knows(&listed.new.vnet) {
                (list[at].waits, list[at].waits_for_network) = (false, true);
                continue;
            }
            let done = self.open(&others(list, at), &list[at].new);
            let name = list[at].new.name.clone().unwrap_or_default();
            list[at].is_open = done.is_ok();
            list[at].waits = false;
            match done {
                Ok(_) => say!("port {name} is there again, as its namespace is"),
                Err(error) => say!(warn: "port {name} does not come back: {}", error.words()),
            }
            self.files.borrow(&[name]);
        }
    }

    /// Opens the ports that data does not have, after a restart of it or of control.
    pub(super) fn restore(&self) {
        let mut list = self.list();
        let mut silent = false;
        for at in 0..list.len() {
            list[at].is_open = false;
        }
        for at in 0..list.len() {
            let name = list[at].new.name.clone().unwrap_or_default();
            if list[at].waits && !config::place_is_there(&list[at].new) {
                say!("port {name} waits for its namespace");
                continue;
            }
            list[at].waits_for_network = !self.knows(&list[at].new.vnet);
            if list[at].waits_for_network {
                say!(warn: "port {name} waits for its network `{}`", list[at].new.vnet);
                continue;
            }
            let done = self.open(&others(&list, at), &list[at].new);
            list[at].is_open = done.is_ok();
            list[at].waits = false;
            if let Err(error) = done {
                silent |= matches!(error, Asked::Silent(_));
                say!(warn: "port {name} does not come back: {}", error.words());
            }
        }
        // A port for which data gave no answer may still be wanted.
        let open = list.iter().filter(|listed| listed.is_open);
        let names = open.filter_map(|listed| listed.new.name.clone()).collect();
        if !silent && let Err(error) = self.ask::<Done>(&Request::Tidy(names)) {
            say!(warn: "devices of ports that are gone may be left: {}", error.words());
        }
        self.files.borrow(&[]);
    }

    fn knows(&self, vnet: &str) -> bool {
        self.plan().config.vnets.iter().any(|known| known.name == vnet)
    }

    /// Opens the ports that have waited for networks which this host knows now.
    pub(super) fn open_those_of_new_networks(&self) {
        let mut list = self.list();
        for at in 0..list.len() {
            let listed = &list[at];
            if listed.is_open || !listed.waits_for_network || !self.knows(&listed.new.vnet) {
                continue;
            }
            let done = self.open(&others(&list, at), &list[at].new);
            let name = list[at].new.name.clone().unwrap_or_default();
            (list[at].is_open, list[at].waits_for_network) = (done.is_ok(), false);
            match done {
                Ok(_) => say!("port {name} is there again, as its network is"),
                Err(error) => say!(warn: "port {name} does not come back: {}", error.words()),
            }
            self.files.borrow(&[name]);
        }
    }

    /// Adds a port. A port that is there as requested is reported again, so that a client that got
    /// no answer may ask again.
    fn add_to(&self, list: &mut Vec<Listed>, new: &NewPort) -> Result<Added, String> {
        let mut new = config::complete(&self.plan(), new)?;
        // The host that adds the port determines its delay.
        new.taken = 0;
        let changes = std::mem::take(&mut new.change);
        if let Some(configuration) = &self.configuration {
            // While the list is held: whoever checks a deletion of the network sees this port, or
            // is seen here.
            configuration.may_use(&new.vnet)?;
        }
        if let Some(at) = list.iter().position(|kept| kept.new.name == new.name) {
            new.taken = list[at].new.taken;
            if list[at].new == new {
                let done = self.open(&others(list, at), &new);
                list[at].is_open |= done.is_ok();
                self.files.borrow(new.name.as_slice());
                return done.map_err(Asked::words);
            }
            if changes && list[at].is_open && config::is_rebinding(&list[at].new, &new) {
                return self.rebind(list, at, new);
            }
            if !list[at].is_open {
                // The port's device went away while no control process was there to notice.
                list.remove(at);
            }
            new.taken = 0;
        }
        config::check_added_policy(&self.plan().config, &new)?;
        let last = list.len();
        let planned = config::plan_port(&self.plan(), &others(list, last), &new)?;
        if let (Some(fabric), Some(bound), false) = (&self.fabric, &planned.bound, new.standby) {
            new.taken = fabric.may_bind(bound, new.moves)?;
        }
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        list.push(Listed { is_open: true, ..Listed::of(new.clone(), serial) });
        if let Err(error) = self.keep(list) {
            list.pop();
            return Err(format!("nothing was added: {error}"));
        }
        match self.open(&others(list, last), &new) {
            Ok(added) => {
                self.files.borrow(new.name.as_slice());
                let place = added.netns.as_deref().unwrap_or("this host");
                say!(
                    "port {} of {}: added, device {} in {place}",
                    added.name,
                    added.vnet,
                    added.device
                );
                Ok(added)
            }
            Err(error) => {
                let error = error.words();
                list[last].is_open = false;
                self.keep(&list[..last]).map_err(|kept| {
                    format!("{error}; and it stays on the list until it is deleted: {kept}")
                })?;
                list.pop();
                Err(error)
            }
        }
    }

    /// Gives the machine of a port other addresses, or those of before if a step fails.
    fn rebind(&self, list: &mut [Listed], at: usize, mut new: NewPort) -> Result<Added, String> {
        config::check_added_policy(&self.plan().config, &new)?;
        let others = others(list, at);
        let planned = config::plan_port(&self.plan(), &others, &new)?;
        let before = list[at].new.clone();
        if new.standby && !before.standby {
            return Err("a port that others send to does not go back to standby; delete it, and \
                        add it with `--standby`"
                .to_owned());
        }
        if let (Some(fabric), Some(bound), false) = (&self.fabric, &planned.bound, new.standby) {
            new.taken = fabric.may_bind(bound, new.moves)?.max(before.taken);
        }
        list[at].new = new.clone();
        if let Err(error) = self.keep(list) {
            list[at].new = before;
            return Err(format!("nothing was changed: {error}"));
        }
        let done = self.open(&others, &new).map_err(Asked::words);
        match &done {
            Ok(added) => say!("port {} of {}: its addresses have changed", added.name, added.vnet),
            Err(_) => {
                list[at].new = before.clone();
                self.keep(list)?;
                list[at].is_open = self.open(&others, &before).is_ok();
            }
        }
        done
    }

    /// Deletes a port.
    pub(super) fn delete(&self, name: &str) -> Result<Deleted, String> {
        self.delete_from(&mut self.list(), name)
    }

    fn delete_from(&self, list: &mut Vec<Listed>, name: &str) -> Result<Deleted, String> {
        let at = list.iter().position(|listed| listed.new.name.as_deref() == Some(name));
        let Some(at) = at else { return Err(self.unknown(list, name)) };
        let listed = list.remove(at);
        let deleted = self.keep(list).and_then(|()| self.close(name));
        if let Err(error) = &deleted {
            list.insert(at, listed);
            // If the shorter list could not be written, the longer one is kept.
            _ = self.keep(list);
            return Err(format!("port {name} is not deleted: {error}"));
        }
        say!("port {name}: deleted");
        deleted
    }

    /// Lets the fabric withdraw the port's endpoint and data close the port.
    fn close(&self, name: &str) -> Result<Deleted, String> {
        if let Some(fabric) = &self.fabric {
            fabric.del_port(name)?;
        }
        self.files.forget(name);
        match self.ask(&Request::Del(name.to_owned())) {
            Ok(deleted) => Ok(deleted),
            // A data process that does not have the port has lost it already.
            Err(Asked::Refused(why)) if why == protocol::not_added(name) => {
                Ok(Deleted { name: name.to_owned(), frames: 0 })
            }
            Err(Asked::Refused(why) | Asked::Silent(why)) => Err(why),
        }
    }

    fn unknown(&self, list: &[Listed], name: &str) -> String {
        if self.plan().config.ports.iter().any(|port| port.name == name) {
            return format!("port `{name}` is in the configuration file; take it out there");
        }
        let names: Vec<&str> = list.iter().filter_map(|kept| kept.new.name.as_deref()).collect();
        match names.is_empty() {
            true => format!("there is no port `{name}`: none was added"),
            false => format!("there is no port `{name}`; added were {}", names.join(", ")),
        }
    }

    /// Lets data open the port, and tells the fabric.
    fn open(&self, others: &[NewPort], new: &NewPort) -> Result<Added, Asked> {
        let planned = config::plan_port(&self.plan(), others, new)?;
        let added: Added = self.ask(&Request::Add(Box::new(new.clone())))?;
        let id = PortId(added.number);
        let Some(fabric) = &self.fabric else { return Ok(added) };
        // The fabric hears of a port on standby when it is changed.
        let bound = planned.bound.filter(|_| !new.standby).map(|bound| bound.at(id));
        if let Err(error) = fabric.add_port(id, planned.local, bound) {
            _ = fabric.del_port(&added.name);
            self.ask::<Deleted>(&Request::Del(added.name.clone()))?;
            return Err(error.into());
        }
        Ok(added)
    }

    /// Asks data, and asks again while it answers as many others as it can.
    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, Asked> {
        let is_busy = |asked: &Asked| matches!(asked, Asked::Refused(why) if is_busy(why));
        while_busy(Instant::now() + ANSWER_MAX, is_busy, || self.ask_once(request))
    }

    fn ask_once<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, Asked> {
        let silent = |error: std::io::Error| Asked::Silent(protocol::silence(&error));
        let data = protocol::connect_within(&self.plan().run_dir, ANSWER_MAX).map_err(silent)?;
        let line = protocol::ask(data, request).map_err(silent)?;
        protocol::expect(&line).map_err(|error| Asked::Refused(error.to_string()))
    }

    fn keep(&self, list: &[Listed]) -> Result<(), String> {
        let ports = list.iter().map(|listed| listed.new.clone()).collect();
        let path = self.plan().state_dir.join(run_dir::PORTS_FILE);
        let text = serde_json::to_string(&PortsFile { boot: boot(), ports });
        run_dir::replace_for_good(&path, &text.expect("ports are plain data")).map_err(|error| {
            let what = match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    "; make room there, and try again"
                }
                _ => "",
            };
            format!("cannot write {}: {error}{what}", path.display())
        })
    }

    /// Puts another plan into force. The data process has it already; the fabric hears of the ports
    /// that have another policy by it.
    pub(super) fn set_plan(&self, plan: &Plan) {
        let next = Arc::new(plan.clone());
        let mut now = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, Arc::clone(&next));
        drop(now);
        let (before, next) = (&before.config, &next.config);
        // Locked only if it may matter: a port that is about to come has the lock.
        if before.vport_policies == next.vport_policies && before.vnets == next.vnets {
            return;
        }
        let list = self.list();
        for (at, listed) in list.iter().enumerate().filter(|(_, listed)| listed.is_open) {
            let new = &listed.new;
            if config::completed(before, new) != config::completed(next, new)
                && let Err(error) = self.open(&others(&list, at), new)
            {
                let name = new.name.as_deref().unwrap_or_default();
                say!(warn: "port {name}: the fabric shows an old policy: {}", error.words());
            }
        }
    }

    /// Returns the plan that is in force.
    pub(super) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the ports that are open, except for the one at a position.
fn others(list: &[Listed], at: usize) -> Vec<NewPort> {
    let others = list.iter().enumerate().filter(|(index, _)| *index != at);
    others.filter(|(_, listed)| listed.is_open).map(|(_, listed)| listed.new.clone()).collect()
}

/// Returns the boot id of the machine.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Reason why data did not carry out a request.
enum Asked {
    /// Data refused.
    Refused(String),
    /// Data did not answer.
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
