//! One MAC or address that is configured at two hosts: taken over, or found later.

use sluice_base::HostId;
use sluice_control::plane::Plane;
use sluice_control::vport::Key;

use crate::frames;
use crate::host::millis;
use crate::world::{World, vni};

/// Endpoint 0 is bound at host 1; 1 and 2 are unbound at hosts 2 and 3. Hosts 1 and 2 do not know
/// each other if they are `apart`.
fn rig(apart: bool) -> World {
    let mut world = World::of(41, 3);
    for (host, bound) in [(1, true), (2, false), (3, false)] {
        world.add_vm(HostId(host), vni(10), bound);
    }
    if !apart {
        world.run_for(millis(1_500));
    }
    world
}

/// Binds the port of endpoint 1 as endpoint 0, or with its address alone.
fn bind_at_second(world: &mut World, mac: bool, takes: bool) -> Key {
    let (first, second) = (world.vms[0], world.vms[1]);
    let key = if mac { first.key } else { second.key };
    let host = world.host(HostId(2));
    let ips = [first.ip.into()];
    let taken = if takes { host.plane.next_taking(key, &ips) } else { 0 };
    host.plane.take(host.clock, second.port, key, ips.into_iter().collect(), taken).unwrap();
    key
}

/// Returns true if all hosts agree that the endpoint is at this host and has the address.
fn agree(world: &World, key: Key, host: HostId) -> bool {
    let ip = world.vms[0].ip;
    world.hosts.values().all(|there| {
        let found = there.plane.vport_of_ip(vni(10), ip.into());
        found.is_some_and(|vport| (vport.claim.key, vport.owner) == (key, host))
    })
}

fn rivals(world: &World, host: u16) -> usize {
    world.hosts[&HostId(host)].plane.rivals().len()
}

fn claims_at_first(plane: &Plane, key: Key) -> bool {
    plane.claims(key).any(|vport| vport.owner == HostId(1))
}

#[test]
fn conflicting_binding_named_until_its_host_is_gone() {
    let mut world = rig(false);
    let (first, second) = (world.vms[0], world.vms[1]);
    let other = Key { vni: first.key.vni, mac: second.key.mac };
    let free = std::net::Ipv4Addr::new(10, 9, 9, 9).into();
    let plane = &world.hosts[&HostId(2)].plane;
    let of_mac = plane.bound_elsewhere(first.key, &[free]).unwrap();
    assert_eq!((of_mac.host, of_mac.port, of_mac.ip), (HostId(1), first.port, None));
    let of_ip = plane.bound_elsewhere(other, &[free, first.ip.into()]).unwrap();
    assert_eq!((of_ip.key, of_ip.ip), (first.key, Some(first.ip.into())));
    assert_eq!(plane.bound_elsewhere(other, &[free]), None);
    // A host is no rival of itself; a host that is gone is no rival at all.
    assert_eq!(world.hosts[&HostId(1)].plane.bound_elsewhere(first.key, &[first.ip.into()]), None);
    world.host(HostId(1)).is_down = true;
    let gone = world.until(millis(5_000), |world| {
        world.hosts[&HostId(2)].plane.bound_elsewhere(first.key, &[first.ip.into()]).is_none()
    });
    assert!(gone);
}

#[test]
fn binding_takeover_ends_binding_at_old_host() {
    for mac in [true, false] {
        let mut world = rig(false);
        let first = world.vms[0];
        let key = bind_at_second(&mut world, mac, true);
        assert!(world.until(millis(300), |world| agree(world, key, HostId(2))), "MAC: {mac}");
        world.run_for(millis(100));
        let host = &world.hosts[&HostId(1)];
        assert!(!claims_at_first(&host.plane, first.key));
        assert!(host.mac_events(first.key.mac).contains(&"binding-taken"));
        assert_eq!(host.unbound, [(first.port, first.key.mac, None)]);
        assert_eq!((rivals(&world, 1), rivals(&world, 2)), (0, 0));
        // Frames of the old port are not believed.
        world.emit(0, frames::announcement((first.key.mac, first.ip)));
        world.run_for(millis(1_500));
        assert!(agree(&world, key, HostId(2)));
        // Nor are they after a restart of the host, whose configuration still has the binding.
        world.restart(HostId(1));
        world.run_for(millis(2_000));
        assert!(agree(&world, key, HostId(2)), "MAC: {mac}");
        assert!(!claims_at_first(&world.hosts[&HostId(1)].plane, first.key));
    }
}

#[test]
fn concurrent_bindings_reported_and_lower_one_wins() {
    for mac in [true, false] {
        let mut world = rig(true);
        let first = world.vms[0];
        let key = bind_at_second(&mut world, mac, false);
        world.run_for(millis(2_000));
        // For one MAC the lower host wins, for one address the lower MAC.
        assert!(agree(&world, first.key, HostId(1)), "MAC: {mac}");
        assert_eq!((rivals(&world, 1), rivals(&world, 2)), (1, 1));
        assert_eq!(rivals(&world, 3), usize::from(mac));
        assert!(world.hosts[&HostId(2)].mac_events(key.mac).contains(&"bound-twice"));
        // A repeated binding does not take it over.
        bind_at_second(&mut world, mac, false);
        world.run_for(millis(300));
        assert!(agree(&world, first.key, HostId(1)));
        bind_at_second(&mut world, mac, true);
        assert!(world.until(millis(300), |world| agree(world, key, HostId(2))));
        world.run_for(millis(100));
        assert_eq!((rivals(&world, 1), rivals(&world, 2)), (0, 0));
    }
}

#[test]
fn binding_losing_one_address_keeps_other_addresses() {
    let mut world = rig(false);
    let first = world.vms[0];
    let other = std::net::Ipv4Addr::new(10, 9, 9, 9);
    let host = world.host(HostId(1));
    let ips = [first.ip.into(), other.into()].into_iter().collect();
    host.plane.bind(host.clock, first.port, first.key, ips).unwrap();
    world.run_for(millis(300));
    let key = bind_at_second(&mut world, false, true);
    assert!(world.until(millis(300), |world| agree(world, key, HostId(2))));
    for host in world.hosts.values() {
        let own = host.plane.vport_of_ip(vni(10), other.into()).unwrap();
        assert!(own.claim.key == first.key && own.claim.is_bound_with(other.into()));
    }
    let host = world.host(HostId(1));
    assert_eq!(host.unbound, [(first.port, first.key.mac, Some(first.ip.into()))]);
    // A link that was down does not bring the binding back; a new switch gets the command again.
    host.plane.port_link(host.clock, first.port, false);
    host.plane.port_link(host.clock, first.port, true);
    host.plane.fdb_lost(host.clock);
    host.fdb.clear();
    host.decaps.clear();
    world.run_for(millis(500));
    assert!(agree(&world, key, HostId(2)));
    assert_eq!(world.hosts[&HostId(1)].unbound.len(), 2);
}
