//! The control process: it starts the data process, watches it, is the host's part of the fabric
//! ([`crate::fabric`]), and answers questions.
//!
//! ```text
//!             ┌────────── start: a data process of this configuration runs? ──────────┐
//!             │ no                          │ of another one, or another program      │ yes
//!             ▼                             ▼                                         ▼
//!         start one  ◀── ended ──────── drain it                                  take it over
//!             │                                                                       │
//!             └────────────────────────────▶ watch ◀──────────────────────────────────┘
//!                      ended: wait, start one │ SIGTERM: drain it, delete its TAPs, end
//!                                             │ SIGUSR2, `sluice upgrade`: another data process
//!                                             │ takes over (`upgrade.rs`), then become the program
//!                                             │ that is there now
//! ```
//!
//! Descriptors that data opened and control keeps (`kept.rs`) go to the next data process.
//!
//! Control may be killed at any time: data continues, and the next control process takes it over.

mod answering;
mod child;
mod evpn_peers;
mod exec;
mod force;
mod http;
mod kept;
pub(crate) mod policy;
mod ports;
mod pulse;
mod reload;
mod sample;
pub(crate) mod show;
mod source;
mod status;
mod tokens;
mod unfit;
mod upgrade;
mod waiting;

use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_api::config::Host;
use sluice_api::fabric::Question;
use sluice_api::upgrade::Upgraded;
use sluice_base::Nanos;

use self::answering::Answering;
use self::child::{Found, Link};
use self::evpn_peers::EvpnPeers;
use self::force::Force;
use self::kept::DescriptorStore;
use self::ports::AddedPorts;
pub(crate) use self::reload::Reloads;
use self::source::Source;
use self::upgrade::NotDone;
use self::waiting::{Became, Beginning, front_of};
use crate::config::{self, FabricPlan, KernelDevices, Plan};
use crate::configuration::setup;
use crate::configuration::{Configuration, Opened, Parts};
use crate::control::policy::{Controller, Held};
use crate::fabric::{self, ConfigPort, Fabric, NoConfig};
use crate::sys::limits;
use crate::sys::log::{self, say};
use crate::sys::notify;
use crate::sys::privileges;
use crate::sys::run_dir::{self, Role};
use crate::sys::seccomp;
use crate::sys::threads::{self, spawn};

/// The first pause before data is started again, doubled each time up to the longest.
const RESTART_WAIT_MIN: Duration = Duration::from_millis(100);
const RESTART_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the contents of the forwarding table before control speaks to other hosts. A
/// data process that has to be started takes a tenth of it, one that is taken over some
/// milliseconds.
const SILENCE_MAX: Nanos = Nanos::from_millis(2_000);
/// A data process that lived this long starts a new count.
const STEADY: Duration = Duration::from_secs(10);

/// Events that may wait; each comes from a thread that can wait too.
const EVENTS_MAX: usize = 16;

/// Events for which control waits.
#[derive(Debug)]
enum Event {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGUSR2, or a client that waits for the outcome.
    Upgrade(Option<Asked>),
    /// SIGHUP, or a client that waits for the outcome.
    Reload(Option<reload::Asked>),
    /// EVPN has named hosts, or names them no more.
    Peers,
    /// The data process of this number (of starts) ended.
    Ended(u64),
    /// The host is no member of its fabric any more, and why.
    Left(String),
}

/// A client that asked for an upgrade.
#[derive(Debug)]
struct Asked {
    answer: SyncSender<Result<Upgraded, String>>,
    /// Disconnected when the answer is written: afterwards this process may become another program.
    written: Receiver<()>,
}

/// Longest time for the answer to be written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// Requests to replace the data process.
#[derive(Clone, Debug)]
struct Upgrades(SyncSender<Event>);

impl Upgrades {
    /// Requests an upgrade; `tell` passes the answer on.
    fn ask(&self, tell: impl FnOnce(Result<Upgraded, String>) -> io::Result<()>) -> io::Result<()> {
        let ((answer, result), (done, written)) = (sync_channel(1), sync_channel(0));
        _ = self.0.send(Event::Upgrade(Some(Asked { answer, written })));
        let result = result.recv().unwrap_or_else(|_| Err("the host is being stopped".to_owned()));
        let told = tell(result);
        drop(done);
        told
    }
}

