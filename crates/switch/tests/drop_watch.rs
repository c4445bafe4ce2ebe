//! Copies of dropped frames: as many as the ledger counts, by reason, with and without a slot.

mod harness;

use std::collections::BTreeMap;

use harness::config::{access, config, limit};
use harness::frames::Tenant;
use harness::ops::address;
use harness::world::World;
use sluice_base::{DropReason, InputId, Mac, PortId, Priority};
use sluice_switch::{ClassConfig, DroppedFrame, Service};

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);

/// Two senders and a receiver, whose output has room for a few frames and may drop.
fn world() -> World {
    let mut ports = vec![access(0); 3];
    ports[2].output = limit(4, 10_000);
    let mut config = config(ports);
    config.classes = [ClassConfig { service: Service::Strict, lossless: false }; 8];
    let mut world = World::new(&config, 1);
    world.at_port(address(0, 2), 2);
    world
}

/// Sends more frames than find room.
fn send(world: &mut World, rounds: u32) {
    let wide = Tenant::new(address(0, 2), SRC, 0, 1_000);
    for _ in 0..rounds {
        for port in 0..2 {
            world.fill(port, |world| world.tenant(port, &wide));
        }
        world.transmit(PortId(2), || false);
    }
    world.reclaim_all();
}

fn ledger(world: &World) -> BTreeMap<&'static str, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for input in 0..3 {
        for priority in Priority::all() {
            for reason in DropReason::ALL {
                let count = world.switch.dropped(InputId(input), priority, *reason);
                let sum: &mut (u64, u64) = sums.entry(reason.name()).or_default();
                *sum = (sum.0 + count.frames, sum.1 + count.bytes);
            }
        }
    }
    sums.retain(|_, sum| sum.0 > 0);
    sums
}

#[test]
fn watched_drops_are_those_of_ledger() {
    let mut world = world();
    world.switch.watch_drops(100_000);
    send(&mut world, 20);
    let mut seen: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    let mut heads = Vec::new();
    let missed = world.switch.take_dropped(|frame: &DroppedFrame| {
        let sum = seen.entry(frame.reason.name()).or_default();
        *sum = (sum.0 + 1, sum.1 + u64::from(frame.size));
        heads.push((frame.port, frame.head));
    });
    assert_eq!(missed, 0);
    assert!(!seen.is_empty() && seen == ledger(&world), "{seen:?} {:?}", ledger(&world));
    for (port, head) in heads {
        assert!(port.is_some_and(|port| port.0 < 2));
        assert_eq!(
            (&head.as_slice()[..6], &head.as_slice()[6..12]),
            (&address(0, 2).0[..], &SRC.0[..])
        );
    }
    assert_eq!(world.switch.take_dropped(|_| panic!("each once")), 0);
    world.check();
}

#[test]
fn drops_beyond_bound_counted_unwatched_ones_not() {
    let mut world = world();
    send(&mut world, 3);
    assert_eq!(world.switch.take_dropped(|_| panic!("nobody watches")), 0);
    let before: u64 = ledger(&world).values().map(|sum| sum.0).sum();
    world.switch.watch_drops(5);
    send(&mut world, 20);
    let (mut kept, after) = (0, ledger(&world).values().map(|sum| sum.0).sum::<u64>());
    let missed = world.switch.take_dropped(|_| kept += 1);
    assert_eq!((kept, missed), (5, after - before - 5));
    world.switch.watch_drops(0);
    send(&mut world, 3);
    assert_eq!(world.switch.take_dropped(|_| panic!("nobody watches")), 0);
}
