//! Fuzzes a small control plane with frames that a switch punts (ARP, Neighbor Discovery, router
//! discovery, DHCP, data, and other bytes) at its ports and from other hosts. In between, time
//! passes, and links, ports and bindings come and go.
//!
//! After each step: claims, endpoints learned at a port, flows and wanted addresses are bounded.
//! Claims are of networks of this host, at ports of these networks. No other claim has the bound
//! endpoint or its address. Entries of the forwarding table (FDB) agree with the vport table. A
//! frame taken from the switch is answered, sent to an endpoint, flooded or counted. An answer
//! agrees with a claim.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use sluice_base::{HostId, Mac, Nanos, PUNT_HEAD_SIZE_MAX, PortId, PuntCause, Vni};
use sluice_control::directory::PortRule;
use sluice_control::plane::{Command, Config, Kind, Location, Plane};
use sluice_control::vport::{Ips, Key, Origin};
use sluice_fuzz::Source;
use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv4, ipv6, udp};

const OWN: HostId = HostId(5);
const MEMBER: HostId = HostId(7);
const FOREIGN: HostId = HostId(8);
/// Networks of each port, and its limit of endpoints. The second port is bound.
const QUOTAS: [(PortId, &[u32], u32); 5] = [
    (PortId(0), &[1], 3),
    (BOUND_PORT, &[1], 1),
    (PortId(2), &[1], 2),
    (PortId(3), &[2], 3),
    (PortId(4), &[1, 2], 4),
];
const BOUND_PORT: PortId = PortId(1);
const STICKY_PORT: PortId = PortId(2);
const BOUND_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const BOUND_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// MAC address from which a host asks its own endpoints.
const ASKER: Mac = Mac([0x02, 0x53, 0x6c, 0x75, 0x69, 0x63]);

const CLAIMS_MAX: u32 = 12;
const ENTRIES: u32 = 8;
const FLOWS_MAX: usize = 4;
const WANTED_MAX: u32 = 4;
const STEPS_MAX: usize = 200;

fn vni(number: u32) -> Vni {
    Vni::new(number).expect("small")
}

fn config() -> Config {
    let mut config = Config::new(OWN, 1, [1; 16], 6);
    (config.claims_max, config.flow_limit) = (CLAIMS_MAX, FLOWS_MAX);
    (config.punt.questions, config.punt.unknowns, config.resolve.targets) = (16, WANTED_MAX, 16);
    (config.learn.entries, config.learn.lifetime) = (ENTRIES, Nanos::from_millis(20_000));
    (config.mobility.history, config.mobility.frozen, config.mobility.departed) = (16, 4, 4);
    config.tombstones_max = 8;
    config
}

struct World {
    plane: Plane,
    now: Nanos,
    /// True if the binding exists.
    is_bound: bool,
}

impl World {
    fn new() -> Self {
        let (mut plane, now) = (Plane::new(&config(), 3, Nanos::ZERO), Nanos::from_millis(1_000));
        [1, 2].into_iter().for_each(|number| plane.add_vnet(vni(number)));
        let mut world = Self { plane, now, is_bound: false };
        QUOTAS.iter().for_each(|(port, ..)| world.add(*port));
        world.plane.add_host(now, MEMBER, &[vni(1), vni(3)], Kind::Member);
        world.plane.add_host(now, FOREIGN, &[vni(1), vni(2)], Kind::Foreign);
        world.bind();
        assert!(world.is_bound, "nobody else was there");
        world.drain();
        world
    }

    fn add(&mut self, port: PortId) {
        let (_, vnis, quota) = QUOTAS[port.index()];
        let rule = match port {
            BOUND_PORT => PortRule::Bound,
            _ => PortRule::Learn { quota, sticky: port == STICKY_PORT },
        };
        for number in vnis {
            assert!(self.plane.add_port(self.now, port, vni(*number), rule));
        }
    }

    fn bind(&mut self) {
        let ips = Ips::from_iter([IpAddr::V4(BOUND_IP)]);
        let key = Key { vni: vni(1), mac: BOUND_MAC };
        // Binding fails if another port has the address sticky, or if there is no room.
        self.is_bound = self.plane.bind(self.now, BOUND_PORT, key, ips).is_ok();
    }

