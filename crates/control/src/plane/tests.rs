use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{HostId, Mac, Nanos, PortId, PuntCause, Vni};

use super::{Config, Event, Full, Kind, Location, Plane};
use crate::directory::PortRule;
use crate::session::Due;
use crate::vport::{Ips, Key};

fn vni() -> Vni {
    Vni::new(9).unwrap()
}

fn key(n: u64) -> Key {
    Key { vni: vni(), mac: Mac::from_u64(0x0200_0000_0000 | n) }
}

fn small() -> Config {
    let mut config = Config::new(HostId(5), 1, [1; 16], 4);
    (config.claims_max, config.flow_limit) = (16, 4);
    (config.punt.questions, config.punt.unknowns, config.resolve.targets) = (64, 16, 16);
    config.learn.entries = 8;
    config
}

/// A plane of host 5 with a port and four other hosts.
fn plane() -> Plane {
    let mut plane = Plane::new(&small(), 3, Nanos::ZERO);
    plane.add_vnet(vni());
    let rule = PortRule::Learn { quota: 100, sticky: false };
    assert!(plane.add_port(Nanos::ZERO, PortId(1), vni(), rule));
    for host in [1, 2, 8, 9] {
        plane.add_host(Nanos::ZERO, HostId(host), &[vni()], Kind::Member);
    }
    plane
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes, in milliseconds, or the clock goes back by as much.
    Pass(u32),
    Back(u32),
    Connected(u16),
    Disconnected(u16),
    Noise(u16),
    Bind(u64),
    Unbind(u64),
    Punt(u64, u64),
    Decap(u16),
    Used(u64),
    Remove(u16),
    Add(u16),
    /// A host is in one network, or in none that this host has.
    Networks(u16, bool),
    Dismiss(u16),
    PortDown,
}

fn step() -> impl Strategy<Value = Step> {
    let host = prop::sample::select(vec![1_u16, 2, 8, 9]);
    prop_oneof![
        4 => (0..400_u32).prop_map(Step::Pass),
        1 => (0..400_000_u32).prop_map(Step::Pass),
        1 => (0..9_000_u32).prop_map(Step::Back),
        2 => host.clone().prop_map(Step::Connected),
        1 => host.clone().prop_map(Step::Disconnected),
        1 => host.clone().prop_map(Step::Noise),
        2 => (0..20_u64).prop_map(Step::Bind),
        1 => (0..20_u64).prop_map(Step::Unbind),
        3 => (0..20_u64, 0..20_u64).prop_map(|(src, dst)| Step::Punt(src, dst)),
        1 => host.clone().prop_map(Step::Decap),
        1 => (0..20_u64).prop_map(Step::Used),
        1 => host.clone().prop_map(Step::Remove),
        1 => host.clone().prop_map(Step::Add),
        2 => (host.clone(), any::<bool>()).prop_map(|(host, is_in)| Step::Networks(host, is_in)),
        1 => host.prop_map(Step::Dismiss),
        1 => Just(Step::PortDown),
    ]
}

fn take(plane: &mut Plane, now: &mut Nanos, step: Step) {
    let rule = PortRule::Learn { quota: 100, sticky: false };
    match step {
        Step::Pass(millis) => *now = now.after(Nanos::from_millis(u64::from(millis))),
        Step::Back(millis) => *now = now.before(Nanos::from_millis(u64::from(millis))),
        Step::Connected(host) => plane.connected(*now, HostId(host)),
        Step::Disconnected(host) => plane.disconnected(*now, HostId(host)),
        Step::Noise(host) => _ = plane.stream(*now, HostId(host), &[0xff; 9]),
        Step::Bind(n) => _ = plane.bind(*now, PortId(1), key(n), Ips::default()),
        Step::Unbind(n) => plane.unbind(*now, key(n)),
        Step::Punt(src, dst) => {
            let mut head = [0; 60];
            head[..6].copy_from_slice(&key(dst).mac.0);
            head[6..12].copy_from_slice(&key(src).mac.0);
            plane.punt(*now, Location::Port(PortId(1)), vni(), PuntCause::Miss, &head);
        }
        Step::Decap(host) => plane.decap(*now, vni(), HostId(host)),
        Step::Used(n) => plane.used(*now, vni(), key(n).mac),
        Step::Remove(host) => plane.remove_host(*now, HostId(host)),
        Step::Add(host) => plane.add_host(*now, HostId(host), &[vni()], Kind::Member),
        Step::Networks(host, is_in) => {
            let vnets = [vni(), Vni::new(77).unwrap()];
            plane.add_host(*now, HostId(host), &vnets[usize::from(!is_in)..], Kind::Member);
        }
        Step::Dismiss(host) => plane.dismiss(*now, HostId(host)),
        Step::PortDown => {
            plane.remove_port(*now, PortId(1));
            assert!(plane.add_port(*now, PortId(1), vni(), rule));
        }
    }
}

