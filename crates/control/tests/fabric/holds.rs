//! Receivers that do not keep up, at the hosts that send to them.

use sluice_base::{HostId, PriorityMask};
use sluice_control::hold::{LEASE, RENEW_EVERY};
use sluice_control::plane::Event;

use crate::host::millis;
use crate::world::{World, vni};

const A: HostId = HostId(1);
const B: HostId = HostId(2);

/// Two hosts; an endpoint of one sends to an endpoint of the other. Returns their numbers.
fn talking(seed: u64) -> (World, usize, usize) {
    let mut world = World::of(seed, 3);
    let (near, far) = (world.add_vm(A, vni(10), true), world.add_vm(B, vni(10), true));
    assert!(world.until(millis(5_000), |world| world.disagreement().is_none()));
    let token = world.talk(near, far);
    assert!(world.until(millis(2_000), |world| world.delivered.contains(&token)));
    (world, near, far)
}

fn held(world: &World, host: HostId, vm: usize) -> Option<PriorityMask> {
    world.hosts[&host].holds.get(&world.vms[vm].key).map(|(_, held, _)| *held)
}

#[test]
fn sender_holds_while_receiver_congested_then_releases() {
    let (mut world, near, far) = talking(1);
    world.press(far, 0b10);
    assert!(world.until(millis(50), |world| held(world, A, far) == Some(PriorityMask(0b10))));
    // No other host sends to the endpoint: it is not in their forwarding tables (FDBs).
    world.run_for(millis(700));
    assert!(held(&world, HostId(3), far).is_none());
    assert_eq!(world.hosts[&HostId(3)].plane.holds().count(), 1, "though they know of it");
    for _ in 0..20 {
        let since = world.hosts[&A].holds[&world.vms[far].key].2;
        let late = world.hosts[&A].clock.since(since);
        assert!(late <= RENEW_EVERY.after(millis(20)), "data was told {late:?} ago");
        world.talk(near, far);
        world.run_for(millis(70));
    }
    world.press(far, 0b11);
    assert!(world.until(millis(50), |world| held(world, A, far) == Some(PriorityMask(0b11))));
    world.press(far, 0);
    assert!(world.until(millis(50), |world| held(world, A, far).is_none()));
}

#[test]
fn late_sender_held_once_it_sends() {
    let (mut world, _, far) = talking(2);
    world.press(far, 1);
    let third = world.add_vm(HostId(3), vni(10), true);
    world.run_for(millis(100));
    assert!(held(&world, HostId(3), far).is_none());
    world.talk(third, far);
    assert!(world.until(millis(100), |world| held(world, HostId(3), far).is_some()));
}

#[test]
fn hold_outlasts_session_until_lease() {
    let (mut world, _, far) = talking(3);
    world.press(far, 1);
    assert!(world.until(millis(50), |world| held(world, A, far).is_some()));
    world.cut(A, B, false);
    assert!(!world.until(millis(5_000), |world| held(world, A, far).is_none()));
    // It is let go while there is no session.
    world.cut(A, B, false);
    world.press(far, 0);
    assert!(world.until(LEASE, |world| held(world, A, far).is_none()));
}

#[test]
fn hold_of_silent_host_expires_with_lease() {
    let (mut world, _, far) = talking(4);
    world.press(far, 1);
    assert!(world.until(millis(50), |world| held(world, A, far).is_some()));
    world.host(A).mute = Some(B);
    let begin = world.now;
    assert!(world.until(millis(10_000), |world| held(world, A, far).is_none()));
    let took = world.now.since(begin);
    assert!(took <= LEASE.after(millis(20)), "it took {took:?}");
}

#[test]
fn moved_endpoint_not_held_for_old_host() {
    let (mut world, near, far) = talking(5);
    world.press(far, 1);
    assert!(world.until(millis(50), |world| held(world, A, far).is_some()));
    world.move_vm(far, HostId(3), true);
    world.talk(near, far);
    assert!(world.until(millis(1_000), |world| held(world, A, far).is_none()));
    world.run_for(millis(1_000));
    assert!(held(&world, A, far).is_none(), "the old host cannot speak for it");
}

#[test]
fn datapath_restart_releases_holds_until_set_again() {
    let (mut world, _, far) = talking(6);
    world.press(far, 1);
    assert!(world.until(millis(50), |world| held(world, A, far).is_some()));
    let host = world.host(B);
    host.plane.fdb_lost(host.clock);
    host.fdb.clear();
    host.decaps.clear();
    assert!(world.until(millis(50), |world| held(world, A, far).is_none()));
    let restored = |event: &Event| matches!(event, Event::Restored(_));
    assert!(world.hosts[&B].events.iter().any(restored));
}