    /// Takes all output, as a caller should.
    fn drain(&mut self) {
        for _ in 0..200 {
            self.plane.tick(self.now);
            while let Some(host) = self.plane.ready(self.now) {
                _ = self.plane.due(self.now, host);
                _ = self.plane.write(self.now, host, 4_096, &mut Vec::new());
            }
            self.commands();
            while self.plane.event().is_some_and(|event| !event.to_string().is_empty()) {}
            while self.plane.datagram_out().is_some() {}
            if self.plane.deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("it is never done: a busy loop");
    }

    fn commands(&mut self) -> Vec<Command> {
        let all: Vec<_> = std::iter::from_fn(|| self.plane.command()).collect();
        all.iter().for_each(|command| self.may_be(command));
        all
    }

    /// Checks that a command is about networks and ports of this host.
    fn may_be(&self, command: &Command) {
        let (vni, location) = match command {
            Command::Install { vni, to, mac } => {
                assert!(!mac.is_group());
                (vni, to)
            }
            Command::Send { vni, to, frame } => {
                assert!(frame.len() >= ethernet::HEADER_SIZE);
                (vni, to)
            }
            Command::Flood { vni, from, frame } => {
                assert!(frame.len() >= ethernet::HEADER_SIZE);
                (vni, from)
            }
            Command::Refuse { frames, .. } => return assert!(*frames > 0),
            _ => return,
        };
        assert!(self.plane.own_vnets().any(|there| there == *vni), "{command:?}");
        match location {
            // The port may have been removed since.
            Location::Port(port) => assert!(port.index() < QUOTAS.len(), "{command:?}"),
            Location::Host(host) => assert!([MEMBER, FOREIGN].contains(host), "{command:?}"),
        }
    }

    fn check(&self) {
        let plane = &self.plane;
        assert!(plane.memory().1 <= CLAIMS_MAX && plane.flow_count() <= FLOWS_MAX);
        assert!(plane.wanted_count() <= WANTED_MAX as usize);
        assert!(plane.foreign_count() <= ENTRIES as usize);
        for (port, _, quota) in QUOTAS {
            assert!(plane.learned_at(port) <= quota, "{port} is over its quota");
        }
        for (vni, _) in plane.vnets() {
            assert!(plane.own_vnets().any(|own| own == vni), "{vni} is no network of this host");
            for vport in plane.vports(vni, None, 2 * CLAIMS_MAX as usize) {
                let claim = vport.claim;
                assert!(!claim.key.mac.is_group() && claim.key.mac != Mac([0; 6]));
                assert!(claim.key.mac != ASKER, "nobody has the asker's address");
                let here = plane.ports_of(vni).contains(&claim.port);
                assert!(vport.owner != OWN || here, "{claim:?} is at no port of its network");
                let is_it = claim.port == BOUND_PORT && vport.owner == OWN;
                assert_eq!(is_it, claim.origin == Origin::Bound, "{claim:?}");
                if is_it {
                    assert!(self.is_bound && claim.key.mac == BOUND_MAC);
                    assert!(claim.ips.iter().eq([IpAddr::V4(BOUND_IP)]), "{claim:?}");
                }
            }
        }
        if self.is_bound {
            let holder = plane.vport_of_ip(vni(1), BOUND_IP.into()).expect("it is claimed");
            assert_eq!(holder.claim.key.mac, BOUND_MAC, "the bound address is another's");
        }
        for (key, location, _) in plane.installed() {
            let vport = plane.vport(key).expect("what is in the chip is claimed").vport;
            match location {
                Location::Port(port) => assert_eq!((vport.owner, vport.claim.port), (OWN, port)),
                Location::Host(host) => assert_eq!(vport.owner, host),
            }
        }
    }

    fn punt(&mut self, source: &mut Source<'_>) {
        let vni = vni([1, 1, 1, 2, 3][usize::from(source.byte()) % 5]);
        let from = match source.byte() % 8 {
            6 => Location::Host(FOREIGN),
            7 => Location::Host(source.pick(&[MEMBER, FOREIGN, HostId(9)])),
            port => Location::Port(PortId(port.into())),
        };
        let frame = frame(source);
        let is_group = frame.first().is_some_and(|byte| byte & 1 == 1);
        let cause = source.pick(&PuntCause::ALL);
        // The switch hands over only frames for a group address.
        let cause = if cause.is_taken() && !is_group { PuntCause::Snooped } else { cause };
        let head = &frame[..frame.len().min(PUNT_HEAD_SIZE_MAX)];
        self.plane.punt(self.now, from, vni, cause, head);
        let commands = self.commands();
        let Location::Port(port) = from else { return };
        let mut ends = 0;
        for command in &commands {
            ends += match command {
                Command::Flood { from, frame, .. } => {
                    u64::from(*from == Location::Port(port) && frame == head)
                }
                Command::Send { frame, .. } if frame == head => 1,
                Command::Send { vni, to, frame } => {
                    u64::from(self.answers(*vni, frame) && *to == Location::Port(port))
                }
                Command::Refuse { port: of, frames, .. } if *of == port => *frames,
                _ => 0,
            };
        }
        if cause.is_taken() {
            assert_eq!(ends, 1, "a frame has one end: {commands:?}");
        }
    }

    /// Returns true if a frame of this host is an answer; checks that it agrees with a claim.
    fn answers(&self, vni: Vni, frame: &[u8]) -> bool {
        let mut bytes = frame.to_vec();
        while bytes[12..14] == [0x81, 0] {
            bytes.drain(12..16);
        }
        let Ok(frame) = ethernet::Frame::new_checked(&bytes) else { return false };
        let (mac, ip): (Mac, IpAddr) = match frame.ethertype() {
            EtherType::ARP => {
                let packet = arp::Packet::new_checked(frame.payload()).expect("whole");
                let repr = arp::Repr::parse(&packet).expect("well made");
                if repr.operation != arp::Operation::REPLY {
                    return false;
                }
                (repr.sender_mac, repr.sender_ip.into())
            }
            EtherType::IPV6 => {
                let packet = ipv6::Packet::new_checked(frame.payload()).expect("whole");
                match icmpv6::Repr::receive(&packet).expect("well made") {
                    icmpv6::Repr::Advertisement { target, target_mac, .. } => {
                        (target_mac.expect("it is told"), target.into())
                    }
                    icmpv6::Repr::Solicitation { .. } => return false,
                }
            }
            _ => return false,
        };
        let vport = self.plane.vport(Key { vni, mac }).expect("an answer is of an endpoint");
        assert!(vport.vport.claim.ips.contains(ip), "{mac} does not claim {ip}");
        true
    }
}

fn mac(source: &mut Source<'_>) -> Mac {
    match source.byte() {
        n @ 0..=239 => Mac([2, 0, 0, 0, 0, n % 8]),
        240..=247 => Mac::BROADCAST,
        248..=251 => ASKER,
        252..=253 => Mac([0; 6]),
        _ => Mac([0x33, 0x33, 0, 0, 0, 1]),
    }
}

fn ipv4_of(source: &mut Source<'_>) -> Ipv4Addr {
    match source.byte() {
        n @ 0..=247 => Ipv4Addr::new(10, 0, 0, n % 8),
        248..=251 => Ipv4Addr::UNSPECIFIED,
        _ => Ipv4Addr::BROADCAST,
    }
}

fn ipv6_of(source: &mut Source<'_>) -> Ipv6Addr {
    match source.byte() {
        n @ 0..=127 => ipv6::link_local(Mac([2, 0, 0, 0, 0, n % 8])),
        n @ 128..=247 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n % 8)),
        248..=251 => Ipv6Addr::UNSPECIFIED,
        _ => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    }
}