/// Runs a control process until it is stopped. A host without a file, or whose file says nothing
/// of a fabric, is or becomes a member of one that was made by command; `name` is its name, if the
/// file does not say it.
///
/// # Errors
/// If the configuration is wrong, or data cannot start.
pub fn run(config: Option<&Path>, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let source = Source::read(config, name)?;
    let (host, whole) = host_of(&source)?;
    let role = enter(&host)?;
    let (sender, events) = sync_channel(EVENTS_MAX);
    stop_on_signals(&sender)?;
    let watched = beat()?;
    let (front, asks) = front_of(&host, whole.is_some())?;
    let listen = || show::serve(&role, &host, Arc::clone(&front));
    http::serve(&role, &host, source.api(whole.as_ref()), &front)?;
    if whole.is_none() {
        listen()?;
    }
    let Some(beginning) = Beginning::of(whole, &source, asks, &events)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (plan, membership, became) = beginning.parts();
    let evpn_peers = Arc::new(EvpnPeers::load(&plan.run_dir, sender.clone()));
    let plan = reload::adopt(evpn_peers.add_to(report(plan), None)?);
    // Before the data process: certificates that others would not accept are reported before
    // anything starts.
    let held = Arc::new(held_by(&plan, membership.as_ref()));
    let configuration = membership.as_ref().map(Opened::handle);
    let fabric = start_fabric(&plan, &held, configuration.clone())?;
    let kept = Arc::new(DescriptorStore::new(&plan.run_dir));
    let known = (fabric.clone(), configuration.clone());
    let ports = Arc::new(AddedPorts::load(&plan, known, Arc::clone(&kept))?);
    let (upgrades, reloads) = (Upgrades(sender.clone()), Reloads::new(sender.clone()));
    let known = (Arc::clone(&ports), held.clone());
    let force = Force::new(reloads.clone(), sender.clone(), known, Arc::clone(&evpn_peers));
    let mut control = Control {
        plan: plan.clone(),
        source: &source,
        configuration: configuration.clone(),
        kept: Arc::clone(&kept),
        sender,
        events,
        starts: 0,
        fabric: fabric.clone(),
        wanted: None,
        evpn_peers: Arc::clone(&evpn_peers),
        ports: Arc::clone(&ports),
        answering: Arc::clone(front.answering()),
    };
    let Some(link) = control.begin()? else { return Ok(ExitCode::SUCCESS) };
    evpn_peers.set_running(&control.plan.config);
    ports.wait_for_namespaces()?;
    fabric.iter().try_for_each(|fabric| fabric.start_evpn(evpn_peers.clone()))?;
    front.open(show::Known {
        facts: sample::Facts::of(&plan.config),
        run_dir: plan.run_dir.clone(),
        fabric: fabric.clone(),
        ports,
        controller: Controller::start(held, fabric.clone())?,
        upgrades,
        reloads,
        configuration,
    });
    match (membership, &fabric, &plan.fabric) {
        (Some(opened), Some(fabric), Some(FabricPlan { listen, .. })) => {
            let (force, fabric) = (Arc::new(force), fabric.clone());
            start_configuration(opened, Parts { force, fabric, listen: *listen }, became)?;
        }
        _ => listen()?,
    }
    ready(&watched, fabric.as_ref());
    let ended = control.watch(link);
    leave(&plan, fabric.as_ref(), ended.is_ok().then_some(&*kept));
    ended.map(|()| ExitCode::SUCCESS)
}

/// Says goodbye. `kept` has the devices that go with a host that was stopped.
fn leave(plan: &Plan, fabric: Option<&Fabric>, kept: Option<&DescriptorStore>) {
    notify::tell("STOPPING=1");
    run_dir::forget_sockets(&plan.run_dir);
    if let Some(kept) = kept {
        kept.delete_devices(plan);
    }
    fabric.iter().for_each(|fabric| fabric.leave());
}

/// Returns what is said of the host itself, and the plan if its file says everything.
fn host_of(source: &Source<'_>) -> anyhow::Result<(Host, Option<Plan>)> {
    Ok(match source {
        Source::File(path) => {
            let plan = config::load(path, &KernelDevices)?;
            (plan.config.host.clone(), Some(plan))
        }
        Source::Fabric(local, _) => (local.host.clone(), None),
    })
}

/// Starts the thread of the configuration, and answers the one who made this host a member once it
/// knows its fabric.
fn start_configuration(opened: Opened, parts: Parts, became: Option<Became>) -> anyhow::Result<()> {
    let configuration = opened.handle();
    opened.start(parts)?;
    let Some(became) = became else { return Ok(()) };
    spawn("became", move || became.tell(configuration.settle()))
}

