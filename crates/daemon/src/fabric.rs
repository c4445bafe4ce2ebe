//! This host as a member of its fabric, live: the control plane of [`sluice_control`] with a clock,
//! sockets, certificates and a switch.
//!
//! | file | content |
//! |---|---|
//! | `member` | the thread: one turn reads all, ticks, writes all |
//! | `ports` | ports of the file, and ports added at run time |
//! | `reconfigure` | members and networks that come and go while it runs |
//! | `data` | punts from the data process, commands to it |
//! | `receivers` | ports that do not take frames, as several workers see them |
//! | `wires`, `link` | connections to other members, by owner; TCP and TLS without waiting |
//! | `identity`, `certificates` | verification of peers; output of `sluice fabric cert` |
//! | `trust` | certificates that change while the host runs, and their days left |
//! | `seal` | datagrams that only members can have written |
//! | `incarnation` | number of this host's start |
//! | `few` | frequent events as a number in the log, not lines |
//! | `binding` | check whether an added port may be bound |
//! | `answer` | the state of the plane in words |
//! | `agree` | check whether members' settings agree |
//! | `reconfigure` | a changed configuration for the running member |
//! | `calls`, `trace` | questions between members; the path of a frame |
//! | `evpn` | this host as a BGP speaker |
//! | `endpoint_traces` | traces of endpoints that come to this host |
//! | `messages` | messages between the configurations of members |
//!
//! This module decides nothing: [`sluice_control::plane`], which knows no socket, decides about
//! claims, answers, installed entries and trust.

mod agree;
mod answer;
mod binding;
mod calls;
pub mod certificates;
mod data;
mod endpoint_traces;
mod evpn;
mod identity;
mod incarnation;
mod link;
mod member;
mod messages;
mod ports;
mod rate_limiter;
mod receivers;
mod reconfigure;
mod seal;
mod taps;
mod thaw;
mod trace;
mod trust;
mod usage;
mod watchers;
mod wires;

use std::fmt;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustls::time_provider::DefaultTimeProvider;
use sluice_api::fabric as api;
use sluice_base::{HostId, Nanos, PortId};
use sluice_control::plane::{Config, Plane};
use sluice_control::rpc::Failure;
use sluice_control::{punt, resolve};

use self::agree::Agreement;
use self::endpoint_traces::EndpointTraces;
pub(crate) use self::evpn::{ForeignHosts, Vteps};
pub(crate) use self::identity::Wall;
pub(crate) use self::messages::{ConfigPort, NoConfig};

use self::incarnation::Incarnations;
use self::member::{FIRST_WIRE, LISTENER, Member, MemberRequest};
use self::trust::Trust;
use self::watchers::{Watcher, Watchers};
use self::wires::Wires;
use crate::config::{Bound, FabricPlan, LocalPort};
use crate::sys::clock;
use crate::sys::poller::{Poller, Waker};

/// Questions that may wait.
const ASKS_MAX: usize = 64;
/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Longest time for the goodbye.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// Returns the clock of this machine.
pub(crate) fn wall() -> Wall {
    Arc::new(DefaultTimeProvider)
}

/// Returns the certificates of a host, as a member would use them, with those that need attention.
///
/// # Errors
/// If a file cannot be read, or a certificate is of another host or fabric.
pub(crate) fn check_certificates(plan: &FabricPlan) -> anyhow::Result<api::Certificates> {
    Trust::open(plan, wall()).map(|(trust, _)| trust.certificates())
}

/// Answers members' questions about the placement policy.
pub(crate) trait PolicyServer: fmt::Debug + Send + Sync {
    /// Answers a question of a member.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the question cannot be read.
    fn answer(&self, from: HostId, body: &[u8]) -> Result<Vec<u8>, Failure>;
}

/// Handle of other threads for the member.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    asks: SyncSender<MemberRequest>,
    waker: Waker,
    run_dir: PathBuf,
    policy: Arc<dyn PolicyServer>,
    name: Arc<str>,
    agreement: Arc<Agreement>,
    trust: Arc<Trust>,
    config: Arc<dyn ConfigPort>,
    evpn: Arc<evpn::Port>,
    /// Eviction of this host in words, if it was told of one.
    eviction: Arc<Mutex<Option<String>>>,
}