/// Returns a frame, sometimes with changed bytes or with its end cut off.
fn frame(source: &mut Source<'_>) -> Vec<u8> {
    let (how, src) = (source.byte(), mac(source));
    let mut bytes = match how % 8 {
        0..=2 => arp_of(source, src),
        3 | 4 => neighbor_of(source, src),
        5 => router_of(source, src),
        6 => data_of(source, src),
        _ => source.bytes().to_vec(),
    };
    if how & 0x18 == 0x18 && bytes.len() >= ethernet::HEADER_SIZE {
        // A VLAN tag of the tenant.
        bytes.splice(12..12, [0x81, 0, 0, how]);
    }
    if how >= 0xf0 && !bytes.is_empty() {
        let at = usize::from(source.byte()) % bytes.len();
        bytes[at] = source.byte();
        bytes.truncate(128 - usize::from(source.byte() % 128));
    }
    bytes
}

fn whole(dst: Mac, src: Mac, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_SIZE];
    ethernet::Repr { dst, src, ethertype }.emit(&mut bytes);
    bytes.extend(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// Returns a request, a reply, a probe or an announcement, sometimes in the name of another.
fn arp_of(source: &mut Source<'_>, src: Mac) -> Vec<u8> {
    let (kind, ip, target) = (source.byte(), ipv4_of(source), ipv4_of(source));
    let sender_mac = if kind >= 0xf0 { mac(source) } else { src };
    let announcement = arp::Repr::announcement(sender_mac, ip);
    let repr = match kind % 5 {
        0 => arp::Repr::probe(sender_mac, target),
        1 => announcement,
        2 => arp::Repr { operation: arp::Operation::REPLY, ..announcement },
        3 => arp::Repr { target_ip: target, ..announcement },
        _ => {
            let operation = arp::Operation::REPLY;
            arp::Repr { operation, target_mac: mac(source), target_ip: target, ..announcement }
        }
    };
    let dst = if kind & 0x20 == 0 { Mac::BROADCAST } else { mac(source) };
    let mut payload = [0; arp::SIZE];
    repr.emit(&mut payload);
    whole(dst, src, EtherType::ARP, &payload)
}

fn neighbor_of(source: &mut Source<'_>, src: Mac) -> Vec<u8> {
    let (kind, from, target) = (source.byte(), ipv6_of(source), ipv6_of(source));
    let link = if kind >= 0xf0 { mac(source) } else { src };
    let link = (kind & 1 == 0).then_some(link);
    let message = if kind & 2 == 0 {
        icmpv6::Repr::Solicitation { target, source_mac: link }
    } else {
        let [router, solicited, overrides] = [4, 8, 16].map(|bit| kind & bit != 0);
        icmpv6::Repr::Advertisement { target, target_mac: link, router, solicited, overrides }
    };
    let to = match kind & 0x60 {
        0 => ipv6_of(source),
        0x20 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        _ => icmpv6::solicited_node(target),
    };
    let mut bytes = vec![0; message.size()];
    message.emit(from, to, &mut bytes);
    let dst = if to.is_multicast() { ipv6::group_mac(to) } else { mac(source) };
    whole(dst, src, EtherType::IPV6, &ipv6_packet(from, to, icmpv6::PROTOCOL, 255, &bytes))
}

/// Returns a Router Solicitation, Advertisement or Redirect.
fn router_of(source: &mut Source<'_>, src: Mac) -> Vec<u8> {
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    let message = [source.pick(&[133, 134, 137]), 0, 0, 0, source.byte(), 0, 0, 0];
    let packet = ipv6_packet(ipv6_of(source), to, icmpv6::PROTOCOL, 255, &message);
    whole(ipv6::group_mac(to), src, EtherType::IPV6, &packet)
}

fn ipv6_packet(src: Ipv6Addr, dst: Ipv6Addr, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::HEADER_SIZE];
    let payload_size = payload.len() as u16;
    let (next_header, hop_limit) = (next, hops);
    let (dscp, ecn, flow_label) = (0, 0, 0);
    ipv6::Repr { src, dst, next_header, dscp, ecn, flow_label, hop_limit, payload_size }
        .emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

/// Returns a frame of DHCP, or of data between two endpoints.
fn data_of(source: &mut Source<'_>, src: Mac) -> Vec<u8> {
    let kind = source.byte();
    let (dst, from, to) = match kind % 3 {
        0 => (Mac::BROADCAST, Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST),
        1 => (mac(source), ipv4_of(source), ipv4_of(source)),
        _ => {
            let (dst, from, to) = (mac(source), ipv6_of(source), ipv6_of(source));
            return whole(dst, src, EtherType::IPV6, &ipv6_packet(from, to, 17, 64, &[0; 8]));
        }
    };
    let (src_port, dst_port) = if kind % 3 == 0 { (68, 67) } else { (1_000, 2_000) };
    let mut payload = [0; ipv4::HEADER_SIZE_MIN + udp::HEADER_SIZE];
    let (dscp, ecn, ttl, ident, dont_fragment) = (0, 0, 64, 0, true);
    let (protocol, payload_size) = (17, udp::HEADER_SIZE as u16);
    ipv4::Repr { src: from, dst: to, protocol, dscp, ecn, ttl, ident, dont_fragment, payload_size }
        .emit(&mut payload);

    udp::Repr { src_port, dst_port, payload_size: 0 }.emit(&mut payload[ipv4::HEADER_SIZE_MIN..]);
    whole(dst, src, EtherType::IPV4, &payload)
}

fuzz_target!(|bytes: &[u8]| {
    let (mut source, mut world) = (Source::new(bytes), World::new());
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        let now = world.now;
        match source.byte() % 16 {
            0..=9 => world.punt(&mut source),
            10 | 11 => {
                let scale = source.pick(&[1, 1, 50, 500]);
                world.now = now.after(Nanos::from_millis(u64::from(source.byte()) * scale));
            }
            12 => {
                let (vni, mac) = (vni(1 + u32::from(source.byte() % 3)), mac(&mut source));
                world.plane.used(now, vni, mac);
            }
            13 => {
                let (port, is_up) = (PortId(u16::from(source.byte() % 5)), source.byte() & 1 == 0);
                world.plane.port_link(now, port, is_up);
            }
            14 => {
                let port = PortId(u16::from(source.byte() % 5));
                world.plane.remove_port(now, port);
                world.add(port);
                if port == BOUND_PORT {
                    world.bind();
                }
            }
            _ if world.is_bound => {
                world.plane.unbind(now, Key { vni: vni(1), mac: BOUND_MAC });
                world.is_bound = false;
            }
            _ => world.bind(),
        }
        world.drain();
        world.check();
    }
});
