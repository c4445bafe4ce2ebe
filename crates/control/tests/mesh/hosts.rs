//! Hosts with a control plane each, and the connections between them, in one thread.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{HostId, Mac, Nanos, PortId, Prng, Vni};
use sluice_control::digest::Digest;
use sluice_control::publisher::Publisher;
use sluice_control::session::{Config, Counts, Due, Error, NoRoom, Replica, Session, Timing};
use sluice_control::vport::{Claim, Key, Origin};
use sluice_wire::fabric::{self, FRAME_SIZE_MAX, Have, Reason};

use crate::messages::Messages;
use crate::skew::with_more_fields;

const TIMING: Timing = Timing {
    digest_every: Nanos::from_millis(500),
    retry_max: Nanos::from_millis(1_000),
    resync_min: Nanos::from_millis(200),
    resync_max: Nanos::from_millis(2_000),
    flight_bytes_max: 20_000,
    ..Timing::DEFAULT
};

/// Distance of the incarnations of a host, so that there are older ones to fall back to.
const INCARNATION_STEP: u64 = 10;

pub(crate) struct Faults {
    /// Replicas without room, and replicas that lose something.
    pub(crate) inside: bool,
}

pub(crate) fn key(n: u32) -> Key {
    Key { vni: Vni::new(1 + n % 3).unwrap(), mac: Mac::from_u64(0x0200_0000_0000 | u64::from(n)) }
}

/// Vports that every host claims all the time, although it changes their claims.
const LASTING: [u32; 3] = [100_000, 100_001, 100_002];

fn is_lasting(key: Key) -> bool {
    LASTING.iter().any(|&n| self::key(n) == key)
}

/// The claims of others, as simple as can be.
#[derive(Default)]
struct Table {
    claims: BTreeMap<HostId, BTreeMap<Key, (Claim, u64)>>,
    marks: BTreeMap<HostId, u64>,
    /// Random refusal of one claim in so many.
    refuse: Option<(u64, Prng)>,
}

impl Replica for Table {
    fn begin_snapshot(&mut self, owner: HostId) {
        *self.marks.entry(owner).or_default() += 1;
    }

    fn claim(&mut self, owner: HostId, claim: &Claim) -> Result<(), NoRoom> {
        if self.refuse.as_mut().is_some_and(|(ratio, rng)| rng.chance(1, *ratio)) {
            return Err(NoRoom);
        }
        let mark = self.marks.get(&owner).copied().unwrap_or(0);
        self.claims.entry(owner).or_default().insert(claim.key, (*claim, mark));
        Ok(())
    }

    fn withdraw(&mut self, owner: HostId, key: Key) {
        self.claims.entry(owner).or_default().remove(&key);
    }

    fn end_snapshot(&mut self, owner: HostId) {
        let mark = self.marks[&owner];
        self.claims.entry(owner).or_default().retain(|key, (_, marked)| {
            assert!(*marked == mark || !is_lasting(*key), "what is claimed all the time is swept");
            *marked == mark
        });
    }

    fn digest(&self, owner: HostId) -> Digest {
        self.claims
            .get(&owner)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(|(claim, _)| claim)
            .collect()
    }
}

impl Table {
    fn equals(&self, owner: HostId, claims: &BTreeMap<Key, Claim>) -> bool {
        let empty = BTreeMap::new();
        let there = self.claims.get(&owner).unwrap_or(&empty);
        there.len() == claims.len() && there.values().map(|(claim, _)| claim).eq(claims.values())
    }
}

struct Host {
    incarnation: u64,
    /// The highest incarnation there ever was.
    incarnation_max: u64,
    publisher: Publisher,
    tombstones_max: usize,
    claims: BTreeMap<Key, Claim>,
    sessions: BTreeMap<HostId, Session>,
    /// The latest incarnation of each peer that its session has known.
    known: BTreeMap<HostId, u64>,
    table: Table,
    clock: Nanos,
    /// True if the host speaks a version with more fields.
    newer: bool,
    /// The host that it claims to be.
    name: HostId,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// Received bytes that are not yet a whole message.
    unread: Vec<u8>,
    /// True if the writer has a connection. Bytes without a reader vanish.
    open: bool,
    /// True if the writer has closed: after the last byte, the reader learns of it.
    ended: bool,
    stalled: bool,
}

pub(crate) struct Mesh {
    rng: Prng,
    seed: u64,
    faults: Faults,
    now: Nanos,
    hosts: BTreeMap<HostId, Host>,
    pipes: BTreeMap<(HostId, HostId), Pipe>,
    pub(crate) messages: Messages,
    capacity: usize,
    /// Counters of former sessions.
    past: Counts,
    /// A replica has lost a claim without its session's knowledge.
    drifted: bool,
    calm: bool,
}

