//! A host: the control plane under test, and a switch as simple as can be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sluice_base::{HostId, Mac, Nanos, PortId, PriorityMask, PuntCause, Vni};
use sluice_control::directory::PortRule;
use sluice_control::plane::{Command, Config, Event, Kind, Location, Plane};
use sluice_control::session::{Due, Timing};
use sluice_control::vport::Key;
use sluice_control::{bucket::Rate, learn, mobility, punt, resolve};
use sluice_wire::ethernet;

use crate::frames;

pub(crate) const PORTS: u16 = 16;
/// The switch gives up on a destination after this time.
const TIMEOUT: Nanos = Nanos::from_millis(800);
/// The switch asks again this often.
const ASK_AGAIN: Nanos = Nanos::from_millis(100);

pub(crate) fn millis(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

pub(crate) fn config(own: HostId, incarnation: u64) -> Config {
    let mut config = Config::new(own, incarnation, [7; 16], PORTS);
    config.session = Timing {
        digest_every: millis(500),
        retry_max: millis(1_000),
        resync_min: millis(200),
        resync_max: millis(1_000),
        ..Timing::DEFAULT
    };
    config.claims_max = 4_000;
    config.tombstones_max = 16;
    config.learn = learn::Config { entries: 64, lifetime: millis(60_000), ..config.learn };
    let fast = Rate { per_second: 10_000, burst: 1_000 };
    config.punt = punt::Config {
        assured: fast,
        questions: 256,
        unknowns: 64,
        unknown_life: millis(1_000),
        ..config.punt
    };
    // The rate is so low that bursts go beyond it; their frames are flooded.
    config.punt.cause[PuntCause::Arp.index()] = Rate { per_second: 2_000, burst: 12 };
    config.resolve = resolve::Config { asks: fast, targets: 64, ..config.resolve };
    config.mobility = mobility::Limits {
        moves: 20,
        window: millis(1_000),
        freeze: millis(1_000),
        history: 256,
        frozen: 16,
        departed: 16,
        often: mobility::Often::Freeze,
        ..config.mobility
    };
    config.flow_limit = 6;
    config.flow_life = millis(2_000);
    config.decap_life = millis(1_500);
    config.tunnel_life = millis(700);
    config.stale_life = millis(15_000);
    config.confirmed_life = millis(2_000);
    config
}

/// Frames that wait for a destination.
struct Waiting {
    since: Nanos,
    asked: Nanos,
    frames: Vec<(Location, Vec<u8>)>,
}

/// Counters of the frames that the switch took, by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenFrames {
    pub(crate) all: u64,
    pub(crate) answered: u64,
    pub(crate) flooded: u64,
    pub(crate) refused: u64,
}

/// Output of a host.
pub(crate) enum Out {
    /// A frame out of a port.
    Port(PortId, Vni, Vec<u8>),
    /// A frame to another host.
    Overlay(HostId, Vni, Vec<u8>),
    /// A datagram to another host.
    Datagram(HostId, Vec<u8>),
    /// Bytes to another host.
    Bytes(HostId, Vec<u8>),
    /// A request for a connection.
    Connect(HostId),
    /// The end of a connection.
    Close(HostId),
}

pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) incarnation: u64,
    pub(crate) plane: Plane,
    pub(crate) clock: Nanos,
    pub(crate) is_down: bool,
    /// True if the host speaks a version with more fields.
    pub(crate) newer: bool,
    pub(crate) fdb: BTreeMap<Key, Location>,
    pub(crate) tunnels: BTreeSet<HostId>,
    pub(crate) decaps: BTreeSet<(Vni, HostId)>,
    /// Endpoints that are held, each with its host and the time of the last command.
    pub(crate) holds: BTreeMap<Key, (HostId, PriorityMask, Nanos)>,
    /// Bindings that the switch was commanded to end.
    pub(crate) unbound: Vec<(PortId, Mac, Option<IpAddr>)>,
    peers: Vec<HostId>,
    ports: BTreeMap<PortId, Vni>,
    pub(crate) taken_frames: TakenFrames,
    waiting: BTreeMap<Key, Waiting>,
    used: BTreeSet<Key>,
    polled: Nanos,
    pub(crate) events: Vec<Event>,
    /// Largest number of rounds of one service.
    pub(crate) rounds_max: usize,
    outs: Vec<Out>,
    /// Peer whose connection takes and gives nothing.
    pub(crate) mute: Option<HostId>,
}

