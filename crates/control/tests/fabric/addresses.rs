//! Addresses that go from one endpoint to another, and questions to their owners.

use std::net::Ipv4Addr;

use sluice_base::{HostId, Mac};
use sluice_control::vport::Key;

use crate::frames;
use crate::host::millis;
use crate::world::{World, vni};

/// Endpoints 0 to 2 at hosts 1 to 3, which all know them.
fn three() -> World {
    let mut world = World::of(21, 3);
    for host in 1..=3 {
        world.add_vm(HostId(host), vni(10), false);
    }
    world.run_for(millis(1_500));
    for at in 0..3 {
        announce(&mut world, at);
    }
    world.run_for(millis(300));
    world
}

fn announce(world: &mut World, at: usize) {
    let vm = world.vms[at];
    world.emit(at, frames::announcement((vm.key.mac, vm.ip)));
}

/// Returns true if all hosts agree that the endpoint has its address, and that no other one claims
/// it.
fn all_agree(world: &World, at: usize) -> bool {
    let vm = world.vms[at];
    world.hosts.values().all(|host| {
        let found = host.plane.vport_of_ip(vni(10), vm.ip.into());
        let others = world.vms.iter().filter(|other| other.key != vm.key);
        let mut claims = others.flat_map(|other| host.plane.claims(other.key));
        found.is_some_and(|vport| vport.claim.key == vm.key)
            && claims.all(|vport| !vport.claim.ips.contains(vm.ip.into()))
    })
}

fn is_nowhere(world: &World, ip: Ipv4Addr) -> bool {
    world.hosts.values().all(|host| host.plane.vport_of_ip(vni(10), ip.into()).is_none())
}

#[test]
fn newest_announcement_wins_everywhere() {
    let mut world = three();
    // Up and down the order of MACs, and to the same host and others.
    let near = world.add_vm(HostId(1), vni(10), false);
    announce(&mut world, near);
    world.run_for(millis(100));
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, near), (near, 0), (0, 2)] {
        world.take_address(from, to);
        announce(&mut world, to);
        let agreed = world.until(millis(300), |world| all_agree(world, to));
        assert!(agreed, "from {from} to {to}");
    }
}

#[test]
fn silent_owner_claim_ends_when_address_used_elsewhere() {
    for host in 0..3 {
        let mut world = three();
        // Its MAC changes; or another endpoint has its address. Neither announces it.
        let before = world.vms[0].key;
        if host == 0 {
            world.vms[0].key = Key { mac: Mac::from_u64(0x02ff_0000_0001), ..before };
        } else {
            world.take_address(0, host);
        }
        world.ask(host, (host + 1) % 3);
        assert!(world.until(millis(1_400), |world| all_agree(world, host)), "endpoint {host}");
        let left = world.hosts[&HostId(1)].mac_events(before.mac);
        assert!(left.contains(&"address-silent"), "it was asked: {left:?}");
        // A sender to the old MAC hears of it.
        world.run_for(millis(10));
        let new = world.vms[host].key.mac;
        let others = world.vms.iter().map(|vm| vm.key.mac).filter(|mac| *mac != new);
        for other in others {
            assert!(world.heard.contains_key(&(other, new)), "{new} is announced to {other}");
        }
        // Nor does it come back by itself.
        world.run_for(millis(1_000));
        assert!(all_agree(&world, host));
    }
}

#[test]
fn both_keep_an_address_that_both_answer_for() {
    let mut world = three();
    let (a, mut b) = (world.vms[0], world.vms[1]);
    world.vms[1].ip = a.ip;
    b.ip = a.ip;
    world.emit(1, frames::question((b.key.mac, b.ip), world.vms[2].ip));
    world.run_for(millis(1_500));
    for host in world.hosts.values() {
        let found = host.plane.vport_of_ip(vni(10), a.ip.into()).unwrap();
        assert_eq!(found.claim.key, a.key, "the first one is what is answered");
        let own = host.plane.claims(b.key).next().unwrap();
        assert!(own.claim.ips.contains(a.ip.into()));
        assert!(host.mac_events(b.key.mac).contains(&"conflict"));
    }
}

#[test]
fn address_probe_answered_only_by_owner() {
    let mut world = three();
    let ip = world.vms[0].ip;
    // From another host and from the owner's own.
    let near = world.add_vm(HostId(1), vni(10), false);
    for prober in [1, near] {
        let mac = world.vms[prober].key.mac;
        world.emit(prober, frames::probe(mac, ip));
        world.run_for(millis(50));
        assert_eq!(world.replies_to(mac), 1, "the owner says that it has it");
        world.run_for(millis(1_500));
        assert!(all_agree(&world, 0), "and keeps it");
    }
    // The owner gave the address up and said nothing.
    world.take_address(0, 1);
    let mac = world.vms[2].key.mac;
    world.vms[1].ip = Ipv4Addr::new(10, 9, 9, 9);
    world.emit(2, frames::probe(mac, ip));
    assert!(world.until(millis(1_300), |world| is_nowhere(world, ip)));
    assert_eq!(world.replies_to(mac), 0, "nobody spoke for it");
    // The first use after the probe counts as an announcement.
    world.vms[2].ip = ip;
    world.ask(2, 1);
    assert!(world.until(millis(100), |world| all_agree(world, 2)));
}