/// Makes this process the control process of a host: its log, its directories and its rights.
fn enter(host: &Host) -> anyhow::Result<Role> {
    let (run_dir, state_dir) = (config::run_dir(host), config::state_dir(host));
    log::init(&host.name, "control", host.log);
    threads::end_with_any();
    run_dir::create(&run_dir, host.group.as_deref())?;
    std::fs::create_dir_all(&state_dir)
        .with_context(|| format!("cannot make {}", state_dir.display()))?;
    privileges::drop_others(host, [&run_dir, &state_dir])?;
    seccomp::install(host.seccomp, seccomp::Process::Control);
    Role::take(&run_dir, "control")
}

/// Returns the placement policies of a host: that of its fabric's configuration comes first.
fn held_by(plan: &Plan, membership: Option<&Opened>) -> Held {
    let held = Held::load(plan);
    if let Err(why) = held.commit(membership.and_then(Opened::placement)) {
        say!(warn: "the placement policy holds until this process ends: {why}");
    }
    held
}

/// Says what is to be known about a plan, and whether this process may have its descriptors.
fn report(plan: Plan) -> Plan {
    for note in &plan.notes {
        say!("{note}");
    }
    let ports_max = limits::raise_descriptors();
    let may_come = u64::from(plan.config.spare_ports()) + plan.ports.len() as u64;
    if may_come > ports_max {
        say!(
            warn: "descriptors are enough for {ports_max} of {may_come} ports; raise the hard \
                   limit (`LimitNOFILE`)"
        );
    }
    plan
}

/// Starts the fabric's thread, if the host is a member of one.
fn start_fabric(
    plan: &Plan,
    held: &Arc<Held>,
    configuration: Option<Configuration>,
) -> anyhow::Result<Option<Fabric>> {
    let Some(fabric) = &plan.fabric else { return Ok(None) };
    let port: Arc<dyn ConfigPort> = match configuration {
        Some(configuration) => Arc::new(configuration),
        None => Arc::new(NoConfig),
    };
    let dirs = (plan.run_dir.as_path(), plan.state_dir.as_path());
    Fabric::start(fabric, dirs, clocks(), (held.clone(), port)).map(Some)
}

struct Control<'a> {
    plan: Plan,
    source: &'a Source<'a>,
    configuration: Option<Configuration>,
    kept: Arc<DescriptorStore>,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    starts: u64,
    fabric: Option<Fabric>,
    /// Whole configuration of the fabric for this host, if part of it needs a restart of data.
    wanted: Option<Plan>,
    /// Peers that EVPN has named.
    evpn_peers: Arc<EvpnPeers>,
    ports: Arc<AddedPorts>,
    answering: Arc<Answering>,
}

