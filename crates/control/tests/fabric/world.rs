//! Hosts, endpoints, and the links between them, in one thread and from one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use sluice_base::{HostId, Mac, Nanos, PortId, PriorityMask, Prng, ReceiverState, Vni};
use sluice_control::mobility::Limits;
use sluice_control::plane::Location;
use sluice_control::session::Error;
use sluice_control::vport::Key;
use sluice_wire::arp;
use sluice_wire::fabric::{self, Reason};

use crate::frames;
use crate::host::{Host, Out, PORTS, config, millis};
use crate::skew::with_more_fields;

#[path = "membership.rs"]
mod membership;

/// An endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Vm {
    pub(crate) key: Key,
    pub(crate) ip: Ipv4Addr,
    pub(crate) host: HostId,
    pub(crate) port: PortId,
    pub(crate) bound: bool,
    /// True if the endpoint sends nothing on its own.
    pub(crate) is_silent: bool,
}

impl Vm {
    fn own(&self) -> (Mac, Ipv4Addr) {
        (self.key.mac, self.ip)
    }
}

enum Packet {
    Overlay(HostId, HostId, Vni, Vec<u8>),
    Datagram(HostId, HostId, Vec<u8>),
    ToPort(HostId, PortId, Vni, Vec<u8>),
    FromVm(usize, Vec<u8>),
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    unread: Vec<u8>,
    /// True if the writer has a connection.
    open: bool,
    /// True if the writer has closed: after the last byte, the reader learns of it.
    ended: bool,
}

pub(crate) struct World {
    rng: Prng,
    seed: u64,
    pub(crate) now: Nanos,
    pub(crate) hosts: BTreeMap<HostId, Host>,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vnis: Vec<Vni>,
    packets: BTreeMap<(Nanos, u64), Packet>,
    next: u64,
    pipes: BTreeMap<(HostId, HostId), Pipe>,
    /// Pairs of hosts of which nothing goes from the first to the second.
    cut_off: BTreeSet<(HostId, HostId)>,
    slow: BTreeSet<HostId>,
    /// New hosts, each with those that do not know it yet.
    joining: BTreeMap<HostId, BTreeSet<HostId>>,
    /// Evicted hosts, each with those that still know it.
    leaving: BTreeMap<HostId, BTreeSet<HostId>>,
    loss: u64,
    is_calm: bool,
    tokens: u32,
    sent: BTreeMap<u32, usize>,
    pub(crate) delivered: BTreeSet<u32>,
    /// Answers that endpoints got: the asker and the address.
    pub(crate) answers: BTreeSet<(Mac, Ipv4Addr)>,
    /// Number of announcements of the second that the first has heard.
    pub(crate) heard: BTreeMap<(Mac, Mac), u32>,
    next_vm: u32,
    next_ip: u32,
    replies: BTreeMap<Mac, u32>,
    to_ports: u64,
    limits: Option<Limits>,
}

pub(crate) fn vni(n: u32) -> Vni {
    Vni::new(n).unwrap()
}

impl World {
    /// A world of so many hosts, without endpoints and faults.
    pub(crate) fn of(seed: u64, count: u16) -> Self {
        Self::with_networks(seed, count, vec![vni(10), vni(20)])
    }

    /// The same with these networks.
    pub(crate) fn with_networks(seed: u64, count: u16, vnis: Vec<Vni>) -> Self {
        let ids: Vec<_> = (1..=count).map(HostId).collect();
        let mut world = Self {
            rng: Prng::stream(seed, "fabric"),
            seed,
            now: Nanos::ZERO,
            hosts: BTreeMap::new(),
            vms: Vec::new(),
            vnis,
            packets: BTreeMap::new(),
            next: 0,
            pipes: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            slow: BTreeSet::new(),
            joining: BTreeMap::new(),
            leaving: BTreeMap::new(),
            loss: 0,
            is_calm: true,
            tokens: 0,
            sent: BTreeMap::new(),
            delivered: BTreeSet::new(),
            answers: BTreeSet::new(),
            heard: BTreeMap::new(),
            next_vm: 0,
            next_ip: 0,
            replies: BTreeMap::new(),
            to_ports: 0,
            limits: None,
        };
        for id in &ids {
            world.start(*id, 1, millis(1_000 * u64::from(id.0)));
        }
        world
    }