impl Host {
    pub(crate) fn new(config: &Config, seed: u64, clock: Nanos) -> Self {
        Self {
            id: config.own,
            incarnation: config.incarnation,
            plane: Plane::new(config, seed, clock),
            clock,
            is_down: false,
            newer: false,
            fdb: BTreeMap::new(),
            tunnels: BTreeSet::new(),
            decaps: BTreeSet::new(),
            holds: BTreeMap::new(),
            unbound: Vec::new(),
            peers: Vec::new(),
            ports: BTreeMap::new(),
            taken_frames: TakenFrames::default(),
            waiting: BTreeMap::new(),
            used: BTreeSet::new(),
            polled: clock,
            events: Vec::new(),
            rounds_max: 0,
            outs: Vec::new(),
            mute: None,
        }
    }

    pub(crate) fn set_up(&mut self, peers: &[HostId], vnis: &[Vni]) {
        for vni in vnis {
            self.plane.add_vnet(*vni);
        }
        self.peers = peers.iter().copied().filter(|peer| *peer != self.id).collect();
        for peer in &self.peers {
            self.plane.add_host(self.clock, *peer, vnis, Kind::Member);
        }
    }

    pub(crate) fn add_port(&mut self, port: PortId, vni: Vni) {
        let rule = PortRule::Learn { quota: 8, sticky: false };
        assert!(self.plane.add_port(self.clock, port, vni, rule));
        self.ports.insert(port, vni);
    }

    pub(crate) fn remove_port(&mut self, port: PortId) {
        self.plane.remove_port(self.clock, port);
        self.ports.remove(&port);
    }

    pub(crate) fn add_peer(&mut self, peer: HostId, vnis: &[Vni]) {
        self.plane.add_host(self.clock, peer, vnis, Kind::Member);
        if !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
        self.carry_out();
    }

    /// Removes a peer that was evicted: nothing of it is left.
    pub(crate) fn remove_peer(&mut self, peer: HostId) {
        self.plane.dismiss(self.clock, peer);
        self.last_words(peer);
        self.plane.disconnected(self.clock, peer);
        self.plane.remove_host(self.clock, peer);
        self.peers.retain(|known| *known != peer);
        self.carry_out();
    }

    /// Returns true if another host is configured here.
    pub(crate) fn knows(&self, peer: HostId) -> bool {
        self.peers.contains(&peer)
    }

    /// Takes a frame that comes in.
    pub(crate) fn receive(&mut self, from: Location, vni: Vni, bytes: &[u8]) {
        let frame = ethernet::Frame::new_checked(bytes).unwrap();
        let (src, dst) = (Key { vni, mac: frame.src() }, Key { vni, mac: frame.dst() });
        let clock = self.clock;
        match from {
            Location::Port(port) => match self.fdb.get(&src) {
                Some(location) if *location == Location::Port(port) => _ = self.used.insert(src),
                Some(_) => self.plane.punt(clock, from, vni, PuntCause::Moved, bytes),
                None => self.plane.punt(clock, from, vni, PuntCause::NewSource, bytes),
            },
            Location::Host(host) => {
                if !dst.mac.is_group() && self.decaps.insert((vni, host)) {
                    self.plane.decap(clock, vni, host);
                }
            }
        }
        let is_own = matches!(from, Location::Port(_));
        let is_taken = is_own && dst.mac.is_group() && frames::arp_of(bytes).is_some();
        if is_taken {
            self.taken_frames.all += 1;
            self.plane.punt(clock, from, vni, PuntCause::Arp, bytes);
        } else if dst.mac.is_group() {
            self.flood(from, vni, bytes);
        } else if is_own && frames::arp_of(bytes).is_some() {
            self.plane.punt(clock, from, vni, PuntCause::Snooped, bytes);
        }
        if !dst.mac.is_group() {
            // Entries that the control plane has installed for this very frame come first.
            self.carry_out();
            self.forward(from, dst, bytes.to_vec());
        }
        self.carry_out();
    }

