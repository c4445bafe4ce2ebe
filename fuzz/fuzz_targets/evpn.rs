//! Fuzzes the EVPN speaker with a neighbor: a genuine one whose bytes are cut and changed on their
//! way, or bytes of the input, between time, endpoints that come, move and go, and connections that
//! are lost.
//!
//! Nothing may panic. What is due is done. The neighbor's routes stay within their bound, and what
//! waits for it within its own.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use sluice_base::{Mac, Nanos, Vni};
use sluice_evpn::{
    Action, Config, Endpoint, Limits, Link, MacKey, Mobility, NeighborConfig, NeighborId, Network,
    RouteTarget, Side, Speaker,
};
use sluice_fuzz::Source;

const STEPS_MAX: usize = 400;
const ROUTES_MAX: usize = 24;
const OUTPUT_MAX: usize = 1 << 17;

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

fn link(side: Side) -> Link {
    Link { neighbor: NeighborId(0), side }
}

fn speaker(own: u8, other: u8, now: Nanos) -> Speaker {
    let neighbor =
        NeighborConfig { address: address(other).into(), remote_as: 65000, is_passive: false };
    let config = Config {
        local_as: 65000,
        router_id: address(own),
        vtep: address(own),
        hold_s: 9,
        stale_max: Nanos::from_millis(5_000),
        neighbors: vec![neighbor],
        limits: Limits { routes_per_neighbor: ROUTES_MAX, routes_per_mac: 4 },
    };
    let mut speaker = Speaker::new(config, own.into(), now);
    let vni = Vni::new(42).expect("24 bits");
    speaker.add_network(now, Network { vni, target: RouteTarget::of_as(65000, 42) });
    speaker
}

fn endpoint(source: &mut Source<'_>) -> Endpoint {
    let (mac, ip, kind) = (source.byte() % 32, source.byte(), source.byte());
    let key = MacKey {
        vni: Vni::new(42).expect("24 bits"),
        mac: Mac::from_u64(0x0200_0000_0000 + u64::from(mac)),
    };
    let ips = if kind & 1 == 0 { Vec::new() } else { vec![IpAddr::V4(address(ip))] };
    Endpoint { key, ips, mobility: Mobility { is_sticky: kind & 6 == 6, sequence: 0 } }
}

/// Does all that a speaker asks for. A connection goes to nobody: the other side is the input.
fn drain(speaker: &mut Speaker, now: Nanos) {
    speaker.tick(now);
    while let Some(action) = speaker.action() {
        match action {
            Action::Connect(neighbor) => {
                let side = Side::Active;
                speaker.disconnected(now, Link { neighbor, side });
            }
            Action::Close(link) => speaker.disconnected(now, link),
        }
    }
    while speaker.change().is_some() || speaker.event().is_some() {}
    assert!(speaker.deadline().is_none_or(|at| at > now), "what is due is not done");
    assert!(speaker.neighbors()[0].routes <= ROUTES_MAX);
}

/// Takes the output of a speaker.
fn output(speaker: &mut Speaker, now: Nanos, side: Side) -> Vec<u8> {
    let bytes = speaker.output(now, link(side)).to_vec();
    assert!(bytes.len() <= OUTPUT_MAX);
    speaker.sent(now, link(side), bytes.len());
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source::new(bytes);
    let mut now = Nanos::from_millis(1_000);
    // `other` always opens the connection, and so has the active side of it.
    let (mut own, mut other) = (speaker(1, 2, now), speaker(2, 1, now));
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        match source.byte() % 16 {
            0 => {
                own.disconnected(now, link(Side::Passive));
                other.disconnected(now, link(Side::Active));
            }
            1 | 2 => {
                if own.accept(now, address(2).into()).is_some() {
                    other.disconnected(now, link(Side::Active));
                    other.connected(now, NeighborId(0));
                }
            }
            3 => now = now.after(Nanos::from_millis(u64::from(source.byte()) * 64)),
            4 => own.receive(now, link(Side::Passive), source.bytes()),
            5 | 6 => _ = own.announce(endpoint(&mut source)),
            7 => own.withdraw(endpoint(&mut source).key),
            8 | 9 => _ = other.announce(endpoint(&mut source)),
            10 => other.withdraw(endpoint(&mut source).key),
            kind => {
                let mut there = output(&mut other, now, Side::Active);
                if kind == 11 && !there.is_empty() {
                    let at = usize::from(source.u16()) % there.len();
                    there[at] = source.byte();
                }
                own.receive(now, link(Side::Passive), &there);
                let back = output(&mut own, now, Side::Passive);
                other.receive(now, link(Side::Active), &back);
            }
        }
        drain(&mut own, now);
        drain(&mut other, now);
    }
});