impl Fabric {
    /// Returns the name of this host.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Starts the thread. The first directory has the state that goes with the machine, the second
    /// has the state that outlives it. The thread speaks to no other host before a data process has
    /// reported the contents of its forwarding table, or `silence_max` is over. The clock `wall`
    /// decides when certificates end.
    ///
    /// # Errors
    /// If no other host would accept the certificates, or the address cannot be listened on.
    pub(crate) fn start(
        plan: &FabricPlan,
        (run_dir, state_dir): (&Path, &Path),
        (silence_max, wall): (Nanos, Wall),
        (policy, config_port): (Arc<dyn PolicyServer>, Arc<dyn ConfigPort>),
    ) -> anyhow::Result<Self> {
        let (trust, identity) = Trust::open(plan, wall)?;
        let trust = Arc::new(trust);
        let poller = Poller::new().context("cannot make an epoll instance")?;
        let at = plan.listen;
        let remedy =
            || format!("cannot listen on {at}; is `fabric.address` an address of this host?");
        let identity = (identity, Arc::clone(&trust));
        let wires =
            Wires::listen(at, identity, &poller, LISTENER, FIRST_WIRE).with_context(remedy)?;
        let udp = UdpSocket::bind(at).with_context(remedy)?;
        udp.set_nonblocking(true)?;
        link::mark(&udp)?;
        let started = clock::now();
        let incarnations = Incarnations::of(state_dir);
        let incarnation = incarnations.next();
        let mut config = Config::new(plan.own, incarnation, plan.fabric, plan.ports_max);
        bound(plan, &mut config);
        let seed = incarnation ^ started.0.rotate_left(32);
        let (sender, asks) = sync_channel(ASKS_MAX);
        let run_dir = run_dir.to_owned();
        let (agreement, hosts) = Agreement::new(plan, config_port.is_one());
        let fabric = Self {
            agreement: Arc::new(agreement),
            asks: sender,
            waker: poller.waker(),
            run_dir,
            policy,
            name: plan.name.as_str().into(),
            trust,
            config: Arc::clone(&config_port),
            evpn: Arc::new(evpn::Port::new().context("cannot make an eventfd")?),
            eviction: Arc::default(),
        };
        let mut member = Member {
            plan: plan.clone(),
            ports: ports::Ports::default(),
            plane: Plane::new(&config, seed, started),
            started,
            incarnations,
            poller,
            wires,
            udp,
            asks,
            data: None,
            silent_until: Some(started.after(silence_max)),
            watchers: Watchers::default(),
            few: rate_limiter::RateLimiter::default(),
            taps: taps::Taps::default(),
            udp_ready: true,
            outgoing: Vec::new(),
            calls: calls::Calls::default(),
            config: config_port,
            traces: EndpointTraces::of(plan),
            handle: fabric.clone(),
        };
        member.begin(started)?;
        let (taps, watcher) = (member.taps.clone(), fabric.clone());
        crate::sys::threads::spawn("links", move || taps.watch(&watcher))?;
        let watcher = fabric.clone();
        crate::sys::threads::spawn("certificates", move || trust::watch(&watcher))?;
        crate::sys::threads::spawn("fabric", move || member.run())?;
        agree::start(fabric.clone(), hosts)?;
        Ok(fabric)
    }

    /// Notes that a member is connected: it is asked for its settings.
    fn is_connected(&self, host: HostId) {
        self.agreement.connected(host);
    }