    /// Floods to the other ports of the network and, for a frame of an own port, to the other
    /// hosts.
    fn flood(&mut self, from: Location, vni: Vni, bytes: &[u8]) {
        let others =
            self.ports.iter().filter(|(port, of)| **of == vni && from != Location::Port(**port));
        self.outs.extend(others.map(|(port, _)| Out::Port(*port, vni, bytes.to_vec())));
        if matches!(from, Location::Port(_)) {
            let hosts = self.peers.iter().map(|host| Out::Overlay(*host, vni, bytes.to_vec()));
            self.outs.extend(hosts);
        }
    }

    fn forward(&mut self, from: Location, dst: Key, bytes: Vec<u8>) {
        match (self.fdb.get(&dst).copied(), from) {
            (Some(Location::Host(_)), Location::Host(_)) => {} // Split horizon.
            (Some(Location::Port(port)), Location::Port(own)) if port == own => {}
            (Some(location), _) => {
                self.used.insert(dst);
                self.send(location, dst.vni, bytes);
            }
            (None, _) => {
                let now = self.clock;
                let new = Waiting { since: now, asked: now, frames: Vec::new() };
                let is_new = !self.waiting.contains_key(&dst);
                let waiting = self.waiting.entry(dst).or_insert(new);
                if waiting.frames.len() < 32 {
                    waiting.frames.push((from, bytes.clone()));
                }
                if is_new {
                    self.plane.punt(now, from, dst.vni, PuntCause::Miss, &bytes);
                }
            }
        }
    }

    fn send(&mut self, location: Location, vni: Vni, bytes: Vec<u8>) {
        self.outs.push(match location {
            Location::Port(port) => Out::Port(port, vni, bytes),
            Location::Host(host) => {
                assert!(self.tunnels.contains(&host), "{:?} has no tunnel to {host}", self.id);
                Out::Overlay(host, vni, bytes)
            }
        });
    }

    fn hold(&mut self, key: Key, host: HostId, held: PriorityMask, stuck: PriorityMask) {
        assert_eq!(stuck.without(held), PriorityMask::NONE, "what is stuck is held");
        if !held.is_empty() {
            self.holds.insert(key, (host, held, self.clock));
        } else if self.holds.get(&key).is_some_and(|there| there.0 == host) {
            self.holds.remove(&key);
        }
    }

