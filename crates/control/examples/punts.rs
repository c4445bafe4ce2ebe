//! Measures how many punts a core processes in a second: a policer, learning and an ARP answer for
//! each (`cargo run --release -p sluice-control --example punts`).

use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{HostId, Mac, Nanos, PortId, PuntCause, Vni};
use sluice_control::directory::{Directory, Found, Places, PortRule, State};
use sluice_control::vport::{Claim, Ips, Key, Origin};
use sluice_control::{frame::Frame, learn, punt, resolve};
use sluice_wire::{EtherType, arp, ethernet};

const ENDPOINTS: u32 = 4096;
const PUNTS: u32 = 1000 * ENDPOINTS;

/// All endpoints in order, at 64 ports.
struct House(Vec<Found>);

impl Directory for House {
    fn find(&self, key: Key) -> Option<Found> {
        self.0.get(usize::try_from(key.mac.to_u64() & 0xffff).ok()?).copied()
    }
    fn find_ip(&self, _vni: Vni, ip: IpAddr) -> Option<Found> {
        let IpAddr::V4(ip) = ip else { return None };
        self.0.get(ip.to_bits() as usize & 0xffff).copied()
    }

    fn is_confirmed(&self, _key: Key, _ip: IpAddr) -> bool {
        true
    }
}

#[rustfmt::skip]
impl Places for House {
    fn is_member(&self, _port: PortId, _vni: Vni) -> bool { true }
    fn rule(&self, _port: PortId) -> PortRule { PortRule::Learn { quota: 99, sticky: false } }
    fn allows(&self, _port: PortId, _ip: IpAddr) -> bool { false }
    fn ports(&self, _vni: Vni) -> &[PortId] { &[] }
    fn hosts(&self, _vni: Vni) -> &[HostId] { &[] }
}

/// CPU time of this thread in nanoseconds, without the time of others on its core.
fn core_nanos() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn main() {
    let vni = Vni::new(7).expect("24 bits");
    let mac = |n: u32| Mac::from_u64(0x0200 << 32 | u64::from(n));
    let ip = |n: u32| Ipv4Addr::from(0x0a00 << 16 | n);
    let port = |n: u32| PortId::from_index(n as usize % 64);
    let found = |n| {
        let (key, ips) = (Key { vni, mac: mac(n) }, Ips::from_iter([ip(n).into()]));
        let claim = Claim { key, port: port(n), ips, origin: Origin::Learned, moves: 0 };
        Found { claim, owner: HostId(1), state: State::Own }
    };
    let house = House((0..ENDPOINTS).map(found).collect());
    let all = sluice_control::bucket::Rate::UNLIMITED;
    let cause = [all; PuntCause::COUNT];
    let limits = punt::Config { assured: all, port: all, cause, ..punt::Config::new(64) };
    let mut policer = punt::Policer::new(&limits, 1);
    let mut learner = learn::Learner::new(&learn::Config::new(64), 2);
    let mut resolver = resolve::Resolver::new(&resolve::Config::new(64), 3);
    let request = |n: u32| {
        let (src, target, mut bytes) = (mac(n), ip((n * 7 + 1) % ENDPOINTS), [0; 60]);
        ethernet::Repr { dst: Mac::BROADCAST, src, ethertype: EtherType::ARP }.emit(&mut bytes);
        arp::Repr { sender_ip: ip(n), ..arp::Repr::probe(src, target) }.emit(&mut bytes[14..]);
        (port(n), bytes)
    };
    let requests: Vec<_> = (0..ENDPOINTS).map(request).collect();
    for round in 0..5 {
        let start = core_nanos().expect("Linux");
        // The pace is slow enough for every question to be a new one when it comes back.
        for (n, (port, bytes)) in (0..PUNTS).zip(requests.iter().cycle()) {
            let now = Nanos::from_micros(u64::from(round * PUNTS + n) * 20);
            let frame = Frame::parse(std::hint::black_box(bytes)).expect("a whole frame");
            let admitted = policer.admit(now, *port, vni, PuntCause::Arp, &frame).is_ok();
            if admitted && learner.observe(now, *port, vni, &frame, &house, &house).is_ok() {
                std::hint::black_box(resolver.resolve(*port, vni, &frame, &house));
            }
        }
        let rate = u64::from(PUNTS) * 1_000_000_000 / (core_nanos().expect("Linux") - start);
        let answered: u64 = (0..64).map(|port| resolver.answered(PortId(port))).sum();
        println!("round {round}: {rate} punts/s, {answered} answered so far");
    }
}
