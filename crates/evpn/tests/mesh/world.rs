//! Speakers, all connected with each other by a network in memory that cuts bytes anywhere and
//! loses connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{Mac, Nanos, Prng, Vni};
use sluice_evpn::{
    Action, Change, Config, Endpoint, Event, Limits, Link, MacKey, Mobility, NeighborConfig,
    NeighborId, Network, RemoteMac, RouteTarget, Side, Speaker,
};

const STALE_MAX: Nanos = Nanos::from_millis(30_000);

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_closed: bool,
}

/// An end of a connection: a speaker, and the link as it knows it.
type End = (usize, Link);

#[derive(Debug)]
struct Connection {
    ends: [End; 2],
    /// Bytes to each end.
    pipes: [Pipe; 2],
}

/// All speakers and connections.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) speakers: Vec<Speaker>,
    connections: Vec<Connection>,
    /// What the changes of each speaker say.
    pub(crate) told: Vec<BTreeMap<MacKey, RemoteMac>>,
    pub(crate) flood: Vec<BTreeMap<(Vni, Ipv4Addr), ()>>,
    pub(crate) events: Vec<Vec<Event>>,
    pub(crate) random: Prng,
    /// True: no speaker can connect.
    pub(crate) is_cut: bool,
}

pub(crate) fn vtep(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(index + 1).unwrap())
}

pub(crate) fn vni() -> Vni {
    Vni::new(42).unwrap()
}

pub(crate) fn key(number: u64) -> MacKey {
    MacKey { vni: vni(), mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

pub(crate) fn network() -> Network {
    Network { vni: vni(), target: RouteTarget::of_as(65000, 42) }
}

pub(crate) fn endpoint(key: MacKey, last: u8) -> Endpoint {
    let ips = vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))];
    Endpoint { key, ips, mobility: Mobility::default() }
}

/// Returns the number of a speaker in the configuration of another one.
fn neighbor_of(me: usize, other: usize) -> NeighborId {
    NeighborId(if other < me { other } else { other - 1 })
}

impl World {
    /// Makes `count` speakers, in one AS or in one each.
    pub(crate) fn new(seed: u64, count: usize, is_internal: bool) -> Self {
        let as_of =
            |index: usize| 65000 + if is_internal { 0 } else { u32::try_from(index).unwrap() };
        let now = Nanos::from_millis(1_000);
        let speakers = (0..count).map(|me| {
            let others = (0..count).filter(|other| *other != me);
            let neighbors = others.map(|other| NeighborConfig {
                address: vtep(other).into(),
                remote_as: as_of(other),
                is_passive: false,
            });
            let config = Config {
                local_as: as_of(me),
                router_id: vtep(me),
                vtep: vtep(me),
                hold_s: 9,
                stale_max: STALE_MAX,
                neighbors: neighbors.collect(),
                limits: Limits::default(),
            };
            let mut speaker = Speaker::new(config, seed + me as u64, now);
            speaker.add_network(now, network());
            speaker
        });
        Self {
            now,
            speakers: speakers.collect(),
            connections: Vec::new(),
            told: vec![BTreeMap::new(); count],
            flood: vec![BTreeMap::new(); count],
            events: vec![Vec::new(); count],
            random: Prng::new(seed),
            is_cut: false,
        }
    }

    /// Takes all out of a speaker.
    fn drain(&mut self, index: usize) {
        self.speakers[index].tick(self.now);
        while let Some(change) = self.speakers[index].change() {
            match change {
                Change::Mac { key, to: Some(to), .. } => _ = self.told[index].insert(key, to),
                Change::Mac { key, to: None, .. } => _ = self.told[index].remove(&key),
                Change::Vtep { vni, vtep, is_there: true } => {
                    self.flood[index].insert((vni, vtep), ());
                }
                Change::Vtep { vni, vtep, .. } => _ = self.flood[index].remove(&(vni, vtep)),
            }
        }
        while let Some(event) = self.speakers[index].event() {
            self.events[index].push(event);
        }
        self.flush(index);
        while let Some(action) = self.speakers[index].action() {
            match action {
                Action::Connect(neighbor) => self.connect(index, neighbor),
                Action::Close(link) => {
                    self.flush(index);
                    self.close((index, link));
                }
            }
        }
        self.flush(index);
    }

    fn connect(&mut self, me: usize, neighbor: NeighborId) {
        let other = neighbor.0 + usize::from(neighbor.0 >= me);
        let own = Link { neighbor, side: Side::Active };
        let accepted =
            if self.is_cut { None } else { self.speakers[other].accept(self.now, vtep(me).into()) };
        let Some(theirs) = accepted else {
            return self.speakers[me].disconnected(self.now, own);
        };
        assert_eq!(theirs.neighbor, neighbor_of(other, me));
        self.speakers[me].connected(self.now, neighbor);
        let ends = [(me, own), (other, theirs)];
        self.connections.push(Connection { ends, pipes: Default::default() });
    }

