//! A changed configuration for the running host: read, checked, given to the data process and to
//! the fabric.
//!
//! ```text
//!   file, or a configuration given ── data: Reconfigure ──▶ what it runs, and numbers
//!        │ a problem: said by line, nothing changes       │
//!        ▼                                                ▼
//!     the client                          fabric: reconfigure ── added ports ── the client
//! ```
//!
//! Data goes first: a network or peer has its place in the switch before the fabric names it. What
//! data runs is in force from then on: a data process that is started again begins with it.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use sluice_api::config::HostConfig;
use sluice_api::reload::{AtRestart, Reloaded};

use super::child::Link;
use super::{Control, Event};
use crate::config::{self, KernelDevices, Numbers, Plan};
use crate::ipc::protocol::{self, Reconfigured, Request, Running, Wanted};
use crate::sys::log::{self, say};
use crate::sys::threads::spawn;

/// Longest time for data to take a configuration over.
const ANSWER_MAX: Duration = Duration::from_secs(30);

const OF_FABRIC: &str = "the configuration of this host comes from its fabric";

/// A request for a changed configuration.
#[derive(Debug)]
pub(super) struct Asked {
    source: Source,
    only_check: bool,
    answer: SyncSender<Result<Reloaded, String>>,
}

/// Source of a configuration.
#[derive(Debug)]
enum Source {
    File,
    Given(Box<HostConfig>),
}

/// Requests to apply a configuration. The main thread of control carries them out, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Reloads(SyncSender<Event>);

impl Reloads {
    pub(super) const fn new(sender: SyncSender<Event>) -> Self {
        Self(sender)
    }

    /// Applies the file of the host.
    ///
    /// # Errors
    /// The reason, with its line; nothing was changed.
    pub(crate) fn reload(&self) -> Result<Reloaded, String> {
        self.ask(Source::File, false)
    }

    /// Applies a configuration that comes from elsewhere, instead of the file.
    ///
    /// # Errors
    /// The reason; nothing was changed.
    pub(crate) fn apply(&self, config: HostConfig) -> Result<Reloaded, String> {
        self.ask(Source::Given(Box::new(config)), false)
    }

    /// Checks a configuration as [`Self::apply`], and changes nothing.
    ///
    /// # Errors
    /// The reason why it would be refused.
    pub(crate) fn check(&self, config: HostConfig) -> Result<Reloaded, String> {
        self.ask(Source::Given(Box::new(config)), true)
    }

    fn ask(&self, source: Source, only_check: bool) -> Result<Reloaded, String> {
        let (answer, result) = sync_channel(1);
        _ = self.0.send(Event::Reload(Some(Asked { source, only_check, answer })));
        result.recv().unwrap_or_else(|_| Err("the host is being stopped".to_owned()))
    }
}

impl Control<'_> {
    /// Applies the file, or a configuration that is given. Without a client (SIGHUP) the log says
    /// what changed.
    pub(super) fn reload(&mut self, asked: Option<Asked>, link: Option<&mut Link>) {
        if let (None, Some(configuration)) = (&asked, &self.configuration) {
            // It waits for this thread.
            let configuration = configuration.clone();
            let reread = spawn("reload", move || {
                if let Err(why) = configuration.reload() {
                    say!(error: "nothing is reloaded: {why}");
                }
            });
            if let Err(error) = reread {
                say!(error: "nothing is reloaded: {error:#}");
            }
            return;
        }
        let (source, only_check, answer) = match asked {
            Some(Asked { source, only_check, answer }) => (source, only_check, Some(answer)),
            None => (Source::File, false, None),
        };
        let done = self.wanted(source).and_then(|wanted| match link {
            Some(link) => self.reconfigure(&wanted, only_check, link),
            None => Err("no data process runs just now; one is being started".to_owned()),
        });
        if !only_check {
            match &done {
                Ok(done) => tell(done),
                Err(error) => say!(error: "nothing is reloaded: {error}"),
            }
        }
        if let Some(answer) = answer {
            // The client may be gone.
            _ = answer.send(done);
        }
    }

    /// Returns the checked plan of a source.
    fn wanted(&self, source: Source) -> Result<Plan, String> {
        let plan = match source {
            Source::File => {
                // Certificates are no part of the file, and are read even if that is wrong.
                if let Some(fabric) = &self.fabric {
                    // The reason is in the log.
                    _ = fabric.reload_certificates();
                }
                match self.source {
                    super::Source::File(path) => config::load(path, &KernelDevices),
                    super::Source::Fabric(..) => return Err(OF_FABRIC.to_owned()),
                }
            }
            Source::Given(config) => {
                config::plan_of(&config, self.plan.dir.as_deref(), &KernelDevices)
            }
        };
        let plan = plan.and_then(|plan| self.evpn_peers.add_to(plan, self.tunnels()));
        let plan = plan.map_err(|report| format!("the configuration is wrong\n{report}"))?;
        if plan.run_dir != self.plan.run_dir {
            return Err(config::OTHER_RUN_DIR.to_owned());
        }
        Ok(plan)
    }

    /// Returns the number of peers for which data has places, if EVPN needs it and data tells.
    pub(super) fn tunnels(&self) -> Option<usize> {
        self.plan.config.evpn.as_ref()?;
        if self.ports.places().is_none() {
            self.ports.set_places(ask_data(&self.plan, true).ok()?.places);
        }
        self.ports.places().map(|places| places.tunnels)
    }

    /// Gives a plan to data and to the fabric.
    pub(super) fn reconfigure(
        &mut self,
        wanted: &Plan,
        only_check: bool,
        link: &mut Link,
    ) -> Result<Reloaded, String> {
        if !only_check && let Some(plan) = self.evpn_peers.make_room(&self.plan, wanted) {
            self.reconfigure(&plan, false, link)?;
        }
        let Reconfigured { mut reloaded, running, places } = ask_data(wanted, only_check)?;
        if let Some(places) = places {
            self.ports.set_places(Some(places));
        }
        if only_check {
            return Ok(reloaded);
        }
        log::set_level(wanted.config.host.log);
        let plan = match running.fingerprint == wanted.fingerprint.to_string() {
            true => with_numbers(wanted.clone(), &running)?,
            false => plan_of_running(&running)?,
        };
        link.hello.fingerprint = running.fingerprint;
        if let (Some(fabric), Some(plan)) = (&self.fabric, &plan.fabric)
            && let Err(why) = fabric.reconfigure(plan)
        {
            reloaded.at_restart.push(AtRestart { key: "peer".to_owned(), why });
        }
        self.ports.set_plan(&plan);
        self.evpn_peers.set_running(&plan.config);
        self.plan = plan;
        self.wanted = (!reloaded.at_restart.is_empty()).then(|| wanted.clone());
        self.ports.open_those_of_new_networks();
        Ok(reloaded)
    }
}

