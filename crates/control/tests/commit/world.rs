//! A fabric of hosts in one thread: real state machines, a network and disks with faults, all from
//! one seed.

use std::collections::{BTreeMap, BTreeSet};

use sluice_base::{HostId, Nanos, Prng};
use sluice_control::commit::{
    CheckTicket, Done, Formats, Output, Policy, Proposal, Refused, Request, RequestId, TxnId,
    Unwelcome, WriteTicket,
};

use super::check::Checker;
use super::doc::Doc;
use super::host::{Disk, Host};

/// Faults, in parts of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) late: u64,
    /// Crash before or after a write is durable.
    pub(crate) crash_at_write: u64,
    /// Crash right after a change has taken effect.
    pub(crate) crash_at_effect: u64,
    pub(crate) veto: u64,
}

/// Prints what happens; for the eyes of somebody with a failing seed.
const TRACE: bool = false;

enum Event {
    Deliver { from: u16, to: u16, bytes: Vec<u8>, veto: Option<TxnId> },
    Written { host: u16, incarnation: u64, ticket: WriteTicket },
    Checked { host: u16, incarnation: u64, ticket: CheckTicket, id: TxnId, dry: bool },
    Restart { host: u16 },
}

/// A request: the host, its start, and its number there.
pub(crate) type Ticket = (u16, u64, RequestId);

/// A request that was submitted, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) result: Option<Result<Done, Refused>>,
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) prng: Prng,
    pub(crate) faults: Faults,
    pub(crate) hosts: BTreeMap<u16, Host>,
    /// Directions that deliver nothing.
    pub(crate) blocked: BTreeSet<(u16, u16)>,
    /// Connections, as the first sees the second.
    view: BTreeSet<(u16, u16)>,
    events: BTreeMap<(Nanos, u64), Event>,
    sequence: u64,
    seed: u64,
    pub(crate) checker: Checker,
    pub(crate) asked: BTreeMap<Ticket, Asked>,
    /// Messages sent, and messages refused by name.
    pub(crate) sent: u64,
    pub(crate) unwelcome: u64,
    pub(crate) crashes: u64,
    pub(crate) write_failures: u64,
    /// Keeps the messages that were sent.
    pub(crate) keep_sent: bool,
    pub(crate) kept: Vec<(u16, u16, Vec<u8>)>,
    /// Words of hosts about formats.
    pub(crate) said: Vec<(u16, Output)>,
    trace: bool,
}