    fn close(&mut self, end: End) {
        let Some(at) = self.connections.iter().position(|known| known.ends.contains(&end)) else {
            return;
        };
        let connection = &mut self.connections[at];
        let other = usize::from(connection.ends[0] == end);
        connection.pipes[other].is_closed = true;
        // The near side reads no more.
        connection.pipes[1 - other] = Pipe { is_closed: true, ..Pipe::default() };
        let (index, link) = end;
        self.speakers[index].disconnected(self.now, link);
        connection.ends[1 - other] = (usize::MAX, link);
        self.finish();
    }

    /// Removes connections that both sides have closed.
    fn finish(&mut self) {
        self.connections.retain(|known| known.ends.iter().any(|end| end.0 != usize::MAX));
    }

    /// Puts all output of a speaker into the pipes.
    fn flush(&mut self, index: usize) {
        for connection in &mut self.connections {
            for side in 0..2 {
                let (there, link) = connection.ends[side];
                if there != index {
                    continue;
                }
                loop {
                    let bytes = self.speakers[index].output(self.now, link).to_vec();
                    if bytes.is_empty() {
                        break;
                    }
                    connection.pipes[1 - side].bytes.extend(&bytes);
                    self.speakers[index].sent(self.now, link, bytes.len());
                }
            }
        }
    }

    /// Delivers some bytes of one direction; false if there is nothing to deliver.
    fn deliver(&mut self, connection: usize, side: usize, most: usize) -> bool {
        let end = self.connections[connection].ends[side];
        let pipe = &mut self.connections[connection].pipes[side];
        if end.0 == usize::MAX {
            return false;
        }
        if pipe.bytes.is_empty() {
            if pipe.is_closed {
                self.close(end);
                self.drain(end.0);
                return true;
            }
            return false;
        }
        let size = pipe.bytes.len().min(most);
        let bytes: Vec<u8> = pipe.bytes.drain(..size).collect();
        self.speakers[end.0].receive(self.now, end.1, &bytes);
        self.drain(end.0);
        true
    }

    /// Delivers a random piece of a random direction.
    pub(crate) fn deliver_some(&mut self) {
        if self.connections.is_empty() {
            return;
        }
        let connection = self.pick(self.connections.len());
        let (side, most) = (self.pick(2), 1 + self.pick(300));
        self.deliver(connection, side, most);
    }

    pub(crate) fn pick(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap()
    }

    /// Lets time pass, with what is due.
    pub(crate) fn pass(&mut self, span: Nanos) {
        let end = self.now.after(span);
        loop {
            for index in 0..self.speakers.len() {
                self.drain(index);
            }
            while self.deliver_all() {}
            let due = self.speakers.iter().filter_map(Speaker::deadline).min();
            match due.filter(|due| *due < end) {
                Some(due) => {
                    assert!(due > self.now, "what is due is not done");
                    self.now = due;
                }
                None => break,
            }
        }
        self.now = end;
        for index in 0..self.speakers.len() {
            self.drain(index);
        }
    }

    fn deliver_all(&mut self) -> bool {
        for connection in 0..self.connections.len() {
            for side in 0..2 {
                if self.deliver(connection, side, usize::MAX) {
                    return true;
                }
            }
        }
        false
    }

    /// Cuts a random connection: both sides see it closed.
    pub(crate) fn cut_one(&mut self) {
        if !self.connections.is_empty() {
            let at = self.pick(self.connections.len());
            self.cut(at);
        }
    }

    /// Cuts all connections.
    pub(crate) fn cut_all(&mut self) {
        while !self.connections.is_empty() {
            self.cut(0);
        }
    }

    fn cut(&mut self, at: usize) {
        for (index, link) in self.connections.remove(at).ends {
            if index != usize::MAX {
                self.speakers[index].disconnected(self.now, link);
                self.drain(index);
            }
        }
    }

    /// Loses all that is on its way, and all that will be, without an end of any connection.
    pub(crate) fn black_hole(&mut self) {
        for connection in &mut self.connections {
            connection.pipes = Default::default();
            for end in &mut connection.ends {
                // Nobody delivers to an end without a speaker.
                end.0 = usize::MAX;
            }
        }
    }

    pub(crate) fn announce(&mut self, index: usize, key: MacKey) -> u32 {
        let last = u8::try_from(index + 1).unwrap();
        let sequence = self.speakers[index].announce(endpoint(key, last)).unwrap();
        self.drain(index);
        sequence
    }

    pub(crate) fn withdraw(&mut self, index: usize, key: MacKey) {
        self.speakers[index].withdraw(key);
        self.drain(index);
    }

    /// Returns where a speaker believes a MAC to be, by its changes.
    pub(crate) fn place(&self, index: usize, key: MacKey) -> Option<Ipv4Addr> {
        let told = self.told[index].get(&key).map(|remote| remote.vtep);
        assert_eq!(told, self.speakers[index].remote(key).map(|remote| remote.vtep));
        told
    }
}
