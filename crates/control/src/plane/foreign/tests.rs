use std::vec;
use std::vec::Vec;

use sluice_base::{Mac, PuntCause};

use super::*;
use crate::directory::PortRule;
use crate::plane::{Config, Location};

const OWN: HostId = HostId(5);
const ONE: HostId = HostId(40_000);
const OTHER: HostId = HostId(40_001);
const MEMBER: HostId = HostId(7);
const PORT: PortId = PortId(1);

fn vni() -> Vni {
    Vni::new(9).unwrap()
}

fn key(n: u64) -> Key {
    Key { vni: vni(), mac: Mac::from_u64(0x0200_0000_0000 | n) }
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_millis(seconds * 1_000)
}

/// A plane with a port, a member and two foreign hosts.
fn plane() -> Plane {
    plane_of(&Config::new(OWN, 1, [1; 16], 4))
}

fn plane_of(config: &Config) -> Plane {
    let mut plane = Plane::new(config, 3, Nanos::ZERO);
    plane.add_vnet(vni());
    let rule = PortRule::Learn { quota: 100, sticky: false };
    assert!(plane.add_port(Nanos::ZERO, PORT, vni(), rule));
    plane.add_host(Nanos::ZERO, MEMBER, &[vni()], Kind::Member);
    for host in [ONE, OTHER] {
        plane.add_host(Nanos::ZERO, host, &[vni()], Kind::Foreign);
    }
    plane
}

/// Lets a frame of an endpoint come.
fn frame(plane: &mut Plane, now: Nanos, from: Location, key: Key) {
    let mut head = [0; 60];
    head[..6].copy_from_slice(&Mac::from_u64(0x0200_0000_00ff).0);
    head[6..12].copy_from_slice(&key.mac.0);
    plane.punt(now, from, vni(), PuntCause::NewSource, &head);
}

fn told(host: HostId, moves: u32) -> Option<Told> {
    Some(Told { host, ips: Ips::default(), origin: Origin::Learned, moves })
}

fn sticky(host: HostId, moves: u32) -> Option<Told> {
    told(host, moves).map(|told| Told { origin: Origin::Sticky, ..told })
}

fn owner(plane: &Plane, key: Key) -> Option<HostId> {
    plane.vport(key).map(|info| info.vport.owner)
}

fn own_changes(plane: &mut Plane) -> Vec<(Key, Option<u32>)> {
    let next = || plane.own_change().map(|(key, claim)| (key, claim.map(|claim| claim.moves)));
    std::iter::from_fn(next).collect()
}

#[test]
fn told_endpoint_moves_without_a_gap_and_stays() {
    let mut plane = plane();
    plane.place_foreign(at(0), key(1), told(ONE, 0));
    assert_eq!(owner(&plane, key(1)), Some(ONE));
    while plane.event().is_some() {}
    plane.place_foreign(at(1), key(1), told(OTHER, 1));
    assert_eq!(owner(&plane, key(1)), Some(OTHER));
    let events: Vec<Event> = std::iter::from_fn(|| plane.event()).collect();
    assert!(
        events.iter().any(|event| matches!(event, Event::VportMoved { from: ONE, to: OTHER, .. })),
        "{events:?}"
    );
    assert!(!events.iter().any(|event| matches!(event, Event::VportWithdrawn(..))), "{events:?}");
    // It has no age.
    plane.tick(at(100_000));
    assert_eq!(owner(&plane, key(1)), Some(OTHER));
    plane.place_foreign(at(100_001), key(1), None);
    assert_eq!(owner(&plane, key(1)), None);
}

#[test]
fn frames_of_host_that_is_told_teach_nothing() {
    let mut plane = plane();
    frame(&mut plane, at(0), Location::Host(ONE), key(1));
    frame(&mut plane, at(0), Location::Host(OTHER), key(2));
    assert_eq!((owner(&plane, key(1)), owner(&plane, key(2))), (Some(ONE), Some(OTHER)));
    plane.set_told(at(1), ONE, vni(), true);
    assert_eq!((owner(&plane, key(1)), owner(&plane, key(2))), (None, Some(OTHER)));
    frame(&mut plane, at(2), Location::Host(ONE), key(1));
    assert_eq!(owner(&plane, key(1)), None);
    plane.set_told(at(3), ONE, vni(), false);
    frame(&mut plane, at(4), Location::Host(ONE), key(1));
    assert_eq!(owner(&plane, key(1)), Some(ONE));
}

#[test]
fn learned_endpoint_that_goes_leaves_told_one() {
    let mut plane = plane();
    plane.set_told(at(0), ONE, vni(), true);
    plane.place_foreign(at(0), key(1), told(ONE, 0));
    // Its frames come from a host that nobody speaks for.
    frame(&mut plane, at(1), Location::Host(OTHER), key(1));
    assert_eq!(owner(&plane, key(1)), Some(OTHER));
    for seconds in 2..700 {
        plane.tick(at(seconds));
    }
    assert_eq!(owner(&plane, key(1)), Some(ONE));
}

#[test]
fn place_at_member_or_unknown_host_is_none() {
    let mut plane = plane();
    for host in [MEMBER, HostId(41_000)] {
        plane.place_foreign(at(0), key(1), told(ONE, 0));
        plane.place_foreign(at(0), key(1), told(host, 1));
        assert_eq!(owner(&plane, key(1)), None, "{host}");
    }
}

