use sluice_base::{Mac, PortId, PuntCause};

use super::*;
use crate::bucket::Rate;
use crate::directory::PortRule;
use crate::plane::{Event, Health, Kind, Location, MessageEvent};
use crate::session::{Due, SendError};
use crate::vport::{Ips, Key};

const A: HostId = HostId(1);
const B: HostId = HostId(2);

fn vni(n: u32) -> Vni {
    Vni::new(n).unwrap()
}

fn config(own: HostId) -> Config {
    let mut config = Config::new(own, 1, [1; 16], 4);
    (config.claims_max, config.flow_limit, config.learn.entries) = (64, 8, 16);
    (config.punt.questions, config.punt.unknowns, config.resolve.targets) = (64, 16, 16);
    config
}

/// A host with a port in each of two networks.
fn plane(own: HostId, peer: HostId, theirs: &[Vni]) -> Plane {
    let mut plane = Plane::new(&config(own), 3, Nanos::ZERO);
    let rule = PortRule::Learn { quota: 100, sticky: false };
    for (port, n) in [(0, 10), (1, 20)] {
        plane.add_vnet(vni(n));
        assert!(plane.add_port(Nanos::ZERO, PortId(port), vni(n), rule));
    }
    plane.add_host(Nanos::ZERO, peer, theirs, Kind::Member);
    plane
}

/// Lets two hosts exchange all that they have to say. Returns the error that ended a connection.
fn exchange(now: Nanos, a: &mut Plane, b: &mut Plane) -> Option<crate::session::Error> {
    let tell = |from: &mut Plane, to: &mut Plane, own, peer| {
        from.tick(now);
        let mut bytes = Vec::new();
        let _: Due = from.due(now, peer);
        while from.write(now, peer, 100_000, &mut bytes) > 0 {}
        while let Some((_, datagram)) = from.datagram_out() {
            to.datagram(now, own, &datagram);
        }
        to.stream(now, own, &bytes).err()
    };
    (0..20).find_map(|_| tell(a, b, A, B).or_else(|| tell(b, a, B, A)))
}

fn connected(a: &mut Plane, b: &mut Plane) {
    let _: Due = a.due(Nanos::ZERO, B);
    a.connected(Nanos::ZERO, B);
    b.connected(Nanos::ZERO, A);
    assert_eq!(exchange(Nanos::ZERO, a, b), None);
}

fn bind(plane: &mut Plane, port: u16, n: u32, mac: u64) {
    let key = Key { vni: vni(n), mac: Mac::from_u64(0x0200_0000_0000 | mac) };
    plane.bind(Nanos::ZERO, PortId(port), key, Ips::default()).unwrap();
}

fn counts(plane: &Plane) -> (usize, usize) {
    let count = |n| plane.vports(vni(n), None, 100).len();
    (count(10), count(20))
}

#[test]
fn claims_follow_networks_without_snapshot_or_resync() {
    let both = [vni(10), vni(20)];
    let (mut a, mut b) = (plane(A, B, &both), plane(B, A, &both));
    for mac in 0..4 {
        bind(&mut b, 0, 10, mac);
        bind(&mut b, 1, 20, 8 + mac);
    }
    connected(&mut a, &mut b);
    assert_eq!(counts(&a), (4, 4));
    a.decap(Nanos::ZERO, vni(20), B);
    a.add_host(Nanos::ZERO, B, &[vni(10)], Kind::Member);
    assert_eq!((counts(&a), a.decap_flows().count()), ((4, 0), 0));
    // What it says of the network meanwhile is remembered, too.
    bind(&mut b, 1, 20, 12);
    a.decap(Nanos::ZERO, vni(20), B);
    let mut now = Nanos::ZERO;
    for _ in 0..200 {
        now = now.after(Nanos::from_millis(70));
        assert_eq!(exchange(now, &mut a, &mut b), None);
    }
    assert_eq!(counts(&a), (4, 0));
    while a.command().is_some() {}
    a.add_host(now, B, &both, Kind::Member);
    assert_eq!(counts(&a), (4, 5));
    let forgets = core::iter::from_fn(|| a.command());
    let forget = Command::ForgetDecap { vni: vni(20), host: B };
    assert_eq!(forgets.filter(|command| *command == forget).count(), 1, "it is reported again");
    for _ in 0..200 {
        now = now.after(Nanos::from_millis(70));
        assert_eq!(exchange(now, &mut a, &mut b), None);
    }
    let sessions = a.hosts().next().unwrap().counts;
    assert_eq!((sessions.snapshots_received, sessions.digests_differed), (1, 0));
    assert_eq!(sessions.resyncs, 0);
}