/// Does everything that is due, as a caller should. Returns the number of rounds.
fn drain(plane: &mut Plane, now: Nanos, room: usize) -> usize {
    for round in 0..200 {
        plane.tick(now);
        let mut left = 200;
        while let Some(host) = plane.ready(now) {
            left -= 1;
            assert!(left > 0, "{host} is ready for ever");
            let _: Due = plane.due(now, host);
            plane.write(now, host, room, &mut Vec::new());
        }
        while plane.command().is_some() {}
        while plane.event().is_some() {}
        while plane.datagram_out().is_some() {}
        if plane.deadline().is_none_or(|at| at > now) {
            return round;
        }
    }
    panic!("it is never done: a busy loop");
}

proptest! {
    /// After any steps: once everything was taken, nothing is due before some time has passed, and
    /// the work that is due at the deadline ends.
    #[test]
    fn who_takes_everything_sleeps(
        steps in prop::collection::vec(step(), 1..60),
        room in prop::sample::select(vec![0_usize, 60, 700, 100_000]),
    ) {
        let (mut plane, mut now) = (plane(), Nanos::from_millis(50_000));
        for step in steps {
            take(&mut plane, &mut now, step);
            drain(&mut plane, now, room);
            prop_assert!(plane.flow_count() <= 4 && plane.wanted_count() <= 16);
            prop_assert!(plane.memory().1 <= 16);
            prop_assert_eq!(plane.waiting(), (0, 0, 0));
        }
        // Without input, the plane wakes now and then and not more often than its timers require.
        let begin = now;
        let mut wakes = 0;
        while let Some(at) = plane.deadline().filter(|at| at.since(begin) < Nanos(1_000_000_000)) {
            prop_assert!(at > now, "a deadline lies ahead");
            now = at;
            drain(&mut plane, now, room);
            wakes += 1;
        }
        prop_assert!(wakes < 400, "{} wakes in a second", wakes);
    }
}

#[test]
fn full_tables_emit_event_and_count_refusals() {
    let mut plane = plane();
    for n in 0..16 {
        assert_eq!(plane.bind(Nanos::ZERO, PortId(1), key(n), Ips::default()), Ok(()));
    }
    let refused = plane.bind(Nanos::ZERO, PortId(1), key(99), Ips::default());
    assert_eq!(refused, Err(super::BindError::Full));
    assert_eq!(plane.counts().claims_refused, 1);
    let events: Vec<_> = core::iter::from_fn(|| plane.event()).collect();
    assert!(events.contains(&Event::Full(Full::Claims)), "{events:?}");
    for n in 0..20 {
        take(&mut plane, &mut Nanos::from_millis(100), Step::Punt(1, 1_000 + n));
    }
    assert_eq!((plane.wanted_count(), plane.counts().wanted_refused), (16, 4));
}

#[test]
fn local_endpoint_installed_at_port_ages_out() {
    let mut plane = plane();
    let mut head = [0; 60];
    head[..6].copy_from_slice(&key(2).mac.0);
    head[6..12].copy_from_slice(&key(1).mac.0);
    let from = Location::Port(PortId(1));
    plane.punt(Nanos::ZERO, from, vni(), PuntCause::NewSource, &head);
    let location = Location::Port(PortId(1));
    assert_eq!(plane.fdb.way(key(1)), Some(location));
    assert_eq!(plane.sequence(), 1, "and published");
    plane.tick(Nanos::from_millis(299_999));
    assert!(plane.vport(key(1)).is_some());
    plane.used(Nanos::from_millis(299_999), vni(), key(1).mac);
    plane.tick(Nanos::from_millis(599_998));
    assert!(plane.vport(key(1)).is_some(), "it was used");
    plane.tick(Nanos::from_millis(599_999));
    assert!(plane.vport(key(1)).is_none() && plane.fdb.way(key(1)).is_none());
    assert_eq!(plane.sequence(), 2, "and withdrawn");
}

#[test]
fn vnet_removal_removes_its_endpoints_and_decap_flows() {
    let mut plane = plane();
    plane.bind(Nanos::ZERO, PortId(1), key(1), Ips::default()).unwrap();
    plane.decap(Nanos::ZERO, vni(), HostId(1));
    assert_eq!(plane.tunnels().count(), 1);
    plane.remove_vnet(Nanos::ZERO, vni());
    assert_eq!((plane.memory().1, plane.decap_flows().count()), (0, 0));
    plane.decap(Nanos::ZERO, vni(), HostId(1));
    assert_eq!(plane.counts().punts_unfit, 1, "it is none of this host's");
    assert!(!plane.add_port(Nanos::ZERO, PortId(2), vni(), PortRule::Bound));
}
