//! Tunnels and flows on demand: a host has those of its own conversations, at most (N-1)·M decap
//! flows for N hosts and M networks (Netvisor, section 4.4).

use sluice_base::HostId;

use crate::host::millis;
use crate::world::{World, vni};

const HOSTS: u16 = 8;
const NETWORKS: u16 = 16;

/// Eight hosts with an endpoint in each of sixteen networks. That of host h in network n has the
/// number `(h - 1) * 16 + n`.
fn rig() -> World {
    let vnis = (0..NETWORKS).map(|n| vni(100 + u32::from(n))).collect();
    let mut world = World::with_networks(47, HOSTS, vnis);
    for host in 1..=HOSTS {
        for n in 0..NETWORKS {
            world.add_vm(HostId(host), vni(100 + u32::from(n)), true);
        }
    }
    world.run_for(millis(1_500));
    world
}

const fn endpoint(host: u16, network: u16) -> usize {
    ((host - 1) * NETWORKS + network) as usize
}

/// Returns the numbers of tunnels and decap flows of a host.
fn counts(world: &World, host: u16) -> (usize, usize) {
    let plane = &world.hosts[&HostId(host)].plane;
    (plane.tunnels().count(), plane.decap_flows().count())
}

#[test]
fn hosts_without_part_keep_no_flow() {
    let mut world = rig();
    for host in 1..=HOSTS {
        assert_eq!(counts(&world, host), (0, 0), "nobody has spoken yet");
    }
    let (a, b) = (endpoint(1, 3), endpoint(2, 3));
    let tokens = [world.talk(a, b), world.talk(b, a)];
    world.run_for(millis(500));
    assert!(tokens.iter().all(|token| world.delivered.contains(token)));
    for host in 1..=HOSTS {
        let wanted = if host <= 2 { (1, 1) } else { (0, 0) };
        assert_eq!(counts(&world, host), wanted, "host {host}");
    }
}

#[test]
fn decap_flows_are_hosts_times_networks_at_most() {
    let mut world = rig();
    let mut tokens = Vec::new();
    for network in 0..NETWORKS {
        for (from, to) in world.pairs() {
            tokens.push(world.talk(endpoint(from.0, network), endpoint(to.0, network)));
        }
    }
    // Within the life of a decap flow.
    world.run_for(millis(1_000));
    assert!(tokens.iter().all(|token| world.delivered.contains(token)));
    let others = usize::from(HOSTS - 1);
    for host in 1..=HOSTS {
        let wanted = (others, others * usize::from(NETWORKS));
        assert_eq!(counts(&world, host), wanted, "host {host}");
    }
}