impl World {
    /// Makes a fabric of `count` hosts: the first creates it, with all as members.
    pub(crate) fn new(seed: u64, count: u16) -> Self {
        let mut prng = Prng::new(seed);
        let members: Vec<_> = (1..=count).map(|host| (host, 1_000 + u64::from(host))).collect();
        let doc = Doc::new(&members);
        let mut world = Self {
            now: Nanos::from_millis(1_000),
            faults: Faults::default(),
            hosts: BTreeMap::new(),
            blocked: BTreeSet::new(),
            view: BTreeSet::new(),
            events: BTreeMap::new(),
            sequence: 0,
            seed,
            checker: Checker::new(Doc::new(&members)),
            asked: BTreeMap::new(),
            sent: 0,
            unwelcome: 0,
            crashes: 0,
            write_failures: 0,
            keep_sent: false,
            kept: Vec::new(),
            said: Vec::new(),
            trace: TRACE,
            prng: prng.clone(),
        };
        for (host, seat) in members {
            let by_key = prng.chance(1, 2);
            let disk = if by_key { Disk::Keys(BTreeMap::new()) } else { Disk::Log(Vec::new()) };
            let host_state = Host {
                id: HostId(host),
                seat,
                version: 2,
                formats: Formats::OWN,
                incarnation: 0,
                starts: 0,
                machine: None,
                disk,
                mark: None,
                old_mark: None,
                writing: None,
                create: (host == 1).then(|| doc.clone()),
                full_until: Nanos::ZERO,
                slow_until: Nanos::ZERO,
                clock: Nanos::ZERO,
                is_removed: false,
            };
            world.hosts.insert(host, host_state);
            world.start(host);
        }
        world
    }

    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10} {}", self.now.0 / 1_000, text());
        }
    }

    fn schedule(&mut self, after: Nanos, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now.after(after), self.sequence), event);
    }

    fn micros(&mut self, low: u64, high: u64) -> Nanos {
        Nanos::from_micros(low + self.prng.below(high - low))
    }

    pub(crate) fn start(&mut self, host: u16) {
        let (now, seed) = (self.now, self.seed);
        self.say(|| format!("{host} starts"));
        let this = self.hosts.get_mut(&host).expect("a host");
        if this.machine.is_none() {
            this.start(now, seed);
            if let Some(machine) = this.machine.as_ref().filter(|m| !m.status().is_removed) {
                self.checker.started(host, machine.revision());
            }
            self.drain(host);
        }
    }

    /// Kills a host's process, or takes the power off its machine.
    pub(crate) fn crash(&mut self, host: u16) {
        let has_power = self.prng.chance(1, 2);
        self.say(|| format!("{host} crashes, and has power: {has_power}"));
        let this = self.hosts.get_mut(&host).expect("a host");
        this.machine = None;
        if !has_power {
            this.mark = this.old_mark;
            self.checker.lost_power(host);
        }
        // A write on its way is durable, or it is not: as a whole.
        if let Some((_, records)) = this.writing.take()
            && self.prng.chance(1, 2)
        {
            this.disk.write(&records);
        }
        self.view.retain(|(viewer, _)| *viewer != host);
        self.checker.crashed(host);
        self.crashes += 1;
        // Its users will not hear from it.
        self.asked.retain(|(at, ..), asked| *at != host || asked.result.is_some());
    }

    pub(crate) fn crash_for(&mut self, host: u16, span: Nanos) {
        self.crash(host);
        self.schedule(span, Event::Restart { host });
    }

    pub(crate) fn restart_after(&mut self, host: u16, span: Nanos) {
        self.schedule(span, Event::Restart { host });
    }

    pub(crate) fn is_up(&self, host: u16) -> bool {
        self.hosts.get(&host).is_some_and(|host| host.machine.is_some())
    }

    pub(crate) fn up(&self) -> Vec<u16> {
        self.hosts.keys().copied().filter(|host| self.is_up(*host)).collect()
    }

    fn clock(&self, host: u16) -> Nanos {
        self.now.after(self.hosts[&host].clock)
    }

    /// Lets hosts see connections as they are, some of them later than others.
    pub(crate) fn look(&mut self, at_once: bool) {
        let ids: Vec<_> = self.hosts.keys().copied().collect();
        for viewer in self.up() {
            for peer in ids.iter().copied().filter(|peer| *peer != viewer) {
                let is_cut = |a, b| self.blocked.contains(&(a, b));
                let real = self.is_up(peer) && !is_cut(viewer, peer) && !is_cut(peer, viewer);
                if real == self.view.contains(&(viewer, peer)) {
                    continue;
                }
                if at_once || self.prng.chance(1, 4) {
                    if real {
                        self.view.insert((viewer, peer));
                    } else {
                        self.view.remove(&(viewer, peer));
                        self.checker.lost_sight(viewer, peer);
                    }
                    self.say(|| format!("{viewer} sees {peer}: {real}"));
                    let now = self.clock(viewer);
                    let this = self.hosts.get_mut(&viewer).expect("a host");
                    if let Some(machine) = &mut this.machine {
                        machine.connected(now, HostId(peer), real);
                    }
                    self.drain(viewer);
                }
            }
        }
    }

    pub(crate) fn submit(&mut self, host: u16, request: Request) -> Ticket {
        let now = self.clock(host);
        self.say(|| format!("{host} is asked for {request:?}"));
        let this = self.hosts.get_mut(&host).expect("a host");
        let machine = this.machine.as_mut().expect("it is up");
        let id = (host, this.incarnation, machine.submit(now, request));
        self.asked.insert(id, Asked { result: None });
        self.drain(host);
        id
    }

    pub(crate) fn commit(&mut self, host: u16, change: &str) -> Ticket {
        self.submit(host, Request::Commit(proposal(change)))
    }

    pub(crate) fn result(&self, id: Ticket) -> Option<&Result<Done, Refused>> {
        self.asked.get(&id)?.result.as_ref()
    }

    /// Runs until a time.
    pub(crate) fn run_until(&mut self, end: Nanos) {
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let due = |host: &Host| {
                let deadline = host.machine.as_ref()?.deadline()?;
                Some((deadline.before(host.clock), host.id.0))
            };
            let tick = self.hosts.values().filter_map(due).min();
            let next = event.into_iter().chain(tick.map(|(at, _)| at)).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if event == Some(at) {
                let (_, event) = self.events.pop_first().expect("it is there");
                self.event(event);
            } else if let Some((_, host)) = tick {
                let now = self.clock(host);
                let this = self.hosts.get_mut(&host).expect("a host");
                if let Some(machine) = &mut this.machine {
                    machine.tick(now);
                    let next = machine.deadline();
                    assert!(next.is_none_or(|next| next > now), "what is due is not done");
                }
                self.drain(host);
            }
        }
        self.now = self.now.max(end);
    }

    pub(crate) fn run_for(&mut self, span: Nanos) {
        self.run_until(self.now.after(span));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, bytes, veto } => self.deliver(from, to, &bytes, veto),
            Event::Written { host, incarnation, ticket } => self.written(host, incarnation, ticket),
            Event::Checked { host, incarnation, ticket, id, dry } => {
                self.checked(host, incarnation, ticket, id, dry);
            }
            Event::Restart { host } => self.start(host),
        }
    }

    /// Delivers a message that nobody has sent. What its receiver does then is lost.
    pub(crate) fn tell(&mut self, from: u16, to: u16, bytes: &[u8]) {
        let now = self.clock(to);
        let this = self.hosts.get_mut(&to).expect("a host");
        if let Some(machine) = &mut this.machine
            && let Err(why) = machine.receive(now, HostId(from), bytes)
        {
            assert!(!why.to_string().is_empty());
            self.unwelcome += 1;
        }
    }

    fn deliver(&mut self, from: u16, to: u16, bytes: &[u8], veto: Option<TxnId>) {
        if self.blocked.contains(&(from, to)) || !self.is_up(to) {
            return;
        }
        let now = self.clock(to);
        let this = self.hosts.get_mut(&to).expect("a host");
        let machine = this.machine.as_mut();
        let received = machine.map_or(Ok(()), |machine| machine.receive(now, HostId(from), bytes));
        // A host that lost its disk is another member, and not everybody knows it yet.
        let is_stranger = matches!(received, Err(Unwelcome::Stranger(_)));
        // Nor is a message read that its sender wrote for the program of the start before.
        let is_unread =
            matches!(received, Err(Unwelcome::Malformed(_) | Unwelcome::OtherFormats { .. }));
        if let Some(id) = veto.filter(|_| !is_stranger && !is_unread) {
            self.checker.veto_arrived(self.now, from, id);
        }
        if let Some(id) = behind(bytes) {
            self.checker.behind_arrived(from, id);
        }
        if let Err(why) = received {
            self.unwelcome += 1;
            self.say(|| format!("{to} refuses a message of {from}: {why}"));
        }
        self.drain(to);
    }

    fn written(&mut self, host: u16, incarnation: u64, ticket: WriteTicket) {
        let crash = self.prng.chance(self.faults.crash_at_write, 1_000);
        let now = self.clock(host);
        let this = self.hosts.get_mut(&host).expect("a host");
        if this.incarnation != incarnation || this.writing.as_ref().is_none_or(|w| w.0 != ticket) {
            return;
        }
        if crash {
            // Half of the time the write is durable, and nobody has heard of it.
            let span = self.micros(10_000, 3_000_000);
            return self.crash_for(host, span);
        }
        let Some(machine) = this.machine.as_mut() else { return };
        let (_, records) = this.writing.take().expect("it was there");
        if this.full_until > self.now {
            self.write_failures += 1;
            machine.write_failed(now, ticket, "no space left on device");
        } else {
            this.disk.write(&records);
            machine.persisted(now, ticket);
        }
        self.drain(host);
    }

    fn checked(&mut self, host: u16, incarnation: u64, ticket: CheckTicket, id: TxnId, dry: bool) {
        let is_veto = self.prng.chance(self.faults.veto, 1_000);
        let now = self.clock(host);
        let this = self.hosts.get_mut(&host).expect("a host");
        if this.incarnation != incarnation {
            return;
        }
        let Some(machine) = this.machine.as_mut() else { return };
        let result = if is_veto { Err("table full".into()) } else { Ok(()) };
        machine.checked(now, ticket, result);
        self.say(|| format!("{host} checked {id}: veto {is_veto}"));
        if is_veto && !dry && id.host.0 == host {
            self.checker.veto_arrived(self.now, host, id);
        }
        self.drain_with(host, is_veto && !dry, id);
    }

    fn drain(&mut self, host: u16) {
        self.drain_with(host, false, TxnId { host: HostId(0), incarnation: 0, number: 0 });
    }

    /// Carries out what a host wants. A message to the originator right after a veto carries it.
    fn drain_with(&mut self, host: u16, is_veto: bool, id: TxnId) {
        loop {
            let this = self.hosts.get_mut(&host).expect("a host");
            if let Some(machine) = &mut this.machine
                && let Some(number) = machine.start_to_take()
            {
                this.starts = number;
                machine.take_start(number);
            }
            let Some(output) = this.machine.as_mut().and_then(super::host::Machine::output) else {
                break;
            };
            let incarnation = this.incarnation;
            match output {
                Output::Send { to, bytes } => {
                    let veto = (is_veto && to == id.host).then_some(id);
                    self.send(host, to.0, bytes, veto);
                }
                Output::Write { ticket, records } => {
                    assert!(this.writing.is_none(), "two writes at a time");
                    let is_slow = this.slow_until > self.now;
                    this.writing = Some((ticket, records));
                    let span = if is_slow {
                        self.micros(20_000, 400_000)
                    } else {
                        self.micros(100, 2_000)
                    };
                    self.schedule(span, Event::Written { host, incarnation, ticket });
                }
                Output::Check { ticket, id, dry, .. } => {
                    if id.host.0 == host {
                        self.checker.begun(self.now, id);
                    }
                    let span = self.micros(10, 1_000);
                    self.schedule(span, Event::Checked { host, incarnation, ticket, id, dry });
                }
                Output::Answer { request, result } => {
                    self.say(|| format!("{host} answers {request:?}: {result:?}"));
                    let machine = self.hosts[&host].machine.as_ref();
                    let has_disk = machine.is_some_and(|machine| machine.status().disk.is_none());
                    self.checker.answered(host, has_disk, &result);
                    if let Some(asked) = self.asked.get_mut(&(host, incarnation, request)) {
                        assert!(asked.result.is_none(), "two answers");
                        asked.result = Some(result);
                    }
                }
                other => self.note(host, other),
            }
        }
        if let Some(machine) = self.hosts[&host].machine.as_ref().filter(|_| !self.keep_sent) {
            self.checker.look(host, &machine.status());
        }
    }

    /// Takes an output that tells what a host knows, and has in force.
    fn note(&mut self, host: u16, output: Output) {
        let this = self.hosts.get_mut(&host).expect("a host");
        match output {
            Output::Keep(mark) => {
                this.mark = Some(mark);
                if self.prng.chance(1, 8) {
                    this.old_mark = Some(mark);
                }
            }
            Output::Installed(revision) => self.checker.installed(host, revision),
            Output::Applied(record) => {
                self.say(|| {
                    let change = String::from_utf8_lossy(&record.change).replace('\n', "; ");
                    let (revision, outcome) = (record.revision, &record.outcome);
                    format!("{host} applies {revision}: {} {change}: {outcome:?}", record.id)
                });
                self.checker.in_force(host, record.revision);
                if !self.keep_sent {
                    self.checker.applied(&record);
                }
                if self.prng.chance(self.faults.crash_at_effect, 1_000) {
                    let span = self.micros(10_000, 3_000_000);
                    self.crash_for(host, span);
                }
            }
            Output::Removed { by } => {
                this.is_removed = true;
                self.say(|| format!("{host} is removed, says {by}"));
            }
            Output::Diverged { host: other, revision } if !self.keep_sent => {
                panic!("{host} and {other} differ at revision {revision}");
            }
            said @ Output::OtherFormats { .. } => self.said.push((host, said)),
            other => self.say(|| format!("{host}: {other:?}")),
        }
    }

    fn send(&mut self, from: u16, to: u16, bytes: Vec<u8>, veto: Option<TxnId>) {
        self.sent += 1;
        if self.keep_sent {
            self.kept.push((from, to, bytes.clone()));
        }
        if !self.hosts.contains_key(&to) || self.prng.chance(self.faults.loss, 1_000) {
            return;
        }
        let copies = 1 + u64::from(self.prng.chance(self.faults.duplicate, 1_000));
        for _ in 0..copies {
            let is_late = self.prng.chance(self.faults.late, 1_000);
            let span = if is_late { self.micros(1_000, 800_000) } else { self.micros(50, 500) };
            self.schedule(span, Event::Deliver { from, to, bytes: bytes.clone(), veto });
        }
    }
}

pub(crate) fn proposal(change: &str) -> Proposal {
    Proposal {
        change: change.as_bytes().to_vec(),
        author: "admin".into(),
        time_ms: 7,
        comment: String::new(),
        policy: Policy::Quorum,
        confirm_within: None,
    }
}

/// Returns the transaction that a message's sender has not caught up with, by a vote's last bytes:
/// its tag, the transaction, and the vote.
fn behind(bytes: &[u8]) -> Option<TxnId> {
    let (rest, vote) = bytes.split_last_chunk::<20>().filter(|(_, vote)| vote[0] == 3)?;
    let word = |at: usize| u64::from_be_bytes(vote[at..at + 8].try_into().expect("8 bytes"));
    let host = HostId(u16::from_be_bytes([vote[1], vote[2]]));
    let id = TxnId { host, incarnation: word(3), number: word(11) };
    (!rest.is_empty() && vote[19] == 3).then_some(id)
}