#[test]
fn probe_winner_takes_address_at_first_use() {
    let mut world = three();
    world.take_address(0, 2);
    let vm = world.vms[2];
    world.emit(2, frames::probe(vm.key.mac, vm.ip));
    world.run_for(millis(200));
    world.ask(2, 1);
    assert!(
        world.until(millis(200), |world| all_agree(world, 2)),
        "sooner than the owner is given up"
    );
}

#[test]
fn long_silent_owner_asked_before_address_answered() {
    let mut world = three();
    let (ip, mac) = (world.vms[0].ip, world.vms[1].key.mac);
    world.ask(1, 0);
    world.run_for(millis(50));
    assert_eq!(world.replies_to(mac), 1, "it has said so lately");
    // The endpoint answers after a time, although it sends nothing on its own.
    world.run_for(millis(2_500));
    world.ask(1, 0);
    world.run_for(millis(50));
    assert_eq!(world.replies_to(mac), 2);
    world.run_for(millis(2_500));
    world.vms[0].ip = Ipv4Addr::new(10, 9, 9, 9);
    world.emit(1, frames::question((mac, world.vms[1].ip), ip));
    assert!(world.until(millis(1_200), |world| is_nowhere(world, ip)));
    assert_eq!(world.replies_to(mac), 2, "nobody spoke for it");
}

#[test]
fn binding_keeps_its_address() {
    let mut world = World::of(22, 3);
    world.add_vm(HostId(1), vni(10), true);
    world.add_vm(HostId(2), vni(10), false);
    world.run_for(millis(1_500));
    let (bound, thief) = (world.vms[0], world.vms[1]);
    world.emit(1, frames::announcement((thief.key.mac, bound.ip)));
    world.vms[0].ip = Ipv4Addr::new(10, 9, 9, 9);
    world.run_for(millis(3_000));
    world.vms[0].ip = bound.ip;
    assert!(all_agree(&world, 0), "not even if it is silent");
    assert!(world.hosts[&HostId(2)].mac_events(thief.key.mac).contains(&"refused"));
}

#[test]
fn sender_to_removed_mac_gets_new_mac_announced() {
    let mut world = three();
    // The address is at another MAC, and no host claims the old one any more.
    let (old, sender) = (world.vms[0].key, world.vms[1]);
    world.vms[0].key = Key { mac: Mac::from_u64(0x02ff_0000_0001), ..old };
    let vm = world.vms[0];
    let host = world.host(HostId(1));
    host.plane.remove_port(host.clock, vm.port);
    host.add_port(vm.port, vni(10));
    announce(&mut world, 0);
    world.run_for(millis(300));
    let bytes = frames::packet((sender.key.mac, sender.ip), (old.mac, vm.ip), 1);
    world.emit(1, bytes);
    world.run_for(millis(100));
    assert_eq!(world.replies_to(sender.key.mac), 1);
}

#[test]
fn link_down_withdraws_learned_silences_bound_addresses() {
    let mut world = World::of(23, 2);
    for (host, bound) in [(1, false), (1, true), (2, false)] {
        world.add_vm(HostId(host), vni(10), bound);
    }
    world.run_for(millis(1_500));
    (0..3).for_each(|at| announce(&mut world, at));
    world.run_for(millis(300));
    let (learned, bound, other) = (world.vms[0], world.vms[1], world.vms[2]);
    for port in [learned.port, bound.port] {
        let host = world.host(HostId(1));
        host.plane.port_link(host.clock, port, false);
    }
    assert!(world.until(millis(100), |world| is_nowhere(world, learned.ip)));
    // No host answers for the bound endpoint, not even the other one, and no other endpoint may
    // have the address.
    world.vms[1].ip = Ipv4Addr::new(10, 9, 9, 9);
    world.emit(2, frames::question((other.key.mac, other.ip), bound.ip));
    world.run_for(millis(50));
    assert_eq!(world.replies_to(other.key.mac), 0);
    world.emit(2, frames::announcement((other.key.mac, bound.ip)));
    world.run_for(millis(50));
    world.vms[1].ip = bound.ip;
    assert!(all_agree(&world, 1));
    let host = world.host(HostId(1));
    host.plane.port_link(host.clock, bound.port, true);
    world.run_for(millis(300));
    world.emit(2, frames::question((other.key.mac, other.ip), bound.ip));
    world.run_for(millis(50));
    assert_eq!(world.replies_to(other.key.mac), 1, "it is answered for again");
}