#[test]
fn dismissed_host_hears_why_and_leaves_nothing() {
    let (mut a, mut b) = (plane(A, B, &[vni(10)]), plane(B, A, &[vni(10)]));
    bind(&mut b, 0, 10, 1);
    connected(&mut a, &mut b);
    a.send_message(Nanos::ZERO, B, [7; 3].into()).unwrap();
    a.dismiss(Nanos::ZERO, B);
    let error = exchange(Nanos::ZERO, &mut a, &mut b).expect("its connection is closed");
    assert!(alloc::string::ToString::to_string(&error).contains("no member"), "{error}");
    a.disconnected(Nanos::ZERO, B);
    a.remove_host(Nanos::ZERO, B);
    assert_eq!((counts(&a), a.hosts().count(), a.memory().1), ((0, 0), 0, 0));
    assert_eq!(a.send_message(Nanos::ZERO, B, [7; 3].into()), Err(SendError::NotConnected));
    let told: Vec<_> = core::iter::from_fn(|| a.message_event()).collect();
    let connected = MessageEvent::Connected { takes_messages: true };
    assert_eq!(told, [(B, connected), (B, MessageEvent::Gone)]);
    let events: Vec<_> = core::iter::from_fn(|| a.event()).collect();
    assert!(events.contains(&Event::SessionDown(B)), "{events:?}");
}

#[test]
fn removed_host_under_way_reports_gone_once() {
    let (mut a, mut b) = (plane(A, B, &[vni(10)]), plane(B, A, &[vni(10)]));
    connected(&mut a, &mut b);
    b.send_message(Nanos::ZERO, A, [7; 3].into()).unwrap();
    assert_eq!(exchange(Nanos::ZERO, &mut a, &mut b), None);
    // Without a goodbye.
    a.remove_host(Nanos::ZERO, B);
    let told: Vec<_> = core::iter::from_fn(|| a.message_event()).map(|event| event.1).collect();
    let received = MessageEvent::Received([7; 3].into());
    let connected = MessageEvent::Connected { takes_messages: true };
    assert_eq!(told, [connected, received, MessageEvent::Gone]);
}

#[test]
fn host_added_again_may_be_in_earlier_life() {
    let (mut a, b) = (plane(A, B, &[vni(10)]), config(B));
    let born = |incarnation| {
        let mut b = Plane::new(&Config { incarnation, ..b.clone() }, 4, Nanos::ZERO);
        b.add_host(Nanos::ZERO, A, &[vni(10)], Kind::Member);
        b
    };
    let health = |a: &Plane| a.hosts().next().map(|info| info.health);
    let mut old = born(9);
    connected(&mut a, &mut old);
    assert_eq!(health(&a), Some(Health::Alive(9)));
    a.remove_host(Nanos::ZERO, B);
    a.add_host(Nanos::ZERO, B, &[vni(10)], Kind::Member);
    assert_eq!(health(&a), Some(Health::Unknown));
    // Another machine has its number.
    connected(&mut a, &mut born(1));
    assert_eq!(health(&a), Some(Health::Alive(1)));
}

#[test]
fn rates_and_thresholds_change_while_running() {
    let mut plane = plane(A, B, &[vni(10)]);
    let punt = |plane: &mut Plane, n: u8| {
        let mut head = [0; 60];
        head[..12].copy_from_slice(&[2, 0, 0, 0, 9, n, 2, 0, 0, 0, 0, n]);
        let from = Location::Port(PortId(0));
        plane.punt(Nanos::ZERO, from, vni(10), PuntCause::NewSource, &head);
        plane.counts().punts_refused
    };
    assert_eq!(punt(&mut plane, 1), 0);
    let mut config = config(A);
    config.punt.cause = [Rate::NEVER; PuntCause::COUNT];
    config.mobility.moves = 77;
    plane.reconfigure(&config);
    assert_eq!(punt(&mut plane, 2), 1);
    assert_eq!(plane.mobility.limits().moves, 77);
    config.punt.cause = [Rate::UNLIMITED; PuntCause::COUNT];
    plane.reconfigure(&config);
    assert_eq!(punt(&mut plane, 3), 1);
}