    /// Shows that this host was evicted, in words; `None`: it was not.
    pub(crate) fn show_eviction(&self, why: Option<String>) {
        *self.eviction.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn eviction(&self) -> Option<String> {
        self.eviction.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ask(&self, ask: MemberRequest) {
        // The thread ends only with the process.
        _ = self.asks.send(ask);
        self.waker.wake();
    }

    /// Asks the thread and waits for its answer.
    fn wait<T>(&self, question: impl FnOnce(SyncSender<T>) -> MemberRequest) -> Result<T, String> {
        let late = || format!("the fabric did not answer within {} s", ANSWER_MAX.as_secs());
        self.wait_within(ANSWER_MAX, question).ok_or_else(late)
    }

    /// Asks like [`Self::wait`], with a time limit.
    fn wait_within<T>(
        &self,
        limit: Duration,
        question: impl FnOnce(SyncSender<T>) -> MemberRequest,
    ) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        self.ask(question(reply));
        answer.recv_timeout(limit).ok()
    }

    /// Attaches to the data process of a directory, in place of one that was there.
    pub(crate) fn attach(&self, run_dir: &Path) {
        self.ask(MemberRequest::Attach(run_dir.to_owned()));
    }

    /// Answers a question.
    pub(crate) fn answer(&self, question: api::Question) -> Result<api::Answer, String> {
        if let api::Question::Trace(question) = &question {
            return trace::run(self, question).map(|trace| api::Answer::Trace(Box::new(trace)));
        }
        if let api::Question::Thaw { vnet, endpoint } = question {
            return self.thaw(thaw::Named { vnet, endpoint }).map(api::Answer::Thaw);
        }
        if question == api::Question::Certificates {
            return Ok(api::Answer::Certificates(self.trust.certificates()));
        }
        if question == api::Question::Evpn {
            return self.evpn_state().map(api::Answer::Evpn);
        }
        let mut answer = self.wait(|reply| MemberRequest::Question(question, reply))??;
        if let api::Answer::Members(rows) = &mut answer {
            for row in rows {
                let known = self.agreement.of_named(&row.host);
                (row.program, row.differs) = (known.program, known.differences);
                row.evicted = self.eviction().filter(|_| row.kind == "own");
            }
        }
        match &mut answer {
            api::Answer::Vport(vport) => usage::count(self, std::slice::from_mut(&mut vport.best)),
            api::Answer::Vports(rows) => usage::count(self, rows),
            _ => {}
        }
        Ok(answer)
    }

    /// Adds a port. An earlier port of its name or number is gone.
    pub(crate) fn add_port(
        &self,
        id: PortId,
        port: LocalPort,
        bound: Option<Bound>,
    ) -> Result<(), String> {
        self.wait(|reply| MemberRequest::AddPort(Box::new((id, port, bound)), reply))?
    }

    /// Deletes the port of this name, and withdraws its claims.
    pub(crate) fn del_port(&self, name: &str) -> Result<(), String> {
        self.wait(|reply| MemberRequest::DelPort(name.to_owned(), reply))
    }

    /// Returns a channel with every event from now on.
    pub(crate) fn watch(&self) -> Receiver<api::Answer> {
        let (watcher, events) = Watcher::new();
        self.ask(MemberRequest::Watch(watcher));
        events
    }

    /// Tells those who watch of something that this thread does not know by itself.
    pub(crate) fn tell(&self, event: &'static str, what: String) {
        self.ask(MemberRequest::Tell(event, what));
    }

    /// Says goodbye to all members, as far as that takes no time.
    pub(crate) fn leave(&self) {
        self.leave_evpn();
        let (done, left) = sync_channel(1);
        self.ask(MemberRequest::Leave(done));
        _ = left.recv_timeout(LEAVE_MAX);
    }
}

/// Sets the bounds of the control plane that the configuration of the host names.
fn bound(plan: &FabricPlan, config: &mut Config) {
    config.punt = punt::Config::with_rate(plan.ports_max, plan.punts_per_port);
    config.resolve = resolve::Config::with_rate(plan.ports_max, plan.asks_per_port);
    config.claims_per_host = plan.claims_per_host;
    config.confirmed_life = plan.confirmed;
    config.mobility = plan.moves;
    // One port may use all entries that it is allowed.
    config.learn.entries = config.learn.entries.max(plan.learn_max.min(config.claims_max));
    // The switch evicts entries beyond its capacity without a notice: control would believe them
    // installed, and would neither count nor end them.
    config.flow_limit = plan.chip_flows as usize;
}

#[cfg(test)]
pub(crate) mod tests;
