//! Addresses that several bound ports may share: they go from one to the other by announcements,
//! and to no other port.

use std::net::Ipv4Addr;

use sluice_base::{HostId, IpPrefix};
use sluice_control::vport::Precedence;

use crate::frames;
use crate::host::millis;
use crate::world::{World, vni};

const VIP: Ipv4Addr = Ipv4Addr::new(10, 7, 7, 7);

/// Endpoints 0 to 2 are bound at hosts 1, 2 and 1, and may share [`VIP`]; 3 is bound at host 3 and
/// may not; 4 at host 3 is not bound.
fn rig() -> World {
    let mut world = World::of(31, 3);
    for (host, bound) in [(1, true), (2, true), (1, true), (3, true), (3, false)] {
        world.add_vm(HostId(host), vni(10), bound);
    }
    for at in 0..3 {
        allow(&mut world, at, true);
    }
    world.run_for(millis(1_500));
    world
}

/// Lets an endpoint share addresses, or no more.
fn allow(world: &mut World, at: usize, may: bool) {
    let vm = world.vms[at];
    let list = IpPrefix::new(Ipv4Addr::new(10, 7, 7, 0).into(), 24).unwrap();
    let host = world.host(vm.host);
    host.plane.allow(host.clock, vm.port, if may { std::slice::from_ref(&list) } else { &[] });
}

fn announce(world: &mut World, at: usize) {
    let mac = world.vms[at].key.mac;
    world.emit(at, frames::announcement((mac, VIP)));
}

/// Returns true if all hosts agree that the endpoint has the shared address, and no other endpoint
/// claims it.
fn has_it(world: &World, at: usize) -> bool {
    let vm = world.vms[at];
    world.hosts.values().all(|host| {
        let found = host.plane.vport_of_ip(vni(10), VIP.into());
        let claims = world.vms.iter().flat_map(|vm| host.plane.claims(vm.key));
        found.is_some_and(|vport| {
            vport.claim.key == vm.key
                && vport.claim.standing(VIP.into()) == Some(Precedence::Shared)
        }) && claims.filter(|vport| vport.claim.ips.contains(VIP.into())).count() == 1
    })
}

fn is_nowhere(world: &World) -> bool {
    world.hosts.values().all(|host| host.plane.vport_of_ip(vni(10), VIP.into()).is_none())
}

/// Returns true if all hosts agree that bound endpoints have their own addresses.
fn bindings_stand(world: &World) -> bool {
    let bound = || world.vms.iter().filter(|vm| vm.bound);
    world.hosts.values().all(|host| {
        bound().all(|vm| {
            let found = host.plane.vport_of_ip(vni(10), vm.ip.into());
            found.is_some_and(|vport| {
                vport.claim.key == vm.key && vport.claim.is_bound_with(vm.ip.into())
            })
        })
    })
}

#[test]
fn newest_announcement_has_a_shared_address_everywhere() {
    let mut world = rig();
    // Up and down the order of MACs and hosts, on one host and across.
    for at in [0, 1, 0, 2, 1, 2, 0] {
        announce(&mut world, at);
        assert!(world.until(millis(300), |world| has_it(world, at)), "endpoint {at}");
        assert!(bindings_stand(&world));
    }
}

#[test]
fn shared_address_taken_only_by_allowed_ports() {
    let mut world = rig();
    announce(&mut world, 0);
    world.run_for(millis(300));
    for thief in [3, 4] {
        announce(&mut world, thief);
        world.run_for(millis(1_500));
        assert!(has_it(&world, 0), "endpoint {thief}");
        let mac = world.vms[thief].key.mac;
        assert!(world.hosts[&HostId(3)].mac_events(mac).contains(&"refused"));
    }
    // The list is worth more than earlier frames.
    let mut world = rig();
    announce(&mut world, 4);
    world.run_for(millis(300));
    announce(&mut world, 1);
    assert!(world.until(millis(300), |world| has_it(world, 1)));
}

#[test]
fn shared_address_ends_with_its_permission() {
    let mut world = rig();
    announce(&mut world, 0);
    assert!(world.until(millis(300), |world| has_it(world, 0)));
    // The same list again changes nothing.
    allow(&mut world, 0, true);
    world.run_for(millis(300));
    assert!(has_it(&world, 0));
    allow(&mut world, 0, false);
    assert!(world.until(millis(300), |world| is_nowhere(world)), "it is withdrawn at all hosts");
    assert!(bindings_stand(&world));
    announce(&mut world, 0);
    world.run_for(millis(1_500));
    assert!(is_nowhere(&world), "it may not take it again");
    announce(&mut world, 1);
    assert!(world.until(millis(300), |world| has_it(world, 1)), "others still may");
    allow(&mut world, 0, true);
    announce(&mut world, 0);
    assert!(world.until(millis(300), |world| has_it(world, 0)));
    assert!(bindings_stand(&world));
}

#[test]
fn shared_address_withdrawn_on_link_change_or_silence() {
    let mut world = rig();
    announce(&mut world, 0);
    world.run_for(millis(300));
    let vm = world.vms[0];
    for up in [false, true] {
        let host = world.host(HostId(1));
        host.plane.port_link(host.clock, vm.port, up);
        assert!(world.until(millis(300), |world| is_nowhere(world)), "link up: {up}");
    }
    assert!(bindings_stand(&world));
    // The endpoint gave the address up silently. Another one asks for it when no confirmation is
    // left.
    announce(&mut world, 0);
    assert!(world.until(millis(300), |world| has_it(world, 0)));
    world.run_for(millis(2_500));
    let asker = world.vms[3];
    world.emit(3, frames::question((asker.key.mac, asker.ip), VIP));
    assert!(world.until(millis(1_300), |world| is_nowhere(world)));
    assert!(bindings_stand(&world));
    // A repeated binding keeps its shared addresses.
    announce(&mut world, 1);
    world.run_for(millis(300));
    let (vm, host) = (world.vms[1], world.host(HostId(2)));
    let ips = [vm.ip.into()].into_iter().collect();
    host.plane.bind(host.clock, vm.port, vm.key, ips).unwrap();
    world.run_for(millis(300));
    assert!(has_it(&world, 1) && bindings_stand(&world));
}
