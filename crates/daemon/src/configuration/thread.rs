//! The thread of the configuration: it gives the commit protocol time, messages and completed
//! writes, and carries its outputs out. It waits for nobody: writes, joins and the effect of a
//! configuration have threads of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use sluice_api::config::HostConfig;
use sluice_api::fabric_config::{AuthorityEntry, FabricConfig, Operation, read_change};
use sluice_api::reload::{AtRestart, Reloaded};
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{
    CheckTicket, Commit, Output, Record, Replica as _, RequestId, Transaction, TxnId, WriteTicket,
};

use super::admission::Admission;
use super::authority::Keeper;
use super::checker::{Checker, Wanted};
use super::effect::Effect;
use super::marker::Marker;
use super::opened::Opened;
use super::replica::Document;
use super::requests::{Asked, Waiting};
use super::setup::announce_member;
use super::standing::OwnStanding;
use super::store::Disk;
use super::traces::Transactions;
use super::{Configuration, Event, InForce, Own, words};
use crate::config::member::{HostFile, compose};
use crate::config::trunks;
use crate::discovery::Announcer;
use crate::enroll::{Files, Fingerprint, JoinListener, join_port};
use crate::fabric::{Fabric, Wall, wall};
use crate::sys::clock;
use crate::sys::log::say;
use crate::sys::threads::spawn_behind;

/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Events that are taken before outputs are carried out.
const BATCH_MAX: usize = 64;
/// Time between two looks at the days that certificates have left.
const RENEWAL_EVERY: Nanos = Nanos::from_millis(3_600_000);
/// Time between two attempts to write to a disk that refuses.
const DISK_RETRY: Duration = Duration::from_millis(500);
/// Writes that may wait for the disk.
const WRITES_MAX: usize = 64;

/// What the thread works with.
pub(crate) struct Parts {
    /// Control.
    pub(crate) force: Arc<dyn InForce>,
    /// The way to other members.
    pub(crate) fabric: Fabric,
    /// Address on which the fabric listens.
    pub(crate) listen: SocketAddr,
}

impl Opened {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there is no thread, or hosts that join cannot be listened for.
    pub(crate) fn start(self, parts: Parts) -> anyhow::Result<()> {
        let (sender, events) = (self.handle.events.clone(), self.events);
        let writes = start_disk(self.disk.clone(), sender.clone())?;
        let keeper = Arc::clone(&self.handle.keeper);
        let effect = Effect::start(Arc::clone(&parts.force), Arc::clone(&keeper), sender.clone())?;
        let checker =
            Checker::start(Arc::clone(&parts.force), Arc::clone(&keeper), sender.clone())?;
        let wall = wall();
        let files = Files::of(&self.own.state_dir);
        let credentials = files.load(super::setup::now_s(&wall))?;
        let at = join_port(parts.listen.port()).context("the fabric's port is the last one")?;
        let at = SocketAddr::new(parts.listen.ip(), at);
        let admission = Arc::new(Admission(sender.clone()));
        let joins = JoinListener::start(at, &credentials, admission, &wall)
            .with_context(|| format!("cannot listen on {at} for hosts that join"))?;
        keeper.serve(parts.fabric.clone(), joins);
        if let Some(known) = self.commit.replica() {
            // The host may have been killed after a change, and before its files followed.
            _ = keeper.settle(&known.config().trust);
        }
        let traces = Transactions::of(&self.own.local.api, &self.own.place.name);
        let thread = Thread {
            own: self.own,
            commit: self.commit,
            bootstrap: self.bootstrap,
            connected: BTreeSet::new(),
            disk: self.disk,
            writes,
            effect,
            force: parts.force,
            fabric: parts.fabric,
            heard_bytes: Arc::clone(&self.handle.heard_bytes),
            handle: self.handle,
            keeper,
            files,
            wall,
            asked: BTreeMap::new(),
            waiting: Vec::new(),
            in_force: InEffect::default(),
            given: 0,
            is_given: false,
            deleting: BTreeMap::new(),
            settled: Vec::new(),
            rereads: Vec::new(),
            announced: None,
            checker,
            left_out: Vec::new(),
            renewal_at: clock::now(),
            standing: OwnStanding::default(),
            next_authority: None,
            has_left: false,
            farewell: None,
            parting: None,
            marker: self.marker,
            unfit: self.unfit,
            traces,
        };
        spawn_behind("configuration", move || thread.run(&events))
    }
}