    /// A world of three to six hosts with endpoints, and faults.
    pub(crate) fn new(seed: u64) -> Self {
        let count = Prng::stream(seed, "hosts").below(4);
        let mut world = Self::of(seed, 3 + u16::try_from(count).unwrap());
        world.is_calm = false;
        world.loss = world.rng.below(30);
        for _ in 0..4 + world.draw(6) {
            let host = world.some_host();
            let which = world.draw(2);
            let vni = world.vnis[which];
            let bound = world.rng.chance(1, 5);
            world.add_vm(host, vni, bound);
        }
        world
    }

    pub(crate) fn ids(&self) -> Vec<HostId> {
        self.hosts.keys().copied().collect()
    }

    pub(crate) fn pairs(&self) -> Vec<(HostId, HostId)> {
        let all = |a: HostId| self.ids().into_iter().map(move |b| (a, b));
        self.ids().into_iter().flat_map(all).filter(|(a, b)| a != b).collect()
    }

    fn draw(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap()
    }

    fn some_host(&mut self) -> HostId {
        let ids = self.ids();
        ids[self.draw(ids.len())]
    }

    pub(crate) fn host(&mut self, id: HostId) -> &mut Host {
        self.hosts.get_mut(&id).unwrap()
    }

    /// Restarts a host: only its ports and its configuration are left.
    fn start(&mut self, id: HostId, incarnation: u64, clock: Nanos) {
        let peers = self.configured(id);
        self.has_read_all(id);
        let mut config = config(id, incarnation);
        config.mobility = self.limits.unwrap_or(config.mobility);
        let newer = id.0.is_multiple_of(2);
        config.versions.1 = fabric::VERSIONS.1 + u8::from(newer);
        let mut host = Host::new(&config, self.seed ^ u64::from(id.0), clock);
        host.newer = newer;
        host.set_up(&peers, &self.vnis);
        for vm in self.vms.iter().filter(|vm| vm.host == id) {
            host.add_port(vm.port, vm.key.vni);
            if vm.bound {
                let ips = [vm.ip.into()].into_iter().collect();
                host.plane.bind(clock, vm.port, vm.key, ips).unwrap();
            }
        }
        self.hosts.insert(id, host);
        for (other, there) in &mut self.hosts {
            let waits = self.joining.get(&id).is_some_and(|left| left.contains(other));
            if *other != id && !waits {
                there.add_peer(id, &self.vnis);
            }
            for pair in [(*other, id), (id, *other)] {
                self.pipes.entry(pair).or_default();
            }
        }
    }

    pub(crate) fn restart(&mut self, id: HostId) {
        for other in self.ids().into_iter().filter(|other| *other != id) {
            let tells = self.is_calm || self.rng.chance(1, 2);
            self.close(id, other, tells);
        }
        let (incarnation, clock) = (self.hosts[&id].incarnation + 1, self.hosts[&id].clock);
        self.start(id, incarnation, clock);
    }