    /// Carries out the commands of the control plane.
    fn carry_out(&mut self) {
        while let Some(command) = self.plane.command() {
            match command {
                Command::Install { vni, mac, to } => {
                    let key = Key { vni, mac };
                    self.fdb.insert(key, to);
                    let waiting = self.waiting.remove(&key);
                    for (from, bytes) in waiting.into_iter().flat_map(|waiting| waiting.frames) {
                        self.forward(from, key, bytes);
                    }
                }
                Command::Remove { vni, mac } => {
                    let was = self.fdb.remove(&Key { vni, mac });
                    assert!(was.is_some(), "what is removed was installed");
                }
                Command::Reject { vni, mac } => drop(self.waiting.remove(&Key { vni, mac })),
                Command::Send { vni, to: Location::Port(port), frame } => {
                    self.taken_frames.answered += 1;
                    self.outs.push(Out::Port(port, vni, frame));
                }
                Command::Send { vni, to: Location::Host(host), frame } => {
                    self.taken_frames.answered += 1;
                    self.outs.push(Out::Overlay(host, vni, frame));
                }
                Command::Flood { vni, from, frame } => {
                    self.taken_frames.flooded += 1;
                    self.flood(from, vni, &frame);
                }
                Command::Refuse { frames, bytes, .. } => {
                    assert!(frames > 0 && bytes >= frames * 14, "frames have bytes");
                    self.taken_frames.refused += frames;
                }
                Command::Unbind { port, mac, ip } => self.unbound.push((port, mac, ip)),
                Command::OpenTunnel { host } => assert!(self.tunnels.insert(host), "twice"),
                Command::CloseTunnel { host } => {
                    assert!(self.tunnels.remove(&host), "it was open");
                    let used = self.fdb.values().any(|location| *location == Location::Host(host));
                    assert!(!used, "nothing in the chip needs a tunnel that is closed");
                    let waits: BTreeSet<_> = self.plane.waiting_decap_flows().collect();
                    let mut of_host = self.decaps.iter().filter(|(_, from)| *from == host);
                    assert!(of_host.all(|flow| waits.contains(flow)), "decap flows");
                }
                Command::Hold { vni, mac, host, held, stuck } => {
                    self.hold(Key { vni, mac }, host, held, stuck);
                }
                Command::ForgetDecap { vni, host } => {
                    assert!(self.decaps.remove(&(vni, host)), "what is forgotten was there");
                }
            }
        }
    }

    /// Runs the switch's own timers, and everything that is due for the control plane.
    pub(crate) fn service(&mut self, room: &BTreeMap<HostId, usize>) -> Vec<Out> {
        let now = self.clock;
        if now.since(self.polled) >= millis(100) || now < self.polled {
            self.polled = now;
            for Key { vni, mac } in std::mem::take(&mut self.used) {
                self.plane.used(now, vni, mac);
            }
        }
        self.waiting.retain(|_, waiting| now.since(waiting.since) < TIMEOUT);
        for (key, waiting) in &mut self.waiting {
            if now.since(waiting.asked) >= ASK_AGAIN {
                waiting.asked = now;
                let (from, head) = &waiting.frames[0];
                self.plane.punt(now, *from, key.vni, PuntCause::Miss, head);
            }
        }
        let mut rounds = 0;
        let mut room = room.clone();
        if let Some(known) = self.plane.outdone() {
            self.incarnation = known + 1;
            for peer in self.plane.reincarnate(now, self.incarnation) {
                let bytes = self.last_words(peer);
                self.outs.push(Out::Bytes(peer, bytes));
                self.outs.push(Out::Close(peer));
            }
        }
        loop {
            self.plane.tick(now);
            while let Some(peer) = self.plane.ready(now) {
                rounds += 1;
                assert!(rounds < 1_000, "{:?}: the session of {peer} is ready for ever", self.id);
                match self.plane.due(now, peer) {
                    Due::Nothing => {}
                    Due::Connect => self.outs.push(Out::Connect(peer)),
                    Due::Hung => self.outs.push(Out::Close(peer)),
                }
                let (mut bytes, room) = (Vec::new(), room.entry(peer).or_default());
                let size = self.plane.write(now, peer, *room, &mut bytes);
                assert!(size == bytes.len() && size <= *room, "it keeps to its budget");
                *room -= size;
                if size > 0 {
                    self.outs.push(Out::Bytes(peer, bytes));
                }
            }
            self.carry_out();
            while let Some((peer, bytes)) = self.plane.datagram_out() {
                self.outs.push(Out::Datagram(peer, bytes));
            }
            while let Some(event) = self.plane.event() {
                assert!(!event.name().is_empty() && !event.to_string().is_empty());
                self.events.push(event);
            }
            rounds += 1;
            if self.plane.deadline().is_none_or(|at| at > now) {
                break;
            }
            assert!(rounds < 1_000, "{:?} is never done: a busy loop", self.id);
        }
        self.rounds_max = self.rounds_max.max(rounds);
        assert_eq!(self.plane.waiting(), (0, 0, 0), "everything was taken");
        std::mem::take(&mut self.outs)
    }