/// Returns the whole configuration of this host.
pub(super) fn compose_own(own: &Own, shared: &FabricConfig) -> Result<HostConfig, String> {
    let at = (own.place.name.as_str(), own.state_dir.as_path());
    compose(&own.local, Some(&own.place.underlay), shared, at)
}

/// Starts the thread that writes. A disk that refuses is tried again: nothing is acknowledged
/// before it is durable.
fn start_disk(
    disk: Disk,
    events: SyncSender<Event>,
) -> anyhow::Result<SyncSender<(WriteTicket, Vec<Record>)>> {
    let (sender, writes) = sync_channel::<(WriteTicket, Vec<Record>)>(WRITES_MAX);
    spawn_behind("disk", move || {
        let mut has_failed = false;
        while let Ok((ticket, records)) = writes.recv() {
            let result = disk.write(&records).map_err(|error| format!("{error:#}"));
            match (&result, has_failed) {
                (Err(why), false) => say!(error: "the configuration cannot be written: {why}"),
                (Ok(()), true) => say!("the configuration can be written again"),
                _ => {}
            }
            has_failed = result.is_err();
            if has_failed {
                std::thread::sleep(DISK_RETRY);
            }
            if events.send(Event::Written(ticket, result)).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

/// The configuration in force at this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InEffect {
    /// Revision that control was given last, and has answered.
    pub(super) revision: u64,
    /// Its parts that take effect at a restart.
    pub(super) at_restart: Vec<String>,
    /// Reason why it is not in force: the one before is.
    pub(super) failed: Option<String>,
}

pub(super) struct Thread {
    pub(super) own: Own,
    pub(super) commit: Commit<Document>,
    /// The fabric as it was known when this host became a member.
    bootstrap: FabricConfig,
    /// Members that are connected.
    pub(super) connected: BTreeSet<HostId>,
    pub(super) disk: Disk,
    writes: SyncSender<(WriteTicket, Vec<Record>)>,
    effect: Effect,
    pub(super) force: Arc<dyn InForce>,
    pub(super) fabric: Fabric,
    heard_bytes: Arc<AtomicUsize>,
    /// The way to this thread, for those that it starts.
    pub(super) handle: Configuration,
    pub(super) keeper: Arc<Keeper>,
    pub(super) files: Files,
    pub(super) wall: Wall,
    /// Requests that the protocol works on.
    pub(super) asked: BTreeMap<RequestId, Asked>,
    /// Requests whose change is committed, and that wait for its effect.
    pub(super) waiting: Vec<Waiting>,
    /// The configuration in force here.
    pub(super) in_force: InEffect,
    /// Revision that control was given last. Voters that change, and transactions that end without
    /// an effect, make revisions that control is never given.
    pub(super) given: u64,
    /// True if control has the fabric's configuration, not only what the join said of it. It gets a
    /// snapshot when that is durable, some time after the replica has it.
    pub(super) is_given: bool,
    /// Networks that open reservations delete.
    deleting: BTreeMap<TxnId, Vec<String>>,
    /// Those who wait until the configuration is known and in force.
    pub(super) settled: Vec<SyncSender<()>>,
    /// Replies that wait for the effect of the host's file, with the number of the job.
    rereads: Vec<(u64, SyncSender<Result<Reloaded, String>>)>,
    checker: Checker,
    /// The announcement, with the fingerprint of the authority that it names. It ends with the
    /// thread.
    announced: Option<(String, Option<Announcer>)>,
    /// Parts of the configuration that this host's file leaves no room for, as they were logged.
    left_out: Vec<String>,
    renewal_at: Nanos,
    pub(super) standing: OwnStanding,
    /// Authority that is to follow, as of the last change.
    pub(super) next_authority: Option<AuthorityEntry>,
    pub(super) has_left: bool,
    /// Reason for which the host leaves, until control is told.
    pub(super) farewell: Option<String>,
    /// Time until which a changed configuration waits for the log to go on without a host.
    pub(super) parting: Option<Nanos>,
    marker: Marker,
    /// Reason why the host's file was not in force at the start, until it is.
    unfit: Option<String>,
    /// Traces of own transactions, if they are wanted.
    pub(super) traces: Option<Transactions>,
}

impl Thread {
    fn run(mut self, events: &Receiver<Event>) {
        // Control has started with this configuration.
        self.in_force.revision = self.commit.revision();
        self.given = self.in_force.revision;
        self.is_given = self.commit.replica().is_some();
        self.in_force.failed.clone_from(&self.unfit);
        if self.unfit.is_some() {
            self.put_in_force();
        }
        self.tell_left_out();
        self.note_next_authority();
        loop {
            self.renew(clock::now());
            self.take_start();
            self.carry_out();
            self.part(clock::now());
            self.answer_waiting(clock::now());
            self.answer_settled();
            self.bid_farewell();
            match events.recv_timeout(self.sleep()) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.trace_phase();
            for event in events.try_iter().take(BATCH_MAX) {
                self.take(event);
                self.trace_phase();
            }
            self.look_at_standing(clock::now());
            if self.standing.evicted().is_none() {
                self.commit.tick(clock::now());
            }
            self.trace_phase();
        }
    }

    /// Takes the number of a start that no earlier member of this number has used.
    fn take_start(&mut self) {
        let Some(number) = self.commit.start_to_take() else { return };
        match self.disk.put_start(number) {
            Ok(()) => self.commit.take_start(number),
            Err(error) => say!(warn: "this host cannot make changes yet: {error:#}"),
        }
    }

    fn sleep(&self) -> Duration {
        let now = clock::now();
        // A host that was evicted begins nothing.
        let next = self.commit.deadline().filter(|_| self.standing.evicted().is_none()).into_iter();
        let next = next.chain(self.waiting.iter().map(Waiting::until)).chain(self.parting).min();
        let wait = next.map_or(SLEEP_MAX, |at| Duration::from_nanos(at.since(now).0));
        wait.min(SLEEP_MAX)
    }

    fn take(&mut self, event: Event) {
        let now = clock::now();
        match event {
            Event::Ask(question, answer) => self.ask(now, *question, answer),
            Event::Heard(from, bytes) => {
                self.heard_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                if self.standing.evicted().is_some() {
                    return;
                }
                if let Err(error) = self.commit.receive(now, from, &bytes) {
                    let from = words::name(self.shared(), from);
                    say!(debug: "a message of {from} about the configuration is ignored: {error}");
                }
            }
            Event::Connected(host, is_up) => {
                match is_up {
                    true => self.connected.insert(host),
                    false => self.connected.remove(&host),
                };
                self.commit.connected(now, host, is_up);
            }
            Event::Written(ticket, Ok(())) => self.commit.persisted(now, ticket),
            Event::Written(ticket, Err(why)) => self.commit.write_failed(now, ticket, &why),
            Event::Admit(candidate) => self.admit(now, *candidate),
            Event::Standing(asker, reply) => self.answer_standing(&asker, &reply),
            Event::Told(by, answer) => self.told(&by, *answer),
            Event::Effect { number, revision, result } => self.has_effect(number, revision, result),
            Event::Checked(ticket, id, result) => {
                if result.is_err() {
                    self.deleting.remove(&id);
                }
                self.commit.checked(now, ticket, result);
            }
            Event::Reread(reply) => self.reread(reply),
            Event::Settled(settled) => self.settled.push(settled),
            Event::MayUse(vnet, answer) => {
                let is_going = self.deleting.values().flatten().any(|name| *name == vnet);
                let reason = || format!("network `{vnet}` is about to be deleted; try again");
                _ = answer.send(if is_going { Err(reason()) } else { Ok(()) });
            }
        }
    }

    /// Takes the result of a configuration that control was given.
    fn has_effect(&mut self, number: u64, revision: u64, result: Result<Reloaded, String>) {
        let line = |part: &AtRestart| format!("{}: {}", part.key, part.why);
        let (at_restart, failed) = match &result {
            Ok(done) => (done.at_restart.iter().map(line).collect(), None),
            Err(why) => (Vec::new(), Some(why.clone())),
        };
        if let Some(traces) = &mut self.traces {
            traces.in_effect(clock::now(), revision, failed.as_deref());
        }
        // The host's file fits now, and all of it counts, as at a start.
        if failed.is_none() && self.unfit.take().is_some() {
            say!("the file of this host fits the fabric's configuration");
            if !at_restart.is_empty() {
                self.force.begin_anew();
            }
        }
        // An earlier one may be tried again while a later one could not even be given.
        if revision >= self.in_force.revision {
            self.in_force = InEffect { revision, at_restart, failed };
        }
        let done = self.rereads.extract_if(.., |(asked, _)| *asked <= number);
        done.for_each(|(_, reply)| _ = reply.send(result.clone()));
    }

    /// Returns the shared configuration as far as it is known: that of the join, until the first
    /// snapshot comes.
    pub(super) fn shared(&self) -> &FabricConfig {
        self.commit.replica().map_or(&self.bootstrap, Document::config)
    }

    fn carry_out(&mut self) {
        let mut has_changed = false;
        while let Some(output) = self.commit.output() {
            match output {
                Output::Send { to, bytes } => self.fabric.send_config(to, bytes),
                Output::Write { ticket, records } => _ = self.writes.send((ticket, records)),
                Output::Keep(mark) => self.marker.keep(&mark),
                Output::Check { ticket, id, change, dry } => self.check(ticket, id, &change, dry),
                Output::Released { id } => _ = self.deleting.remove(&id),
                Output::Applied(transaction) => {
                    self.deleting.remove(&transaction.id);
                    self.tell_transaction(&transaction);
                    self.trace_commit(&transaction);
                    has_changed = true;
                }
                Output::Installed(_) => has_changed = true,
                Output::Confirmed(id) => {
                    let by = words::name(self.shared(), id.host);
                    self.fabric.tell("transaction-confirmed", format!("of {by}"));
                    say!("what {} changed is confirmed", words::name(self.shared(), id.host));
                }
                Output::Answer { request, result } => self.answered(request, result),
                Output::Progress { host, progress } => self.trace_progress(host, progress.revision),
                Output::Diverged { host, revision } => {
                    let host = words::name(self.shared(), host);
                    say!(
                        error: "{host} has another configuration at revision {revision} than this \
                                host; evict it, and let it join again"
                    );
                }
                Output::OtherFormats { host, theirs, ours } => {
                    let host = words::name(self.shared(), host);
                    say!(
                        error: "{host} takes part in no change: its program has {theirs} of the \
                                members' messages, and this host's has {ours}; upgrade the older \
                                one (`sluice upgrade`)"
                    );
                }
                Output::KeptAside { epoch, entries } => {
                    say!(
                        warn: "{entries} entries of epoch {} are kept aside, as another history \
                               holds",
                        epoch.number
                    );
                }
                Output::Removed { by } => {
                    let by = words::name(self.shared(), by);
                    self.leave(&format!("{by} says that this host is no member any more"));
                }
                Output::Stranger { by } => {
                    let by = words::name(self.shared(), by);
                    say!(
                        error: "{by} knows this host by another disk; evict it there, and let it \
                                join again"
                    );
                }
                Output::Halted(what) => say!(
                    error: "a transaction is not understood ({what}); the configuration before it \
                            stays in force until `sluice upgrade`"
                ),
            }
        }
        if has_changed {
            self.is_given = true;
            self.note_next_authority();
            self.begin_to_part(clock::now());
            self.announce();
        }
    }

    /// Tells those who watch of a change.
    fn tell_transaction(&self, transaction: &Transaction) {
        let by = words::name(self.shared(), transaction.id.host);
        let undone = if transaction.undoes { ", not confirmed in time" } else { "" };
        let changes = words::change(&transaction.change).join("; ");
        let revision = transaction.revision;
        self.fabric.tell("transaction", format!("revision {revision} by {by}{undone}: {changes}"));
    }

    /// Gives control the configuration that holds now.
    pub(super) fn put_in_force(&mut self) {
        self.tell_left_out();
        let shared = self.shared();
        if !shared.members.contains_key(&self.own.place.name) {
            self.leave("the fabric has removed this host");
            return;
        }
        match compose_own(&self.own, shared) {
            Ok(config) => {
                let shared = shared.clone();
                self.given = self.commit.revision();
                self.effect.put(self.given, config, &shared);
            }
            Err(why) => {
                say!(error: "the configuration cannot be put in force: {why}");
                let revision = self.commit.revision();
                self.in_force = InEffect { revision, at_restart: Vec::new(), failed: Some(why) };
            }
        }
    }

    /// Logs what of the configuration this host's file leaves no room for, once.
    fn tell_left_out(&mut self) {
        let all = trunks::ports(&self.own.local, self.shared()).left_out;
        for why in all.iter().filter(|why| !self.left_out.contains(why)) {
            say!(warn: "left out at this host: {why}");
        }
        self.left_out = all;
    }

    /// Announces this host at its underlay, by the authority that signs now.
    pub(super) fn announce(&mut self) {
        if !self.standing.may_announce() {
            // Who listens would take this host for a member.
            self.announced = None;
            return;
        }
        let known = self.shared();
        let signs = known.trust.authorities.first().and_then(|pem| Fingerprint::of_pem(pem));
        let signs = signs.map(|fingerprint| fingerprint.to_string()).unwrap_or_default();
        if self.announced.as_ref().is_some_and(|(announced, _)| *announced == signs) {
            return;
        }
        let vtep = known.members.get(&self.own.place.name).map(|member| member.vtep);
        // The one from before leaves its socket first.
        self.announced = None;
        let announcer = vtep.and_then(|vtep| announce_member(&self.own.place, vtep, &signs));
        self.announced = Some((signs, announcer));
    }

    /// Ends this host's membership, when those who have asked are answered.
    pub(super) fn leave(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.farewell = Some(why.to_owned());
        }
    }

    /// Checks a change against what only this host knows.
    fn check(&mut self, ticket: CheckTicket, id: TxnId, change: &[u8], dry: bool) {
        let wanted = self.next_config(change);
        if !dry && wanted.is_ok() {
            // From now on no port comes into a network that the change deletes.
            let deleted = read_change(change).unwrap_or_default().into_iter();
            let deleted = deleted.filter_map(|operation| match operation {
                Operation::DeleteVnet { name } => Some(name),
                _ => None,
            });
            self.deleting.insert(id, deleted.collect());
        }
        if !self.checker.check(ticket, id, wanted) {
            self.deleting.remove(&id);
            let busy = "it is busy with other changes; try again".to_owned();
            self.commit.checked(clock::now(), ticket, Err(busy));
        }
    }

    /// Returns what a change would make of this host, if it concerns the host.
    fn next_config(&self, change: &[u8]) -> Result<Option<Wanted>, String> {
        let Some(document) = self.commit.replica() else { return Ok(None) };
        let mut next = document.clone();
        next.apply(change).map_err(|refusal| refusal.to_string())?;
        // A host that is taken out has no say.
        if !next.config().members.contains_key(&self.own.place.name) {
            return Ok(None);
        }
        let (from, to) = (&document.config().trust, &next.config().trust);
        let trust = (from != to).then(|| Box::new((from.clone(), to.clone())));
        let left_out = |shared| trunks::ports(&self.own.local, shared).left_out;
        let before = left_out(document.config());
        let clashes: Vec<String> =
            left_out(next.config()).into_iter().filter(|why| !before.contains(why)).collect();
        if !clashes.is_empty() {
            return Err(clashes.join("; "));
        }
        let config = compose_own(&self.own, next.config())?;
        let (from, to) = (&document.config().placement, &next.config().placement);
        let placement = to.as_ref().filter(|_| from != to);
        let placement = placement.map(|stamped| Box::new(stamped.policy.clone()));
        Ok(Some(Wanted { config, trust, placement }))
    }

    /// Reads the host's file again.
    fn reread(&mut self, reply: SyncSender<Result<Reloaded, String>>) {
        let read = match &self.own.file {
            None => Err("this host has no file; its configuration is the fabric's".to_owned()),
            Some(path) => match HostFile::open(path) {
                Ok(HostFile::Local(local)) => Ok(local),
                Ok(HostFile::Whole) => {
                    Err(format!("{} cannot be read, or says what the fabric says", path.display()))
                }
                Err(why) => Err(why),
            },
        };
        let next = read.and_then(|mut local| {
            self.own.place.name.clone_into(&mut local.host.name);
            let next = Own { local: *local, ..self.own.clone() };
            Ok((compose_own(&next, self.shared())?, next))
        });
        match next {
            // A restart of this process would not begin with the configuration of now: it is about
            // to be put in force, with this file.
            Ok((_, next)) if !self.commit.may_take_effect() => {
                self.own = next;
                self.rereads.push((self.effect.next_number(), reply));
            }
            Ok((config, next)) => {
                let shared = self.shared().clone();
                self.own = next;
                self.tell_left_out();
                self.given = self.commit.revision();
                let number = self.effect.put(self.given, config, &shared);
                self.rereads.push((number, reply));
            }
            Err(why) => _ = reply.send(Err(why)),
        }
    }

    /// Shows hosts that join the certificate of now: the fabric's thread renews it before it ends.
    fn renew(&mut self, now: Nanos) {
        if now < self.renewal_at {
            return;
        }
        self.renewal_at = now.after(RENEWAL_EVERY);
        if let Err(why) = self.keeper.show_joins() {
            say!(warn: "hosts that join may see an old certificate: {why}");
        }
        if let Some(known) = self.commit.replica() {
            // What a full disk has refused.
            _ = self.keeper.settle(&known.config().trust);
        }
    }
}