    /// Restarts all hosts, with other limits of mobility.
    pub(crate) fn with_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
        self.ids().into_iter().for_each(|id| self.restart(id));
    }

    /// Number of frames that have come out of ports.
    pub(crate) const fn packets_to_ports(&self) -> u64 {
        self.to_ports
    }

    fn free_port(&self, host: HostId) -> Option<PortId> {
        let taken = |port| self.vms.iter().any(|vm| vm.host == host && vm.port == port);
        (0..PORTS).map(PortId).find(|port| !taken(*port))
    }

    /// Number of ARP replies that have come to an endpoint.
    pub(crate) fn replies_to(&self, mac: Mac) -> u32 {
        self.replies.get(&mac).copied().unwrap_or(0)
    }

    /// Adds an endpoint to a host. Returns its number.
    pub(crate) fn add_vm(&mut self, host: HostId, vni: Vni, bound: bool) -> usize {
        let Some(port) = self.free_port(host) else { return 0 };
        self.next_vm += 1;
        let n = self.next_vm;
        let key = Key { vni, mac: Mac::from_u64(0x0200_0000_0000 | u64::from(n)) };
        let ip = Ipv4Addr::from_bits(0x0a00_0000 | n);
        self.vms.push(Vm { key, ip, host, port, bound, is_silent: false });
        self.attach(self.vms.len() - 1);
        self.vms.len() - 1
    }

    fn attach(&mut self, at: usize) {
        let vm = self.vms[at];
        let host = self.hosts.get_mut(&vm.host).unwrap();
        if host.is_down {
            return;
        }
        host.remove_port(vm.port);
        host.add_port(vm.port, vm.key.vni);
        if vm.bound {
            let ips = [vm.ip.into()].into_iter().collect();
            host.plane.bind(host.clock, vm.port, vm.key, ips).unwrap();
        }
    }

    /// Moves an endpoint to another host. Its old port goes down if it `says_so`, else stays.
    pub(crate) fn move_vm(&mut self, at: usize, to: HostId, says_so: bool) {
        let vm = self.vms[at];
        let Some(port) = self.free_port(to).filter(|_| to != vm.host) else { return };
        let old = self.hosts.get_mut(&vm.host).unwrap();
        if !old.is_down {
            if vm.bound {
                old.plane.unbind(old.clock, vm.key);
            }
            if says_so {
                old.remove_port(vm.port);
            }
        }
        (self.vms[at].host, self.vms[at].port) = (to, port);
        self.attach(at);
        if !vm.is_silent && self.rng.chance(1, 2) {
            self.emit(at, frames::announcement(vm.own()));
        }
    }

    /// Gives an endpoint the address of another one, which gets a new one. Neither announces it.
    pub(crate) fn take_address(&mut self, from: usize, to: usize) {
        self.next_ip += 1;
        let fresh = Ipv4Addr::from_bits(0x0a01_0000 | self.next_ip);
        self.vms[to].ip = std::mem::replace(&mut self.vms[from].ip, fresh);
    }

    /// Exchanges the addresses of two endpoints, perhaps, and announces them as required.
    fn move_address(&mut self) {
        let (from, to) = (self.draw(self.vms.len()), self.draw(self.vms.len()));
        let (a, b) = (self.vms[from], self.vms[to]);
        if from == to || a.bound || b.bound || a.key.vni != b.key.vni {
            return;
        }
        (self.vms[from].ip, self.vms[to].ip) = (b.ip, a.ip);
        for at in [to, from] {
            let own = self.vms[at].own();
            self.emit(at, frames::announcement(own));
        }
    }

    fn remove_vm(&mut self, at: usize) {
        let vm = self.vms.swap_remove(at);
        let old = self.hosts.get_mut(&vm.host).unwrap();
        if !old.is_down {
            old.remove_port(vm.port);
        }
        // Numbers have changed: a packet under way would come from another endpoint.
        self.packets.retain(|_, packet| !matches!(packet, Packet::FromVm(..)));
    }

    fn put(&mut self, delay: Nanos, packet: Packet) {
        self.packets.insert((self.now.after(delay), self.next), packet);
        self.next += 1;
        assert!(self.packets.len() < 20_000, "frames multiply");
    }

    /// Sends a frame of an endpoint.
    pub(crate) fn emit(&mut self, vm: usize, bytes: Vec<u8>) {
        self.put(Nanos(10_000), Packet::FromVm(vm, bytes));
    }

    /// Sends a packet of an endpoint to another one. Returns its number.
    pub(crate) fn talk(&mut self, from: usize, to: usize) -> u32 {
        self.tokens += 1;
        self.sent.insert(self.tokens, to);
        let (src, dst) = (self.vms[from].own(), self.vms[to].own());
        self.emit(from, frames::packet(src, dst, self.tokens));
        self.tokens
    }

    pub(crate) fn ask(&mut self, from: usize, to: usize) {
        let (src, target) = (self.vms[from].own(), self.vms[to].ip);
        self.emit(from, frames::question(src, target));
    }

    /// Sends some frame, perhaps.
    pub(crate) fn chat(&mut self) {
        for _ in 0..self.draw(3) {
            if self.vms.len() < 2 {
                return;
            }
            let (a, b) = (self.draw(self.vms.len()), self.draw(self.vms.len()));
            if a == b || self.vms[a].key.vni != self.vms[b].key.vni {
                continue;
            }
            if self.rng.chance(2, 3) {
                self.talk(a, b);
            } else {
                self.ask(a, b);
            }
        }
    }

    /// Cuts the connection of two hosts, anywhere in the stream, on both sides or on one.
    pub(crate) fn cut(&mut self, a: HostId, b: HostId, one_side: bool) {
        let sides = [(a, b), (b, a)];
        for (from, to) in sides.into_iter().take(if one_side { 1 } else { 2 }) {
            let open = self.pipes[&(from, to)].open;
            let host = self.host(from);
            if open && !host.is_down {
                host.plane.disconnected(host.clock, to);
            }
            self.close(from, to, false);
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
        let back = self.pipes.get_mut(&(to, from)).unwrap();
        (back.unread, back.bytes) = (Vec::new(), VecDeque::new());
    }

    fn connect(&mut self, a: HostId, b: HostId) {
        let blocked = self.cut_off.contains(&(a, b)) || self.cut_off.contains(&(b, a));
        let accepts = self.hosts.get(&b).is_some_and(|there| !there.is_down && there.knows(a));
        if blocked || !accepts {
            let host = self.host(a);
            return host.plane.disconnected(host.clock, b);
        }
        for (from, to) in [(a, b), (b, a)] {
            self.pipes.insert((from, to), Pipe { open: true, ..Pipe::default() });
            let host = self.host(from);
            host.plane.connected(host.clock, to);
        }
    }

    /// Makes some fault, perhaps.
    pub(crate) fn fault(&mut self) {
        let pairs = self.pairs();
        let (a, b) = pairs[self.draw(pairs.len())];
        match self.draw(150) {
            0..3 => self.cut(a, b, false),
            3 => self.cut(a, b, true),
            4..6 => _ = self.cut_off.insert((a, b)),
            6..11 => _ = self.cut_off.remove(&(a, b)),
            11 => self.cut_off.clear(),
            12 => {
                // The host is on its own for a while.
                for (from, to) in pairs.into_iter().filter(|(from, to)| *from == a || *to == a) {
                    self.cut_off.insert((from, to));
                }
            }
            13 if !self.hosts[&a].is_down => {
                self.restart(a);
                self.host(a).is_down = self.rng.chance(1, 2);
            }
            14..20 if self.hosts[&a].is_down => self.restart(a),
            20 => {
                let jump = Nanos(self.rng.below(20_000_000_000));
                let host = self.host(a);
                host.clock = host.clock.after(jump);
            }
            21 => {
                let jump = Nanos(self.rng.below(20_000_000_000));
                let host = self.host(a);
                host.clock = host.clock.before(jump);
            }
            60..62 => self.evict(a),
            62..65 => self.join(),
            65..75 => self.follow_changes(false),
            75..78 => self.narrow(a, b),
            78..84 => {
                let vnis = self.vnis.clone();
                self.set_networks(a, b, &vnis);
            }
            22 => _ = self.slow.insert(a),
            23..25 => _ = self.slow.remove(&a),
            25..31 if !self.vms.is_empty() => {
                let (at, says_so) = (self.draw(self.vms.len()), self.rng.chance(1, 2));
                self.move_vm(at, b, says_so);
            }
            31 if self.vms.len() > 4 => {
                let at = self.draw(self.vms.len());
                self.remove_vm(at);
            }
            45..50 if !self.vms.is_empty() => self.move_address(),
            33..45 if !self.vms.is_empty() => {
                let at = self.draw(self.vms.len());
                let held = u8::try_from(self.rng.below(3)).unwrap();
                self.press(at, held);
            }
            32 if self.vms.len() < 12 => {
                let which = self.draw(2);
                let vni = self.vnis[which];
                self.add_vm(a, vni, false);
            }
            _ => {}
        }
    }

    /// Makes the port of an endpoint hold the other hosts in these priorities.
    pub(crate) fn press(&mut self, at: usize, held: u8) {
        let vm = self.vms[at];
        let senders = self.ids().into_iter().filter(|id| *id != vm.host);
        let senders: Vec<_> = senders.filter(|_| self.is_calm || self.rng.chance(3, 4)).collect();
        let host = self.hosts.get_mut(&vm.host).unwrap();
        let senders: Vec<_> = senders.into_iter().filter(|sender| host.knows(*sender)).collect();
        if !host.is_down {
            let (isolated, held) = (PriorityMask(held), PriorityMask(held));
            let receiver = ReceiverState { isolated, held, stuck: PriorityMask(held.0 & 1) };
            host.plane.receiver(host.clock, vm.port, receiver, senders);
        }
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        (self.is_calm, self.loss) = (true, 0);
        self.cut_off.clear();
        self.slow.clear();
        for id in self.ids() {
            if self.hosts[&id].is_down {
                self.restart(id);
            }
            // Ports that endpoints left silently: no endpoint that is elsewhere speaks there.
            let taken = |port| self.vms.iter().any(|vm| vm.host == id && vm.port == port);
            let orphans: Vec<_> = (0..PORTS).map(PortId).filter(|port| !taken(*port)).collect();
            let host = self.host(id);
            for port in orphans {
                host.remove_port(port);
            }
            for port in (0..PORTS).map(PortId) {
                host.plane.receiver(host.clock, port, ReceiverState::default(), []);
            }
        }
        self.follow_changes(true);
        let vnis = self.vnis.clone();
        for (at, of) in self.pairs() {
            self.set_networks(at, of, &vnis);
        }
    }

    /// Lets some time pass.
    pub(crate) fn step(&mut self) {
        let span = Nanos(1 + self.rng.below(12_000_000));
        let until = self.now.after(span);
        // Messages of the span arrive at their own times, one after the other.
        loop {
            let first = self.packets.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = first.filter(|at| *at <= until) else { break };
            self.pass(at);
            let (_, packet) = self.packets.pop_first().unwrap();
            self.arrive(packet);
        }
        self.pass(until);
        for (from, to) in self.pairs() {
            self.deliver(from, to);
        }
        for id in self.ids() {
            self.service(id);
        }
    }

    fn pass(&mut self, at: Nanos) {
        let span = at.since(self.now);
        self.now = self.now.max(at);
        for host in self.hosts.values_mut() {
            host.clock = host.clock.after(span);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Datagram(from, to, bytes) => {
                let Some(host) = self.hosts.get_mut(&to) else { return };
                if !host.is_down {
                    host.plane.datagram(host.clock, from, &bytes);
                    self.service(to);
                }
            }
            Packet::Overlay(from, to, vni, bytes) => {
                let Some(host) = self.hosts.get_mut(&to) else { return };
                // The switch has no tunnel for another host.
                if !host.is_down && host.knows(from) {
                    host.receive(Location::Host(from), vni, &bytes);
                    self.service(to);
                }
            }
            Packet::FromVm(at, bytes) => {
                let vm = self.vms[at];
                let host = self.host(vm.host);
                if !host.is_down {
                    host.receive(Location::Port(vm.port), vm.key.vni, &bytes);
                    self.service(vm.host);
                }
            }
            Packet::ToPort(host, port, vni, bytes) => {
                self.to_ports += 1;
                self.at_port(host, port, vni, &bytes);
            }
        }
    }

    fn at_port(&mut self, host: HostId, port: PortId, vni: Vni, bytes: &[u8]) {
        let here = |vm: &Vm| vm.host == host && vm.port == port && vm.key.vni == vni;
        let Some(at) = self.vms.iter().position(here) else { return };
        let vm = self.vms[at];
        if bytes[..6] != vm.key.mac.0 && bytes[0] & 1 == 0 {
            return;
        }
        let is_reply = |arp: arp::Repr| arp.operation == arp::Operation::REPLY;
        if bytes[..6] == vm.key.mac.0 && frames::arp_of(bytes).is_some_and(is_reply) {
            *self.replies.entry(vm.key.mac).or_default() += 1;
        }
        if let Some(answer) = frames::answer(vm.own(), bytes) {
            self.emit(at, answer);
        }
        if let Some(message) = frames::arp_of(bytes) {
            if bytes[..6] == vm.key.mac.0 && message.operation == arp::Operation::REPLY {
                self.answers.insert((vm.key.mac, message.sender_ip));
            }
            if message.is_gratuitous() {
                *self.heard.entry((vm.key.mac, message.sender_mac)).or_default() += 1;
            }
        }
        if let Some(token) = frames::token(bytes)
            && bytes[..6] == vm.key.mac.0
        {
            assert!(self.delivered.insert(token), "packet {token} came twice");
        }
    }

    fn service(&mut self, id: HostId) {
        if self.hosts[&id].is_down {
            return;
        }
        let mut room = BTreeMap::new();
        for ((_, to), pipe) in self.pipes.range((id, HostId(0))..=(id, HostId(u16::MAX))) {
            let most = if self.slow.contains(to) || self.slow.contains(&id) { 700 } else { 60_000 };
            let free = if pipe.open { most - pipe.bytes.len().min(most) } else { 0 };
            room.insert(*to, free);
        }
        let outs = self.host(id).service(&room);
        for out in outs {
            self.carry(id, out);
        }
    }

    fn carry(&mut self, id: HostId, out: Out) {
        match out {
            Out::Port(port, vni, bytes) => {
                self.put(Nanos(5_000), Packet::ToPort(id, port, vni, bytes));
            }
            Out::Overlay(to, vni, bytes) => {
                if !self.cut_off.contains(&(id, to)) {
                    self.put(Nanos(100_000), Packet::Overlay(id, to, vni, bytes));
                }
            }
            Out::Datagram(to, bytes) => self.send_datagram(id, to, bytes),
            Out::Bytes(to, bytes) => {
                let newer = self.hosts[&id].newer;
                let pipe = self.pipes.get_mut(&(id, to)).unwrap();
                if pipe.open {
                    pipe.bytes.extend(if newer { with_more_fields(&bytes) } else { bytes });
                }
            }
            Out::Connect(to) => self.connect(id, to),
            Out::Close(to) => {
                let tells = self.is_calm || self.rng.chance(1, 2);
                self.close(id, to, tells);
            }
        }
    }

    fn send_datagram(&mut self, id: HostId, to: HostId, bytes: Vec<u8>) {
        if self.cut_off.contains(&(id, to)) || self.rng.below(100) < self.loss {
            return;
        }
        let most = if self.is_calm { 400_000 } else { 8_000_000 };
        if !self.is_calm && self.rng.chance(1, 30) {
            let delay = Nanos(self.rng.below(300_000_000));
            self.put(delay, Packet::Datagram(id, to, bytes.clone()));
        }
        let delay = Nanos(50_000 + self.rng.below(most));
        self.put(delay, Packet::Datagram(id, to, bytes));
    }

    fn deliver(&mut self, from: HostId, to: HostId) {
        let is_mute = self.hosts[&to].mute == Some(from) || self.hosts[&from].mute == Some(to);
        if is_mute || self.cut_off.contains(&(from, to)) || self.hosts[&to].is_down {
            return;
        }
        let most = 1 + self.draw(3_000) + usize::from(self.is_calm) * 60_000;
        let most = if self.slow.contains(&to) { most.min(200) } else { most };
        let reads = self.pipes[&(to, from)].open;
        let pipe = self.pipes.get_mut(&(from, to)).unwrap();
        let count = most.min(pipe.bytes.len());
        let arrived: Vec<_> = pipe.bytes.drain(..count).collect();
        if !reads {
            return;
        }
        pipe.unread.extend(arrived);
        let ended = pipe.ended && pipe.bytes.is_empty();
        let host = self.hosts.get_mut(&to).unwrap();
        match host.plane.stream(host.clock, from, &pipe.unread) {
            Ok(used) => drop(pipe.unread.drain(..used)),
            Err(error) => {
                assert!(is_planned(&error), "{from} at {to}: {error}");
                let bytes = host.last_words(from);
                host.plane.disconnected(host.clock, from);
                self.carry(to, Out::Bytes(from, bytes));
                self.close(to, from, true);
                return;
            }
        }
        if ended {
            host.plane.disconnected(host.clock, from);
            self.close(to, from, false);
            self.pipes.get_mut(&(from, to)).unwrap().ended = false;
        }
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        for host in self.hosts.values().filter(|host| !host.is_down) {
            host.check();
        }
    }

    /// Returns a disagreement of hosts on the place of an endpoint; `None` if there is none.
    pub(crate) fn disagreement(&self) -> Option<String> {
        for host in self.hosts.values() {
            for vm in &self.vms {
                let claims: Vec<_> = host.plane.claims(vm.key).collect();
                let [claim] = &claims[..] else {
                    return Some(format!(
                        "{} has {} claims of {:?}",
                        host.id,
                        claims.len(),
                        vm.key
                    ));
                };
                if claim.owner != vm.host || claim.claim.port != vm.port {
                    return Some(format!("{} thinks {:?} is elsewhere", host.id, vm.key));
                }
                let found = host.plane.vport_of_ip(vm.key.vni, vm.ip.into());
                let found = found.map(|vport| vport.claim.key);
                if found != Some(vm.key) {
                    return Some(format!("{} thinks {} is at {found:?}", host.id, vm.ip));
                }
                if claim.state != sluice_control::table::OwnerState::Live {
                    return Some(format!("{} thinks that {} is stale", host.id, vm.host));
                }
            }
            let (_, count) = host.plane.memory();
            if usize::try_from(count).unwrap() != self.vms.len() {
                return Some(format!("{} knows {count} of {}", host.id, self.vms.len()));
            }
        }
        None
    }

    /// Returns the pairs of endpoints in one network.
    fn talkers(&self) -> Vec<(usize, usize)> {
        let count = self.vms.len();
        let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        all.filter(|(a, b)| a != b && self.vms[*a].key.vni == self.vms[*b].key.vni).collect()
    }

    /// Checks that every question is answered that a bridge would answer, for any number of askers
    /// at once, also for an endpoint that no host has heard of; and that all endpoints hear every
    /// announcement, once.
    pub(crate) fn converse(&mut self) {
        const TIMES: u32 = 6;
        let (host, which) = (self.some_host(), self.draw(2));
        let vni = self.vnis[which];
        let count = self.vms.len();
        let stranger = self.add_vm(host, vni, false);
        if self.vms.len() > count {
            self.vms[stranger].is_silent = true;
        }
        self.answers.clear();
        let talkers = self.talkers();
        let asks = talkers.iter().filter(|(a, _)| !self.vms[*a].is_silent);
        let asks: Vec<_> = asks.copied().collect();
        for (from, to) in &asks {
            self.ask(*from, *to);
            self.ask(*from, *to);
        }
        // An answer may miss a few times in a full forwarding table (FDB).
        self.run_for(millis(500));
        for (from, to) in &asks {
            let (asker, target) = (self.vms[*from], self.vms[*to]);
            let known = self.answers.contains(&(asker.key.mac, target.ip));
            assert!(known, "{:?} asked for {:?} in vain\n{}", asker.key, target.key, self.story());
        }
        self.heard.clear();
        let announced = self.announced();
        for at in (0..self.vms.len()).flat_map(|at| [at; TIMES as usize]) {
            let own = self.vms[at].own();
            self.emit(at, frames::announcement(own));
        }
        self.run_for(millis(150));
        // A host announces an endpoint whose address has just become its own.
        let most = u64::from(TIMES) + self.announced() - announced;
        for (from, to) in talkers {
            let pair = (self.vms[to].key.mac, self.vms[from].key.mac);
            let heard = self.heard.get(&pair).copied().unwrap_or(0);
            let fits = heard >= TIMES && u64::from(heard) <= most;
            assert!(fits, "{pair:?}: {heard} of {TIMES} to {most}\n{}", self.story());
        }
    }

    /// Number of announcements that hosts made in the name of endpoints.
    fn announced(&self) -> u64 {
        self.hosts.values().map(|host| host.plane.counts().announced).sum()
    }

    /// Checks that all hosts agree soon, every pair can talk, and it stays that way.
    pub(crate) fn settle(&mut self) {
        let begin = self.now;
        let mut left = self.talkers();
        let mut trying: Vec<(u32, (usize, usize))> = Vec::new();
        let mut again = self.now;
        loop {
            if self.now >= again {
                again = self.now.after(millis(400));
                trying = left
                    .clone()
                    .into_iter()
                    .map(|pair| (self.talk(pair.0, pair.1), pair))
                    .collect();
                // An endpoint without a peer announces itself.
                for at in 0..self.vms.len() {
                    let own = self.vms[at].own();
                    self.emit(at, frames::announcement(own));
                }
            }
            self.step();
            self.check();
            let done = |token: &u32| self.delivered.contains(token);
            let came: Vec<_> =
                trying.iter().filter(|(token, _)| done(token)).map(|(_, pair)| *pair).collect();
            left.retain(|pair| !came.contains(pair));
            let disagreement = self.disagreement();
            if left.is_empty() && disagreement.is_none() {
                break;
            }
            let took = self.now.since(begin);
            assert!(took < millis(20_000), "{left:?}; {disagreement:?}\n{}", self.story());
        }
        self.converse();
        let quiet = self.now;
        while self.now.since(quiet) < millis(1_500) {
            self.step();
            self.check();
        }
        let before: Vec<_> = self.hosts.values().map(|host| host.plane.sequence()).collect();
        while self.now.since(quiet) < millis(4_500) {
            self.step();
            self.check();
        }
        assert_eq!(self.disagreement(), None, "what has settled stays");
        let after: Vec<_> = self.hosts.values().map(|host| host.plane.sequence()).collect();
        assert_eq!(before, after, "it is quiet");
        for host in self.hosts.values() {
            let idle = host.fdb.is_empty() && host.decaps.is_empty() && host.tunnels.is_empty();
            assert!(idle, "{} keeps what nobody uses: {:?}", host.id, host.fdb);
            assert_eq!(host.plane.holds().count(), 0, "{} holds on", host.id);
            assert_eq!(host.plane.isolated().count(), 0);
        }
    }

    /// Returns the places of all endpoints, and the last events.
    fn story(&self) -> String {
        let mut story = String::new();
        for host in self.hosts.values() {
            let infos: Vec<_> = host
                .plane
                .hosts()
                .map(|info| {
                    let (is_up, health, lag) = (info.is_up, info.health, info.lag);
                    format!("{}: up {is_up}, {health:?}, lag {lag}", info.host)
                })
                .collect();
            let last = host.events.len().saturating_sub(12);
            let events: Vec<_> = host.events[last..].iter().map(ToString::to_string).collect();
            story += &format!("{} {} {infos:?}\n  {events:?}\n", host.id, host.incarnation);
        }
        story
    }

    /// Lets time pass without faults until a condition holds, or `most` is over.
    pub(crate) fn until(&mut self, most: Nanos, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        let begin = self.now;
        while self.now.since(begin) < most {
            if holds(self) {
                return true;
            }
            self.step();
            self.check();
        }
        holds(self)
    }

    pub(crate) fn run_for(&mut self, span: Nanos) {
        self.until(span, |_| false);
    }
}

/// Returns true for errors that `World::fault` makes; no other error may end a connection.
fn is_planned(error: &Error) -> bool {
    match error {
        Error::StaleIncarnation { .. } => true,
        Error::Bye(reason) => matches!(reason, Reason::Leaving | Reason::StaleIncarnation),
        _ => false,
    }
}