#[test]
fn own_endpoint_given_up_unless_later_or_bound() {
    let mut plane = plane();
    plane.watch_own(true);
    frame(&mut plane, at(0), Location::Port(PORT), key(1));
    assert_eq!(own_changes(&mut plane), [(key(1), Some(0))]);
    // The tables of hosts prefer the lower host, and BGP the lower VTEP.
    plane.place_foreign(at(1), key(1), told(ONE, 0));
    assert_eq!(owner(&plane, key(1)), Some(OWN));
    assert!(plane.give_up(at(1), key(1), 0));
    assert_eq!(owner(&plane, key(1)), Some(ONE));
    assert_eq!(own_changes(&mut plane), [(key(1), None)]);
    // It is back, and what was decided before is over.
    frame(&mut plane, at(2), Location::Port(PORT), key(1));
    assert_eq!(own_changes(&mut plane), [(key(1), Some(1))]);
    assert!(plane.give_up(at(2), key(1), 0));
    assert_eq!(owner(&plane, key(1)), Some(OWN));
    // A binding is for the operator to change.
    plane.bind(at(3), PORT, key(2), Ips::default()).unwrap();
    plane.place_foreign(at(3), key(2), sticky(ONE, 9));
    assert!(!plane.give_up(at(3), key(2), u32::MAX));
    assert_eq!(owner(&plane, key(2)), Some(OWN));
}

#[test]
fn sticky_endpoint_elsewhere_not_learned_here() {
    let mut plane = plane();
    plane.watch_own(true);
    frame(&mut plane, at(0), Location::Port(PORT), key(1));
    plane.place_foreign(at(1), key(1), sticky(ONE, 0));
    assert_eq!(owner(&plane, key(1)), Some(ONE));
    frame(&mut plane, at(2), Location::Port(PORT), key(1));
    assert_eq!(own_changes(&mut plane), [(key(1), None)]);
}

#[test]
fn moves_counted_elsewhere_raise_own_claim_once() {
    let mut plane = plane();
    frame(&mut plane, at(0), Location::Port(PORT), key(1));
    plane.watch_own(true);
    assert_eq!(own_changes(&mut plane), [(key(1), Some(0))], "all that there are");
    plane.raise_own(at(1), key(1), 4);
    assert_eq!(own_changes(&mut plane), [(key(1), Some(4))]);
    plane.raise_own(at(1), key(1), 3);
    assert_eq!(own_changes(&mut plane), vec![]);
    plane.watch_own(false);
    plane.raise_own(at(1), key(1), 5);
    assert_eq!(own_changes(&mut plane), vec![]);
}

#[test]
fn host_that_is_removed_takes_its_told_endpoints() {
    let mut plane = plane();
    plane.set_told(at(0), ONE, vni(), true);
    plane.place_foreign(at(0), key(1), told(ONE, 0));
    plane.place_foreign(at(0), key(2), told(OTHER, 0));
    plane.remove_host(at(1), ONE);
    assert_eq!((owner(&plane, key(1)), owner(&plane, key(2))), (None, Some(OTHER)));
    // It comes back, and nobody tells of it yet.
    plane.add_host(at(2), ONE, &[vni()], Kind::Foreign);
    frame(&mut plane, at(2), Location::Host(ONE), key(1));
    assert_eq!(owner(&plane, key(1)), Some(ONE));
    plane.forget_told(at(3));
    assert_eq!((owner(&plane, key(1)), owner(&plane, key(2))), (Some(ONE), None));
}

#[test]
fn told_endpoints_leave_room_for_own_ones() {
    let mut config = Config::new(OWN, 1, [1; 16], 4);
    (config.claims_max, config.claims_per_host) = (16, 6);
    let mut plane = plane_of(&config);
    for n in 0..10 {
        plane.place_foreign(at(0), key(n), told(ONE, 0));
        plane.place_foreign(at(0), key(100 + n), told(OTHER, 0));
    }
    let of = |plane: &Plane, host| plane.hosts().find(|info| info.host == host).unwrap().claims;
    assert_eq!((of(&plane, ONE), of(&plane, OTHER)), (4, 4), "half of the table for all");
    assert_eq!(plane.counts().claims_refused, 12);
    // One that is there may move on.
    plane.place_foreign(at(1), key(100), told(ONE, 1));
    assert_eq!(owner(&plane, key(100)), Some(ONE));
    plane.place_foreign(at(1), key(101), None);
    plane.place_foreign(at(1), key(102), told(ONE, 1));
    assert_eq!(owner(&plane, key(102)), Some(ONE));
    for n in 0..20 {
        plane.place_foreign(at(2), key(200 + n), told(ONE, 0));
    }
    assert_eq!(of(&plane, ONE), 6, "the quota of a host");
    frame(&mut plane, at(3), Location::Port(PORT), key(900));
    assert_eq!(owner(&plane, key(900)), Some(OWN));
}

#[test]
fn frame_of_told_endpoint_changes_nothing() {
    let mut plane = plane();
    // The route of the MAC comes before that of its host.
    plane.place_foreign(at(0), key(1), told(ONE, 3));
    frame(&mut plane, at(0), Location::Host(ONE), key(1));
    plane.set_told(at(1), ONE, vni(), true);
    assert_eq!(owner(&plane, key(1)), Some(ONE));
    plane.set_told(at(2), ONE, vni(), false);
    frame(&mut plane, at(3), Location::Host(ONE), key(1));
    for seconds in 4..700 {
        plane.tick(at(seconds));
    }
    assert_eq!(owner(&plane, key(1)), Some(ONE), "it has no age");
}