/// Adds up the counters of sessions.
pub(crate) fn add(sum: &mut Counts, counts: Counts) {
    sum.records_sent += counts.records_sent;
    sum.records_received += counts.records_received;
    sum.snapshots_sent += counts.snapshots_sent;
    sum.snapshots_received += counts.snapshots_received;
    sum.digests_differed += counts.digests_differed;
    sum.resyncs += counts.resyncs;
    sum.refused += counts.refused;
    sum.hung += counts.hung;
    sum.errors += counts.errors;
}

impl Mesh {
    /// A mesh of two to five hosts, and faults.
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Prng::stream(seed, "mesh");
        let count = 2 + u16::try_from(rng.below(4)).unwrap();
        let mut mesh = Self::of(seed, count);
        let magnitude = rng.below(16);
        mesh.capacity = 300 + usize::try_from(rng.below(1 << magnitude)).unwrap();
        (mesh.rng, mesh.faults, mesh.calm) = (rng, faults, false);
        for id in mesh.ids() {
            let tombstones_max = [1, 4, 64][mesh.draw(3)];
            mesh.host(id).tombstones_max = tombstones_max;
            mesh.host(id).newer = id.0 % 2 == 0;
            LASTING.iter().for_each(|&n| mesh.claim(id, key(n), 0));
            mesh.restart(id, INCARNATION_STEP);
        }
        mesh
    }

    /// A mesh of so many hosts, without faults.
    pub(crate) fn of(seed: u64, count: u16) -> Self {
        let host = |n| Host {
            incarnation: 1,
            incarnation_max: 1,
            publisher: Publisher::new(1, 1_000),
            tombstones_max: 1_000,
            claims: BTreeMap::new(),
            sessions: BTreeMap::new(),
            known: BTreeMap::new(),
            table: Table::default(),
            clock: Nanos::from_millis(1_000 * u64::from(n)),
            newer: false,
            name: HostId(n),
        };
        let mut mesh = Self {
            rng: Prng::new(seed),
            seed,
            faults: Faults { inside: false },
            now: Nanos::ZERO,
            hosts: (1..=count).map(|n| (HostId(n), host(n))).collect(),
            pipes: BTreeMap::new(),
            messages: Messages::default(),
            capacity: 100_000,
            past: Counts::default(),
            drifted: false,
            calm: true,
        };
        for (from, to) in mesh.pairs() {
            mesh.pipes.insert((from, to), Pipe::default());
        }
        for id in mesh.ids() {
            mesh.restart(id, 1);
        }
        mesh
    }

    fn ids(&self) -> Vec<HostId> {
        self.hosts.keys().copied().collect()
    }

    fn pairs(&self) -> Vec<(HostId, HostId)> {
        let all = |a: HostId| self.ids().into_iter().map(move |b| (a, b));
        self.ids().into_iter().flat_map(all).filter(|(a, b)| a != b).collect()
    }

    fn host(&mut self, id: HostId) -> &mut Host {
        self.hosts.get_mut(&id).unwrap()
    }

    fn draw(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap()
    }

    fn some_pair(&mut self) -> (HostId, HostId) {
        let pairs = self.pairs();
        pairs[self.draw(pairs.len())]
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Restarts the process of a host: only some of its claims are left.
    fn restart(&mut self, id: HostId, incarnation: u64) {
        for other in self.ids().into_iter().filter(|other| *other != id) {
            let tells = self.rng.chance(1, 2);
            self.close(id, other, tells);
        }
        let (peers, seed) = (self.ids(), self.seed);
        let keep = self.rng.below(5);
        let mut rng = Prng::new(self.rng.next_u64());
        let host = self.hosts.get_mut(&id).unwrap();
        host.incarnation = incarnation;
        host.incarnation_max = host.incarnation_max.max(incarnation);
        host.publisher = Publisher::new(incarnation, host.tombstones_max);
        host.claims.retain(|key, _| is_lasting(*key) || rng.below(5) <= keep);
        for claim in host.claims.values() {
            host.publisher.claim(claim);
        }
        host.table = Table::default();
        host.known.clear();
        for session in std::mem::take(&mut host.sessions).into_values() {
            add(&mut self.past, session.counts());
        }
        for peer in peers.into_iter().filter(|peer| *peer != id) {
            let versions = (fabric::VERSIONS.0, fabric::VERSIONS.1 + u8::from(host.newer));
            let config = Config { own: id, peer, fabric: [7; 16], versions, timing: TIMING };
            host.sessions.insert(peer, Session::new(config, seed ^ u64::from(id.0)));
            host.publisher.set_peer(peer, 0);
        }
    }

    /// Ends the connection at the side of `from`. The other side learns of it if it `tells`.
    fn close(&mut self, from: HostId, to: HostId, tells: bool) {
        let pipe = self.pipes.get_mut(&(from, to)).unwrap();
        pipe.ended = pipe.open && tells;
        pipe.open = false;
        if !tells {
            pipe.bytes.clear();
        }
        self.pipes.get_mut(&(to, from)).unwrap().bytes.clear();
    }

    /// Cuts the connection of two hosts on both sides, anywhere in the stream.
    pub(crate) fn cut(&mut self, a: HostId, b: HostId) {
        for (from, to) in [(a, b), (b, a)] {
            let (open, clock) = (self.pipes[&(from, to)].open, self.hosts[&from].clock);
            if open {
                self.host(from).sessions.get_mut(&to).unwrap().disconnected(clock);
            }
            *self.pipes.get_mut(&(from, to)).unwrap() = Pipe::default();
        }
    }

    /// Stalls the connection of two hosts: bytes stay on their way.
    pub(crate) fn stall(&mut self, a: HostId, b: HostId, stalled: bool) {
        for pair in [(a, b), (b, a)] {
            self.pipes.get_mut(&pair).unwrap().stalled = stalled;
        }
    }

    pub(crate) fn claim(&mut self, id: HostId, key: Key, moves: u32) {
        let ip = IpAddr::from(Ipv4Addr::from_bits(moves % 7));
        // The port names the publisher.
        let ips = [ip].into_iter().collect();
        let claim = Claim { key, port: PortId(id.0), ips, origin: Origin::Learned, moves };
        let host = self.host(id);
        host.claims.insert(key, claim);
        host.publisher.claim(&claim);
    }

    pub(crate) fn withdraw(&mut self, id: HostId, key: Key) {
        let host = self.host(id);
        host.claims.remove(&key);
        host.publisher.withdraw(key);
    }

    /// Changes some vports.
    pub(crate) fn change(&mut self) {
        for id in self.ids() {
            let changes = [0, 0, 1, 3, 60][self.draw(5)];
            for _ in 0..changes {
                let wide = if self.rng.chance(1, 10) { 1_500 } else { 40 };
                let key = key(u32::try_from(self.rng.below(wide)).unwrap());
                let moves = u32::try_from(self.rng.below(1_000)).unwrap();
                if self.rng.chance(1, 10) {
                    let n = LASTING[self.draw(LASTING.len())];
                    self.claim(id, self::key(n), moves);
                }
                if self.rng.chance(2, 5) {
                    self.withdraw(id, key);
                } else {
                    self.claim(id, key, moves);
                }
            }
        }
        for (from, to) in self.pairs() {
            if self.rng.chance(1, 10) {
                let magnitude = self.draw(17);
                let size = self.draw(1 << magnitude);
                self.send(from, to, size);
            }
        }
    }

    /// Sends a message of a host, if it has a connection that takes any.
    pub(crate) fn send(&mut self, from: HostId, to: HostId, size: usize) {
        let message = self.messages.next(from, to, size);
        let session = self.hosts.get_mut(&from).unwrap().sessions.get_mut(&to).unwrap();
        if session.send(message.into()).is_ok() {
            self.messages.sent(from, to);
        }
    }

    /// Makes some fault, perhaps.
    pub(crate) fn fault(&mut self) {
        let (a, b) = self.some_pair();
        match self.draw(120) {
            0..3 => self.cut(a, b),
            3 => {
                let clock = self.hosts[&a].clock;
                self.host(a).sessions.get_mut(&b).unwrap().disconnected(clock);
                self.close(a, b, false);
            }
            4..6 => self.stall(a, b, true),
            6..10 => self.stall(a, b, false),
            10 => {
                let incarnation = self.hosts[&a].incarnation_max + INCARNATION_STEP;
                self.restart(a, incarnation);
            }
            11 => {
                let incarnation = self.hosts[&a].incarnation.saturating_sub(3).max(1);
                self.restart(a, incarnation);
            }
            12 => {
                let jump = Nanos(self.rng.below(20_000_000_000));
                let host = self.host(a);
                host.clock = host.clock.after(jump);
            }
            13 => {
                let jump = Nanos(self.rng.below(20_000_000_000));
                let host = self.host(a);
                host.clock = host.clock.before(jump);
            }
            14 => self.host(a).name = b,
            15..18 => self.host(a).name = a,
            18 => self.host(a).sessions.get_mut(&b).unwrap().close(),
            19..22 if self.faults.inside => {
                let rng = Prng::new(self.rng.next_u64());
                let ratio = 1 + self.rng.below(300);
                self.host(a).table.refuse = self.rng.chance(1, 2).then_some((ratio, rng));
            }
            22..26 if self.faults.inside => self.drift(a, b),
            _ => {}
        }
    }

    fn drift(&mut self, id: HostId, owner: HostId) {
        let index = self.draw(40);
        let Some(claims) = self.host(id).table.claims.get_mut(&owner) else { return };
        if let Some(&key) = claims.keys().nth(index) {
            claims.remove(&key);
            self.drifted = true;
        }
    }

    /// Lets some milliseconds pass: bytes arrive, and hosts answer.
    pub(crate) fn step(&mut self) {
        let span = Nanos(1 + self.rng.below(20_000_000));
        self.now = self.now.after(span);
        for host in self.hosts.values_mut() {
            host.clock = host.clock.after(span);
        }
        for (from, to) in self.pairs() {
            self.deliver(from, to);
        }
        for (id, peer) in self.pairs() {
            let host = self.hosts.get_mut(&id).unwrap();
            let session = host.sessions.get_mut(&peer).unwrap();
            match session.tick(host.clock) {
                Due::Nothing => {}
                Due::Connect => self.connect(id, peer),
                Due::Hung => {
                    let tells = self.calm || self.rng.chance(1, 2);
                    self.close(id, peer, tells);
                }
            }
            self.write(id, peer);
            let host = self.hosts.get_mut(&id).unwrap();
            let incarnation = host.sessions[&peer].incarnation();
            let known = host.known.insert(peer, incarnation).unwrap_or(0);
            assert!(incarnation >= known, "{id:?} takes an old incarnation of {peer:?}");
        }
    }

    fn connect(&mut self, a: HostId, b: HostId) {
        for (from, to) in [(a, b), (b, a)] {
            let stalled = self.pipes[&(from, to)].stalled;
            let pipe = Pipe { open: true, stalled, ..Pipe::default() };
            self.pipes.insert((from, to), pipe);
            self.messages.connected(from, to);
            let host = self.host(from);
            host.sessions.get_mut(&to).unwrap().connected(host.clock);
        }
    }

    fn deliver(&mut self, from: HostId, to: HostId) {
        let magnitude = self.rng.below(17);
        let most = self.draw(1 << magnitude) + usize::from(self.calm) * 20_000;
        let reads = self.pipes[&(to, from)].open;
        let pipe = self.pipes.get_mut(&(from, to)).unwrap();
        if pipe.stalled {
            return;
        }
        let count = most.min(pipe.bytes.len());
        let arrived = pipe.bytes.drain(..count);
        if !reads {
            drop(arrived);
            return;
        }
        pipe.unread.extend(arrived);
        assert!(
            pipe.unread.len() < FRAME_SIZE_MAX + count,
            "what is not read is less than a frame"
        );
        let ended = pipe.ended && pipe.bytes.is_empty();
        let host = self.hosts.get_mut(&to).unwrap();
        let session = host.sessions.get_mut(&from).unwrap();
        let taken = session.stream(host.clock, &pipe.unread, &mut host.publisher, &mut host.table);
        while let Some(message) = session.message() {
            self.messages.received(from, to, &message);
        }
        match taken {
            Ok(used) => drop(pipe.unread.drain(..used)),
            Err(error) => {
                assert!(is_planned(&error), "{from:?} at {to:?}: {error}");
                self.write(to, from);
                let clock = self.hosts[&to].clock;
                self.host(to).sessions.get_mut(&from).unwrap().disconnected(clock);
                self.close(to, from, true);
                return;
            }
        }
        if ended {
            session.disconnected(host.clock);
            self.close(to, from, false);
            self.pipes.get_mut(&(from, to)).unwrap().ended = false;
        }
    }

    fn write(&mut self, from: HostId, to: HostId) {
        let pipe = self.pipes.get_mut(&(from, to)).unwrap();
        let budget = self.capacity.saturating_sub(pipe.bytes.len());
        let mut out = Vec::new();
        let host = self.hosts.get_mut(&from).unwrap();
        let session = host.sessions.get_mut(&to).unwrap();
        let due = session.deadline(&host.publisher).is_some_and(|at| at <= host.clock);
        let size = session.write(host.clock, &host.publisher, budget, &mut out);
        assert!(size <= budget && size == out.len(), "{size} of {budget} bytes");
        assert!(due || size == 0, "what is sent was due");
        if host.name != from && out.get(2) == Some(&1) {
            out[10..12].copy_from_slice(&host.name.0.to_be_bytes());
        }
        if host.newer {
            out = with_more_fields(&out);
        }
        if pipe.open {
            pipe.bytes.extend(out);
        }
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        for (id, peer) in self.pairs() {
            let (host, owner) = (&self.hosts[&id], &self.hosts[&peer]);
            let session = &host.sessions[&peer];
            assert!(session.flight_bytes() <= TIMING.flight_bytes_max, "{id:?} to {peer:?}");
            for (claim, _) in host.table.claims.get(&peer).into_iter().flat_map(BTreeMap::values) {
                assert_eq!(claim.port.0, peer.0, "{id:?} has a claim of another as {peer:?}'s");
            }
            let last = Have { incarnation: owner.incarnation, sequence: owner.publisher.last() };
            if last.sequence > 0 && session.have() == last && !self.drifted {
                assert!(self.agree(peer, id), "{id:?} says it has all of {peer:?}");
            }
            // The acknowledgement is from this very process of the peer.
            let same = owner.sessions[&id].incarnation() == host.incarnation;
            let acked = owner.publisher.acked_by(id) == Some(last.sequence);
            if last.sequence > 0 && same && acked && !self.drifted {
                assert!(self.agree(peer, id), "{peer:?} hears that {id:?} has all");
            }
        }
        for host in self.hosts.values() {
            let held = host.publisher.tombstone_count();
            assert!(held <= host.tombstones_max);
            assert!(host.publisher.log_len() <= 2 * (host.claims.len() + held) + 64);
        }
    }

    /// Returns true if a host has exactly the claims of another.
    pub(crate) fn agree(&self, owner: HostId, id: HostId) -> bool {
        self.hosts[&id].table.equals(owner, &self.hosts[&owner].claims)
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.calm = true;
        for (a, b) in self.pairs() {
            self.stall(a, b, false);
        }
        for id in self.ids() {
            let host = self.host(id);
            (host.name, host.table.refuse) = (id, None);
            if host.incarnation < host.incarnation_max {
                let incarnation = host.incarnation_max + INCARNATION_STEP;
                self.restart(id, incarnation);
            }
        }
    }

    fn settled(&self) -> bool {
        self.pairs().into_iter().all(|(id, peer)| {
            let (host, owner) = (&self.hosts[&id], &self.hosts[&peer]);
            let (session, tells) = (&host.sessions[&peer], &owner.sessions[&id]);
            let last = Have { incarnation: owner.incarnation, sequence: owner.publisher.last() };
            let has_all = session.is_up() && session.is_whole() && session.have() == last;
            has_all && tells.is_done(&owner.publisher) && self.agree(peer, id)
        }) && self.messages.all_received()
    }

    /// Checks that all hosts agree soon, and that it stays that way.
    pub(crate) fn settle(&mut self) {
        let begin = self.now;
        while !self.settled() {
            self.step();
            self.check();
            assert!(self.now.since(begin).0 < 60_000_000_000, "replicas do not settle");
        }
        for (from, to) in self.pairs() {
            [1, 5_000, 3].into_iter().for_each(|size| self.send(from, to, size));
        }
        // Long enough for two digests; a drift at the last moment is found by the first.
        let quiet = self.now;
        while self.now.since(quiet).0 < 1_200_000_000 {
            self.step();
        }
        let before = self.counts();
        while self.now.since(quiet).0 < 3_600_000_000 {
            self.step();
        }
        let after = self.counts();
        assert!(self.settled(), "what has settled stays");
        assert_eq!((before.resyncs, before.hung), (after.resyncs, after.hung), "it is quiet");
        assert_eq!(before.errors, after.errors, "it is quiet");
        assert_eq!(before.snapshots_sent, after.snapshots_sent, "it is quiet");
        assert!(self.drifted || after.digests_differed == 0, "nothing is lost without a reason");
        for host in self.hosts.values() {
            assert_eq!(host.publisher.digest(), host.claims.values().collect());
            assert_eq!(host.publisher.tombstone_count(), 0, "all have acknowledged them");
        }
    }

    /// Returns the counters of all sessions.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = self.past;
        for session in self.hosts.values().flat_map(|host| host.sessions.values()) {
            add(&mut sum, session.counts());
        }
        sum
    }
}

/// Returns true for errors that `Mesh::fault` makes; no other error may end a connection.
fn is_planned(error: &Error) -> bool {
    use Reason::{Leaving, StaleIncarnation, WrongHost};
    match error {
        Error::StaleIncarnation { .. } | Error::WrongHost(_) => true,
        Error::Bye(reason) => matches!(reason, Leaving | StaleIncarnation | WrongHost),
        _ => false,
    }
}
