//! Values of a port that change while frames wait for it and come from it.

mod harness;

use std::net::Ipv4Addr;

use harness::config::{access, config};
use harness::frames::{Tenant, arp};
use harness::ops::address;
use harness::world::World;
use harness::{Info, TestBuf};
use sluice_base::{BitRate, DropReason, InputId, IpPrefix, Mac, Nanos, PortId, Priority};
use sluice_switch::{
    Binding, ChangeError, ConfigError, PortConfig, PortValues, RateLimit, Sources, SwitchConfig,
};

const FROM: usize = 0;
const TO: PortId = PortId(1);
const BOUND: PortId = PortId(2);
const MBPS: u64 = 80;

fn mac(n: u8) -> Mac {
    address(0, n)
}

fn limit(mbps: u64) -> Option<RateLimit> {
    let rate = BitRate::from_mbps(mbps);
    Some(RateLimit { rate, catch_up: Nanos::ZERO, overhead: 0 })
}

fn values(rate: Option<RateLimit>) -> PortValues {
    PortValues { rate, default_priority: Priority::ZERO, allowed: Vec::new() }
}

/// Returns two ports that take any source, and one that is bound.
fn ports() -> SwitchConfig {
    let bound = PortConfig { sources: Sources::Bound, ..access(0) };
    let mut config = config(vec![access(0), access(0), bound]);
    let ips = [Some(Ipv4Addr::new(10, 0, 0, 2).into()), None, None, None];
    config.control.bindings = vec![Binding { port: BOUND, mac: mac(2), ips }];
    config
}

fn world() -> World {
    world_of(&ports())
}

fn world_of(config: &SwitchConfig) -> World {
    let mut world = World::new(config, 1);
    for n in 0..3 {
        world.at_port(mac(n), usize::from(n));
    }
    world.log();
    world
}

/// Receives frames of 1,000 bytes for the second port.
fn give(world: &mut World, count: usize) {
    let tenant = Tenant::new(mac(1), mac(0), 0, 1_000);
    let bufs = (0..count).map(|_| world.tenant(FROM, &tenant)).collect();
    let input = world.switch.input(PortId::from_index(FROM), 0);
    assert_eq!(world.receive(input, bufs), count);
}

/// Sends what goes within a time. Returns the number of frames.
fn sent_within(world: &mut World, time: Nanos) -> usize {
    let until = world.now.after(time);
    let mut sent = 0;
    loop {
        world.advance();
        sent += world.transmit(TO, || true) as usize;
        world.check();
        match world.switch.deadline() {
            Some(next) if next <= until => world.now = next.max(world.now.after(Nanos(1))),
            _ => break,
        }
    }
    world.now = until;
    sent
}

#[test]
fn rate_changes_while_frames_wait() {
    // A port that obeys pauses is asked for its restraints in any case.
    for rx_pause in [true, false] {
        rate_changes(rx_pause);
    }
}

fn rate_changes(rx_pause: bool) {
    let mut config = ports();
    config.ports[TO.index()].rx_pause = rx_pause;
    let mut world = world_of(&config);
    give(&mut world, 12);
    world.set_port(TO, &values(limit(MBPS)));
    // A frame of 1,000 bytes takes 100 µs at 80 Mbit/s.
    assert_eq!(sent_within(&mut world, Nanos::from_micros(350)), 4);
    world.set_port(TO, &values(limit(MBPS / 2)));
    assert_eq!(sent_within(&mut world, Nanos::from_micros(400)), 2);
    world.set_port(TO, &values(limit(2 * MBPS)));
    assert_eq!(sent_within(&mut world, Nanos::from_micros(200)), 4);
    world.set_port(TO, &values(None));
    assert_eq!(sent_within(&mut world, Nanos::from_micros(100)), 2, "the rest goes at once");
    world.drain(|_| ());
    assert_eq!(world.oracle.delivered(), 12, "no frame is lost");
}

#[test]
fn change_of_rate_gives_no_burst() {
    let mut world = world();
    world.set_port(TO, &values(limit(MBPS)));
    give(&mut world, 12);
    assert_eq!(sent_within(&mut world, Nanos::ZERO), 1);
    for _ in 0..5 {
        world.set_port(TO, &values(limit(MBPS)));
        assert_eq!(sent_within(&mut world, Nanos::from_micros(1)), 0, "it has been paid for");
    }
    world.drain(|_| ());
}