    /// Returns the last bytes for a peer whose connection ends.
    pub(crate) fn last_words(&mut self, peer: HostId) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.plane.write(self.clock, peer, 1_000, &mut bytes);
        bytes
    }

    /// Checks that nothing is swallowed: each frame that the switch took was answered, flooded or
    /// counted as dropped, once.
    fn check_taken_frames(&self) {
        let (taken, counts) = (self.taken_frames, self.plane.counts());
        let given_back = TakenFrames {
            flooded: taken.flooded - counts.asked - counts.announced,
            answered: taken.answered - counts.told - counts.probed,
            ..taken
        };
        assert_eq!(given_back.flooded, counts.flooded, "{:?}: {taken:?}", self.id);
        let ended = given_back.answered + given_back.flooded + given_back.refused;
        assert_eq!(taken.all, ended, "{:?} swallowed frames: {taken:?}, {counts:?}", self.id);
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        self.check_taken_frames();
        let installed: BTreeMap<_, _> =
            self.plane.installed().map(|(key, location, _)| (key, location)).collect();
        assert_eq!(installed, self.fdb, "{:?} knows what is in the chip", self.id);
        let tunnels: BTreeSet<_> = self.plane.tunnels().map(|tunnel| tunnel.host).collect();
        assert_eq!(tunnels, self.tunnels);
        let decaps: BTreeSet<_> =
            self.plane.decap_flows().map(|(vni, host, _)| (vni, host)).collect();
        let waiting: BTreeSet<_> = self.plane.waiting_decap_flows().collect();
        assert!(decaps.is_disjoint(&waiting), "{decaps:?}, {waiting:?}");
        assert_eq!(&decaps | &waiting, self.decaps);
        let held = self.plane.holds().filter(|(_, entry)| entry.is_held);
        let held: BTreeMap<_, _> = held.map(|(key, one)| (key, (one.host, one.held))).collect();
        let commanded: BTreeMap<_, _> =
            self.holds.iter().map(|(key, (host, held, _))| (*key, (*host, *held))).collect();
        assert_eq!(held, commanded, "{:?} knows what is held", self.id);
        for (key, entry) in self.plane.holds() {
            let is_member = self.plane.hosts().any(|info| info.host == entry.host);
            assert!(is_member, "{:?} holds {key:?} for {}, which is gone", self.id, entry.host);
        }
        for (key, (host, ..)) in &self.holds {
            let there = self.fdb.get(key);
            assert_eq!(there, Some(&Location::Host(*host)), "{:?} holds what goes there", self.id);
        }
        let hosts: BTreeSet<_> = self.plane.hosts().map(|info| info.host).collect();
        assert!(self.peers.iter().all(|peer| hosts.contains(peer)), "{:?}: {hosts:?}", self.id);
        for vni in self.plane.vnets().map(|(vni, _)| vni) {
            for vport in self.plane.vports(vni, None, usize::MAX) {
                for owner in self.plane.claims(vport.claim.key).map(|claim| claim.owner) {
                    let is_known = owner == self.id || hosts.contains(&owner);
                    assert!(is_known, "{:?} has a claim of {owner}, which is gone", self.id);
                }
            }
        }
        assert!(self.plane.flow_count() <= 6 && self.plane.wanted_count() <= 64);
        for (key, location) in &self.fdb {
            let vport = self.plane.vport(*key).expect("what is in the chip is in the table");
            let right = match location {
                Location::Port(port) => {
                    vport.vport.owner == self.id && vport.vport.claim.port == *port
                }
                Location::Host(host) => vport.vport.owner == *host,
            };
            assert!(right, "{:?}: {key:?} goes to {location:?}, it is {:?}", self.id, vport.vport);
        }
    }

    pub(crate) fn mac_events(&self, mac: Mac) -> Vec<&'static str> {
        let of = |event: &Event| format!("{event}").contains(&mac.to_string());
        self.events.iter().filter(|event| of(event)).map(Event::name).collect()
    }
}