/// Asks the data process to take a plan over.
fn ask_data(wanted: &Plan, only_check: bool) -> Result<Reconfigured, String> {
    let (text, dir) = (wanted.text.clone(), wanted.dir.clone());
    let request = Request::Reconfigure(Box::new(Wanted { text, dir, only_check }));
    let data = protocol::connect_within(&wanted.run_dir, ANSWER_MAX)
        .and_then(|data| protocol::ask(data, &request));
    let line = data.map_err(|error| protocol::silence(&error))?;
    protocol::expect(&line).map_err(|error| error.to_string())
}

/// Returns the plan that a data process runs.
fn plan_of_running(running: &Running) -> Result<Plan, String> {
    let plan =
        config::plan_beside(running.dir.as_deref(), "the running configuration", &running.text)
            .map_err(|report| report.to_string())?;
    with_numbers(plan, running)
}

/// Returns a plan with the numbers of the data process that runs it.
fn with_numbers(plan: Plan, running: &Running) -> Result<Plan, String> {
    let numbers = Numbers::read(&running.numbers).map_err(|error| error.to_string())?;
    config::renumber(plan, numbers, &KernelDevices)
}

/// Asks the data process for what it runs, if there is one.
fn ask_running(run_dir: &Path) -> Option<Running> {
    let data = protocol::connect(run_dir).ok()?;
    data.set_read_timeout(Some(ANSWER_MAX)).ok()?;
    let line = protocol::ask(data, &Request::Running).ok()?;
    protocol::expect::<Running>(&line).ok()
}

/// Returns the plan that the data process of a directory runs, if there is one.
pub(super) fn running(run_dir: &Path) -> Option<Plan> {
    plan_of_running(&ask_running(run_dir)?).ok()
}

/// Returns the plan with which control begins, for the plan of its file: with the numbers of a data
/// process that runs it already, or that can take it over while it runs. The data process may have
/// been asked for this very file before, and run all of it but what takes effect at a restart.
pub(super) fn adopt(plan: Plan) -> Plan {
    let Some(running) = ask_running(&plan.run_dir) else { return plan };
    let own = plan.fingerprint.to_string();
    let running = if own == running.fingerprint || own == running.wanted {
        running
    } else {
        let may = ask_data(&plan, true);
        let is_live = may.is_ok_and(|checked| checked.reloaded.at_restart.is_empty());
        match is_live.then(|| ask_data(&plan, false)) {
            Some(Ok(done)) => {
                tell(&done.reloaded);
                done.running
            }
            _ => return plan,
        }
    };
    plan_of_running(&running).unwrap_or_else(|error| {
        say!(warn: "the running configuration cannot be read: {error}");
        plan
    })
}

/// Logs what changed.
fn tell(done: &Reloaded) {
    if done.changed.is_empty() && done.at_restart.is_empty() {
        say!("reloaded: nothing has changed");
    }
    for change in &done.changed {
        say!("reloaded: {change}");
    }
    for AtRestart { key, why } in &done.at_restart {
        say!(warn: "reloaded: {key} takes effect after `sluice upgrade`: {why}");
    }
}