#[test]
fn default_priority_holds_for_later_frames() {
    let mut world = world();
    // ARP has no priority of its own.
    let input = world.switch.input(PortId::from_index(FROM), 0);
    let give = |world: &mut World, priority: Priority| {
        let dst = mac(1);
        let id = world.next_id();
        let info = Info { id, from: input.0, port: 0, vnet: 0, dst, priority, valid: true };
        let bytes = arp(dst, mac(0), Ipv4Addr::new(10, 0, 0, 1));
        let buf: TestBuf = world.buf(input, info, bytes);
        world.receive(input, vec![buf]);
    };
    give(&mut world, Priority::ZERO);
    let five = Priority::from_low_bits(5);
    let changed = PortValues { default_priority: five, ..values(None) };
    world.set_port(PortId::from_index(FROM), &changed);
    give(&mut world, five);
    assert_eq!(world.switch.classifier(input).priority(&[0; 64], 64, Default::default()), five);
    // The oracle compares the priority of each with that of its frame.
    world.drain(|_| ());
    assert_eq!(world.oracle.delivered(), 2);
}

#[test]
fn allowed_prefixes_are_replaced() {
    let mut world = world();
    let prefix = |last| IpPrefix::new(Ipv4Addr::new(10, 0, 0, last).into(), 32).unwrap();
    let allow = |list: &[u8]| PortValues {
        allowed: list.iter().map(|last| prefix(*last)).collect(),
        ..values(None)
    };
    assert_eq!([2, 8, 9].map(|last| passes(&mut world, last)), [true, false, false]);
    for (list, expected) in
        [(&[8][..], [true, true, false]), (&[9], [true, false, true]), (&[], [true, false, false])]
    {
        world.set_port(BOUND, &allow(list));
        assert_eq!([2, 8, 9].map(|last| passes(&mut world, last)), expected, "{list:?}");
    }
    // A port that takes any source has no list.
    world.set_port(TO, &allow(&[8]));
    world.check();
}

/// Sends ARP from the bound machine, with an address. Returns true if it passes.
fn passes(world: &mut World, last: u8) -> bool {
    let (dst, priority, input) = (mac(0), Priority::ZERO, world.switch.input(BOUND, 0));
    let id = world.next_id();
    let info = Info { id, from: input.0, port: BOUND.0, vnet: 0, dst, priority, valid: false };
    let before = spoofed(world, input);
    let buf = world.buf(input, info, arp(dst, mac(2), Ipv4Addr::new(10, 0, 0, last)));
    world.receive(input, vec![buf]);
    world.transmit(PortId::from_index(FROM), || true);
    world.check();
    spoofed(world, input) == before
}

fn spoofed(world: &World, input: InputId) -> u64 {
    let dropped = |p| world.switch.dropped(input, p, DropReason::SpoofedIp).frames;
    Priority::all().map(dropped).sum()
}

#[test]
fn wrong_values_change_nothing() {
    let mut world = world();
    let nothing = Some(RateLimit { rate: BitRate(0), catch_up: Nanos::ZERO, overhead: 0 });
    let many = (0..17).map(|n| IpPrefix::new(Ipv4Addr::new(10, 0, 1, n).into(), 32).unwrap());
    let too_many = PortValues { allowed: many.collect(), ..values(None) };
    let set = |world: &mut World, port, values: &PortValues| world.switch.set_port(port, values);
    assert_eq!(
        set(&mut world, TO, &values(nothing)),
        Err(ChangeError::Config(ConfigError::RateTooSmall { port: TO }))
    );
    assert_eq!(
        set(&mut world, BOUND, &too_many),
        Err(ChangeError::Config(ConfigError::TooMany { what: "prefixes of a port", limit: 16 }))
    );
    let none = PortId(9);
    assert_eq!(set(&mut world, none, &values(None)), Err(ChangeError::NoSuchPort(none)));
    world.unplug(TO);
    assert_eq!(set(&mut world, TO, &values(limit(1))), Ok(()), "it has no values any more");
    world.check();
}