impl Control<'_> {
    /// Returns the data process that was there, or a new one; `None` if control was stopped
    /// meanwhile.
    fn begin(&mut self) -> anyhow::Result<Option<Link>> {
        match child::find(&self.plan.run_dir)? {
            Found::Nobody => self.start().map(Some),
            Found::Running(link)
                if link.hello.fingerprint == self.plan.fingerprint.to_string()
                    && link.runs_this_program() =>
            {
                say!("data process {} runs this configuration: taken over", link.hello.pid);
                self.watch_end(&link)?;
                Ok(Some(link))
            }
            Found::Running(link) => {
                let what = if link.runs_this_program() { "configuration" } else { "program" };
                say!("data process {} runs another {what}: it is drained", link.hello.pid);
                self.kept.borrow(&[]);
                child::drain(link);
                self.start().map(Some)
            }
        }
    }

    fn start(&mut self) -> anyhow::Result<Link> {
        let link = child::start(&self.plan, &self.kept)?;
        say!("data process {} started", link.hello.pid);
        self.watch_end(&link)?;
        Ok(link)
    }

    /// Watches the connection in a thread: it ends when the process does. The fabric attaches to
    /// the current data process, after it knows the ports that events may name.
    fn watch_end(&mut self, link: &Link) -> anyhow::Result<()> {
        let limit = Duration::from_millis(self.plan.config.host.data_hung_ms.into());
        pulse::watch(link, &self.plan.run_dir, limit)?;
        self.ports.set_places(None);
        self.ports.restore();
        if let Some(fabric) = &self.fabric {
            fabric.attach(&self.plan.run_dir);
        }
        self.starts += 1;
        let (number, sender) = (self.starts, self.sender.clone());
        let mut stream = link.stream.try_clone()?;
        stream.set_read_timeout(None)?;
        spawn("link", move || {
            while stream.read(&mut [0; 64]).is_ok_and(|size| size > 0) {}
            _ = sender.send(Event::Ended(number));
        })
    }

    /// Keeps a data process running until control is stopped.
    fn watch(&mut self, first: Link) -> anyhow::Result<()> {
        let mut link = first;
        let mut wait = RESTART_WAIT_MIN;
        loop {
            let since = Instant::now();
            loop {
                match self.events.recv()? {
                    Event::Stop => {
                        say!("stopping: data process {} is drained", link.hello.pid);
                        child::drain(link);
                        return Ok(());
                    }
                    Event::Upgrade(asked) => {
                        if let Some(next) = self.upgrade(&link, asked) {
                            link = next;
                        }
                    }
                    Event::Reload(asked) => self.reload(asked, Some(&mut link)),
                    Event::Peers => self.follow_evpn(Some(&mut link)),
                    Event::Left(why) => return self.part(&why, Some(link)),
                    Event::Ended(number) if number == self.starts => break,
                    Event::Ended(_) => {}
                }
            }
            if since.elapsed() >= STEADY {
                wait = RESTART_WAIT_MIN;
            }
            self.ports.set_places(None);
            say!(error: "data process {} ended: {}", link.hello.pid, link.how_it_ended());
            match self.restart(&mut wait)? {
                Some(next) => link = next,
                None => return Ok(()),
            }
        }
    }

    /// Becomes a program without a fabric.
    fn part(&self, why: &str, link: Option<Link>) -> anyhow::Result<()> {
        say!(warn: "this host is in no fabric any more: {why}");
        // Its endpoints are behind it no longer, and who speaks BGP would wait for it.
        self.fabric.iter().for_each(Fabric::leave_evpn);
        if let Some(link) = link {
            child::drain(link);
            self.kept.delete_devices(&self.plan);
        }
        setup::forget(&self.plan.state_dir)?;
        Err(exec::this_program(Some(&self.answering)))
    }

    /// Lets another data process take over, and becomes the program at this program's path. Returns
    /// if that is not possible: with the data process that runs then, if it is another one.
    fn upgrade(&mut self, link: &Link, asked: Option<Asked>) -> Option<Link> {
        let plan = match self.next_plan() {
            Ok(plan) => plan,
            Err(error) => {
                let error = format!("the configuration would be refused: {error:#}");
                refuse(asked, link, &error);
                return None;
            }
        };
        let is_same =
            link.hello.fingerprint == plan.fingerprint.to_string() && link.runs_the_program_there();
        if is_same && asked.is_none() {
            self.become_program(None);
            return None;
        }
        let from = link.hello.pid;
        if plan.run_dir != self.plan.run_dir {
            refuse(asked, link, "the host would have another `run_dir`; stop it and start it anew");
            return None;
        }
        let numbers = self.plan.numbers.follow_anew(&self.plan.config, &plan.config);
        let plan = match config::renumber(plan, numbers, &KernelDevices) {
            Ok(plan) => plan,
            Err(error) => {
                refuse(asked, link, &error);
                return None;
            }
        };
        match upgrade::hand_over(&plan, link) {
            Ok((next, handed_over, version)) => {
                say!(
                    "data process {} goes on where {from} stopped: {} handed over, nothing read \
                     for {} us",
                    next.hello.pid,
                    handed_over.ports,
                    handed_over.gap_us
                );
                let handed_over = Some(handed_over);
                let done = Upgraded { from, version, handed_over, why_not: None };
                self.tell_and_become(asked, Ok(done));
                // This program stays, and must know the current data process.
                if let Err(error) = self.watch_end(&next) {
                    say!(error: "data process {} is not watched: {error:#}", next.hello.pid);
                }
                Some(next)
            }
            Err(NotDone::Foreign(why)) => {
                say!(
                    warn: "nothing can be handed over, so data is drained and started anew: {why}"
                );
                let version = link.hello.version.clone();
                let done = Upgraded { from, version, handed_over: None, why_not: Some(why) };
                self.tell_and_become(asked, Ok(done));
                None
            }
            Err(NotDone::GoesOn(why)) => {
                refuse(asked, link, &why);
                None
            }
            Err(NotDone::Lost(why)) => {
                let why = format!("{why}; data is started anew");
                say!(error: "the upgrade failed: {why}");
                tell(asked, Err(why));
                None
            }
        }
    }

    fn tell_and_become(&self, asked: Option<Asked>, done: Result<Upgraded, String>) {
        tell(asked, done);
        self.become_program(None);
    }

    /// Becomes the program at this program's path. The new program finds the data process, and
    /// replaces it if that runs another program or configuration. Returns if that is not possible.
    fn become_program(&self, asked: Option<Asked>) {
        if asked.is_some() {
            tell(asked, Err("no data process runs just now; one is being started".to_owned()));
            return;
        }
        if let Err(error) = self.next_plan() {
            say!(error: "no upgrade, for the configuration would be refused: {error:#}");
            return;
        }
        say!(error: "no upgrade: {:#}", exec::this_program(Some(&self.answering)));
    }

    /// Returns the plan of the configuration that would hold after a start.
    fn next_plan(&self) -> anyhow::Result<Plan> {
        match self.source {
            Source::File(path) => match waiting::plan_of_member(path, &self.plan)? {
                Some(plan) => Ok(self.evpn_peers.add_to(plan, None)?),
                None => Ok(self.evpn_peers.add_to(config::load(path, &KernelDevices)?, None)?),
            },
            Source::Fabric(..) => Ok(self.wanted.as_ref().unwrap_or(&self.plan).clone()),
        }
    }

    /// Starts data again, as often as necessary; `None` if control was stopped meanwhile.
    fn restart(&mut self, wait: &mut Duration) -> anyhow::Result<Option<Link>> {
        loop {
            say!("starting it again in {} ms", wait.as_millis());
            let until = Instant::now() + *wait;
            *wait = (*wait * 2).min(RESTART_WAIT_MAX);
            loop {
                let left = until.saturating_duration_since(Instant::now());
                match self.events.recv_timeout(left) {
                    Ok(Event::Stop) => return Ok(None),
                    Ok(Event::Upgrade(asked)) => self.become_program(asked),
                    Ok(Event::Reload(asked)) => self.reload(asked, None),
                    Ok(Event::Peers) => self.follow_evpn(None),
                    Ok(Event::Ended(_)) => {}
                    Ok(Event::Left(why)) => return self.part(&why, None).map(|()| None),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            match self.start() {
                Ok(link) => return Ok(Some(link)),
                Err(error) => say!(error: "{error:#}"),
            }
        }
    }
}

/// Reports that nothing has changed, and why.
fn refuse(asked: Option<Asked>, link: &Link, why: &str) {
    let pid = link.hello.pid;
    say!(warn: "no upgrade, for {why}; data process {pid} goes on");
    tell(asked, Err(format!("nothing has changed, data process {pid} goes on: {why}")));
}

/// Answers the client, and waits until the answer is written.
fn tell(asked: Option<Asked>, done: Result<Upgraded, String>) {
    if let Some(asked) = asked {
        _ = asked.answer.send(done);
        _ = asked.written.recv_timeout(WRITTEN_WITHIN);
    }
}

/// Returns the longest silence of the fabric at the start, and the clock of certificates.
fn clocks() -> (Nanos, fabric::Wall) {
    (SILENCE_MAX, fabric::wall())
}

/// Reports to the service manager that this process lives, as long as the thread of the returned
/// fabric answers. A host that waits for its fabric has none.
fn beat() -> anyhow::Result<Arc<OnceLock<Fabric>>> {
    let watched = Arc::new(OnceLock::<Fabric>::new());
    let Some(every) = notify::beat() else { return Ok(watched) };
    let known = Arc::clone(&watched);
    spawn("beat", move || {
        loop {
            if known.get().is_none_or(|fabric| fabric.answer(Question::Members).is_ok()) {
                notify::tell("WATCHDOG=1");
            }
            std::thread::sleep(every);
        }
    })?;
    Ok(watched)
}

/// Reports to the service manager that the host works, with the fabric that has to answer from now
/// on.
fn ready(watched: &OnceLock<Fabric>, fabric: Option<&Fabric>) {
    if let Some(fabric) = fabric {
        _ = watched.set(fabric.clone());
    }
    notify::tell("READY=1");
}

fn stop_on_signals(sender: &SyncSender<Event>) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGUSR2, SIGHUP])?;
    let sender = sender.clone();
    spawn("signals", move || {
        for signal in &mut signals {
            _ = sender.send(match signal {
                SIGUSR2 => Event::Upgrade(None),
                SIGHUP => Event::Reload(None),
                _ => Event::Stop,
            });
        }
    })
}
