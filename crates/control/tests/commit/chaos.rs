//! Faults of all kinds at random, then none, then what must be true.

use sluice_base::Nanos;
use sluice_control::commit::{Done, Policy, Request};

use super::check::Counts;
use super::doc::compose;
use super::world::{Faults, World, proposal};

/// Period of new faults and new work.
const PERIOD: Nanos = Nanos::from_millis(50);
/// Time within which everything is well after the last fault.
const HEALED_WITHIN: Nanos = Nanos::from_millis(30_000);

pub(crate) struct Chaos {
    pub(crate) world: World,
    /// Changes of members that the operator wants, until the document has them.
    wanted: Vec<(u16, Option<u64>)>,
    next_name: u64,
    next_seat: u64,
}

/// Events of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) counts: Counts,
    pub(crate) sent: u64,
    pub(crate) crashes: u64,
    pub(crate) write_failures: u64,
    pub(crate) lost_disks: u64,
    pub(crate) evicted: u64,
    pub(crate) unwelcome: u64,
}

/// Runs a seed to its end.
pub(crate) fn run(seed: u64) -> Seen {
    let mut chaos = Chaos::new(seed);
    let mut seen = Seen::default();
    for _ in 0..160 {
        chaos.fault(&mut seen);
        chaos.work();
        chaos.world.look(false);
        chaos.world.run_for(PERIOD);
    }
    chaos.heal();
    chaos.settle();
    let world = &chaos.world;
    seen.counts = world.checker.counts;
    seen.sent = world.sent;
    seen.crashes = world.crashes;
    seen.write_failures = world.write_failures;
    seen.unwelcome = world.unwelcome;
    seen
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let count = 3 + u16::try_from(seed % 5).expect("small");
        let mut world = World::new(seed, count);
        world.look(true);
        world.run_for(Nanos::from_millis(2_000));
        world.faults = Faults {
            loss: world.prng.below(100),
            duplicate: world.prng.below(100),
            late: world.prng.below(150),
            crash_at_write: world.prng.below(8),
            crash_at_effect: world.prng.below(20),
            veto: world.prng.below(80),
        };
        Self { world, wanted: Vec::new(), next_name: 0, next_seat: 5_000 }
    }

    fn any_up(&mut self) -> Option<u16> {
        let up = self.world.up();
        let place = self.world.prng.below(up.len().max(1) as u64);
        up.get(usize::try_from(place).expect("small")).copied()
    }

    fn any(&mut self) -> u16 {
        let ids: Vec<_> = self.world.hosts.keys().copied().collect();
        let place = self.world.prng.below(ids.len() as u64);
        ids[usize::try_from(place).expect("small")]
    }

    fn span(&mut self, millis: u64) -> Nanos {
        Nanos::from_millis(1 + self.world.prng.below(millis))
    }

    /// Begins or ends a fault.
    fn fault(&mut self, seen: &mut Seen) {
        let (a, b) = (self.any(), self.any());
        let now = self.world.now;
        match self.world.prng.below(60) {
            0 | 1 if a != b => _ = self.world.blocked.insert((a, b)),
            2 if a != b => self.world.blocked.extend([(a, b), (b, a)]),
            3 => self.isolate(a),
            4..=8 => {
                let first = self.world.blocked.iter().next().copied();
                first.map(|cut| self.world.blocked.remove(&cut));
            }
            9 => self.world.blocked.clear(),
            10 | 11 if self.world.is_up(a) => {
                let span = self.span(2_000);
                self.world.crash_for(a, span);
            }
            12 => {
                let until = now.after(self.span(2_000));
                self.world.hosts.get_mut(&a).expect("a host").full_until = until;
            }
            13 => {
                let until = now.after(self.span(2_000));
                self.world.hosts.get_mut(&a).expect("a host").slow_until = until;
            }
            14 => {
                let jump = self.span(10_000);
                let host = self.world.hosts.get_mut(&a).expect("a host");
                host.clock = host.clock.after(jump);
                self.world.checker.clock_jumped(a);
            }
            15 => self.lose_disk(a, seen),
            16 => self.evict(a, seen),
            17 if self.world.is_up(a) => {
                let host = self.world.hosts.get_mut(&a).expect("a host");
                host.version = 3 - host.version;
                let span = self.span(300);
                self.world.crash_for(a, span);
                // An older version stops before an operation that it does not know.
                self.world.checker.forgets(a);
            }
            _ => {}
        }
        self.rejoin();
    }

    fn isolate(&mut self, host: u16) {
        let others: Vec<_> =
            self.world.hosts.keys().copied().filter(|other| *other != host).collect();
        self.world
            .blocked
            .extend(others.into_iter().flat_map(|other| [(host, other), (other, host)]));
    }

    /// Loses a disk for good, if a quorum of others is left.
    fn lose_disk(&mut self, host: u16, seen: &mut Seen) {
        let machines = self.world.hosts.values().filter_map(|host| host.machine.as_ref());
        let newest = self.world.checker.newest();
        let is_whole = machines.map(super::host::Machine::status).any(|status| {
            status.progress.is_some_and(|progress| progress.revision == newest)
                && status.departing.is_empty()
                && status.voters.len() >= 3
        });
        if !is_whole || !self.wanted.is_empty() {
            return;
        }
        if self.world.is_up(host) {
            self.world.crash(host);
        }
        seen.lost_disks += 1;
        let seat = self.new_seat(host);
        self.wanted.push((host, Some(seat)));
        let span = self.span(1_000);
        self.world.restart_after(host, span);
    }

    fn new_seat(&mut self, host: u16) -> u64 {
        self.next_seat += 1;
        let this = self.world.hosts.get_mut(&host).expect("a host");
        this.seat = self.next_seat;
        this.create = None;
        this.is_removed = false;
        this.writing = None;
        this.disk.clear();
        this.starts = 0;
        self.world.checker.forgets(host);
        self.next_seat
    }

    fn evict(&mut self, host: u16, seen: &mut Seen) {
        if self.wanted.is_empty() && self.world.hosts.len() > 3 {
            self.wanted.push((host, None));
            seen.evicted += 1;
        }
    }

    /// Lets hosts that know that they are evicted join anew.
    fn rejoin(&mut self) {
        let mut hosts = self.world.hosts.values();
        let removed = hosts.find(|host| host.is_removed && host.machine.is_some());
        let Some(host) = removed.map(|host| host.id.0) else { return };
        if self.wanted.iter().any(|(other, _)| *other != host) {
            return;
        }
        self.wanted.clear();
        self.world.crash(host);
        let seat = self.new_seat(host);
        self.wanted.push((host, Some(seat)));
        self.world.start(host);
    }

    /// Submits what the operator wants, and something else.
    fn work(&mut self) {
        let Some(at) = self.any_up() else { return };
        self.forget_done();
        if let Some((host, seat)) = self.wanted.first().copied()
            && self.world.prng.chance(1, 4)
        {
            let machine = self.world.hosts[&at].machine.as_ref().expect("it is up");
            let is_member = machine.doc().is_some_and(|doc| doc.members.contains_key(&host));
            let evict = if is_member { format!("evict {host}\n") } else { String::new() };
            let join = seat.map(|seat| format!("member {host} {seat}")).unwrap_or_default();
            let change = format!("{evict}{join}");
            if !change.is_empty() {
                self.world.commit(at, change.trim());
            }
        }
        match self.world.prng.below(20) {
            0..=3 => {
                self.next_name += 1;
                let change = format!("add n{} {at}", self.next_name);
                let mut proposal = proposal(&change);
                proposal.policy = self.policy();
                self.world.submit(at, Request::Commit(proposal));
            }
            4 | 5 => {
                let name = 1 + self.world.prng.below(self.next_name.max(1));
                let verb = if self.world.prng.chance(1, 3) { "mark" } else { "set" };
                self.next_name += 1;
                let change = format!("{verb} n{name} v{}", self.next_name);
                self.world.commit(at, &change);
            }
            6 => {
                let name = 1 + self.world.prng.below(self.next_name.max(1));
                self.world.commit(at, &format!("del n{name}"));
            }
            7 => {
                self.next_name += 1;
                let mut proposal = proposal(&format!("add c{} 1", self.next_name));
                proposal.confirm_within = Some(self.span(3_000));
                self.world.submit(at, Request::Commit(proposal));
            }
            8 => _ = self.world.submit(at, Request::Confirm),
            9 => _ = self.world.submit(at, Request::Check(b"add dry 1".to_vec())),
            10 => self.roll_back(at),
            11 => _ = self.world.submit(at, Request::Revert),
            _ => {}
        }
    }

    fn policy(&mut self) -> Policy {
        match self.world.prng.below(6) {
            0 => Policy::RequireAll,
            1 => Policy::Wait(self.span(1_000)),
            _ => Policy::Quorum,
        }
    }

    /// Undoes the last transaction, unless it was one of members.
    fn roll_back(&mut self, at: u16) {
        let machine = self.world.hosts[&at].machine.as_ref().expect("it is up");
        let history = machine.history();
        let Some(before) = history.iter().rev().nth(1).map(|record| record.revision) else {
            return;
        };
        let inverses = machine.inverses(before).expect("it is remembered");
        let change = String::from_utf8(compose(&inverses)).expect("text");
        if !change.is_empty() && !change.contains("member") && !change.contains("evict") {
            self.world.commit(at, &change);
        }
    }

    fn forget_done(&mut self) {
        let doc = self.world.checker.document();
        self.wanted.retain(|(host, seat)| doc.members.get(host).copied() != *seat);
        // Evicted again before it had heard that it was a member.
        let is_gone = |(_, seat): &&(u16, Option<u64>)| seat.is_some_and(|s| doc.gone.contains(&s));
        if let Some((host, _)) = self.wanted.iter().find(is_gone).copied() {
            if self.world.is_up(host) {
                self.world.crash(host);
            }
            let seat = self.new_seat(host);
            self.wanted = vec![(host, Some(seat))];
            self.world.start(host);
        }
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.world.say(|| "heals".into());
        self.world.faults = Faults::default();
        self.world.blocked.clear();
        let ids: Vec<_> = self.world.hosts.keys().copied().collect();
        for id in ids {
            let host = self.world.hosts.get_mut(&id).expect("a host");
            (host.full_until, host.slow_until) = (Nanos::ZERO, Nanos::ZERO);
            if host.version == 1 && host.machine.is_some() {
                self.world.crash(id);
            }
            self.world.hosts.get_mut(&id).expect("a host").version = 2;
            self.world.start(id);
        }
        let end = self.world.now.after(HEALED_WITHIN);
        while !(self.forget_done(), self.wanted.is_empty()).1 {
            assert!(self.world.now < end, "{:?} is not done", self.wanted);
            self.world.look(true);
            self.rejoin();
            self.work();
            self.world.run_for(PERIOD);
        }
    }

    fn is_settled(&self) -> bool {
        let doc = self.world.checker.document();
        let members = doc.members.keys().filter_map(|host| self.world.hosts.get(host));
        let statuses: Vec<_> = members
            .filter_map(|host| host.machine.as_ref().map(|machine| (host, machine.status())))
            .collect();
        let (_, first) = &statuses[0];
        let is_leader_known = first.leader.is_some();
        is_leader_known
            && statuses.len() == doc.members.len()
            && first.voters.len() == if statuses.len() > 2 { 3 } else { statuses.len() }
            && statuses.iter().all(|(host, status)| {
                status.progress == first.progress
                    && status.leader == first.leader
                    && status.reserved.is_empty()
                    && status.unconfirmed.is_none()
                    && status.disk.is_none()
                    && status.halted.is_none()
                    && host.machine.as_ref().and_then(|machine| machine.doc()) == Some(doc.clone())
            })
    }

    /// Requires that all members agree soon, with nothing left behind, and that all can commit.
    pub(crate) fn settle(&mut self) {
        self.wait_until_settled();
        // Requests that were queued may still come, and time out.
        self.world.run_for(Nanos::from_millis(8_000));
        self.world.look(true);
        self.wait_until_settled();
        let members: Vec<_> = self.world.checker.document().members.into_keys().collect();
        for host in members {
            let asked = self.world.commit(host, &format!("add final{host} 1"));
            self.world.run_for(Nanos::from_millis(2_000));
            let result = self.world.result(asked);
            assert!(matches!(result, Some(Ok(Done::Committed { .. }))), "{host}: {result:?}");
        }
        assert!(self.is_settled(), "at the end: {}", self.describe());
    }

    fn wait_until_settled(&mut self) {
        let end = self.world.now.after(HEALED_WITHIN);
        while !self.is_settled() {
            assert!(self.world.now < end, "not settled: {}", self.describe());
            self.world.look(true);
            self.world.run_for(PERIOD);
        }
    }

    fn describe(&self) -> String {
        let hosts = self.world.hosts.iter().map(|(id, host)| {
            let status = host.machine.as_ref().map(|machine| {
                let status = machine.status();
                (
                    status.leader,
                    status.term,
                    status.voters,
                    status.progress.map(|progress| progress.revision),
                    status.reserved,
                    status.unconfirmed,
                    status.disk,
                    status.halted,
                )
            });
            format!("\n{id} removed {}: {status:?}", host.is_removed)
        });
        hosts.collect()
    }
}
