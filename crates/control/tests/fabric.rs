//! Whole control planes of three to six hosts, each with a switch as simple as can be, while
//! everything goes wrong at the edges: datagrams are lost, late, early and twice; nothing goes one
//! way between two hosts; connections are cut at any byte or on one side; hosts stop and begin
//! anew; peers are slow; clocks jump; neighbouring versions meet; endpoints move, come and go, and
//! so do addresses; hosts join and are evicted, and change their networks. Then all of that ends,
//! and every endpoint must be found at its place.
//!
//! `PROPTEST_CASES` scales the number of seeds (256: the usual number). A failure prints its seed
//! and the command that runs it again.

#[path = "fabric/addresses.rs"]
mod addresses;
#[path = "fabric/bindings.rs"]
mod bindings;
#[path = "fabric/bounds.rs"]
mod bounds;
#[path = "fabric/frames.rs"]
mod frames;
#[path = "fabric/holds.rs"]
mod holds;
#[path = "fabric/host.rs"]
mod host;
#[path = "fabric/rules.rs"]
mod rules;
#[path = "fabric/shared.rs"]
mod shared;
#[path = "mesh/skew.rs"]
mod skew;
#[path = "fabric/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::test_runner::Config;

use world::World;

fn run(seed: u64, seen: &mut BTreeMap<&'static str, u64>) {
    let mut world = World::new(seed);
    for _ in 0..120 {
        world.fault();
        world.chat();
        world.step();
        world.check();
    }
    world.heal();
    world.settle();
    for event in world.hosts.values().flat_map(|host| &host.events) {
        *seen.entry(event.name()).or_default() += 1;
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that fails says with which seed to repeat it"
)]
fn everybody_is_found_after_any_faults() {
    let one = std::env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    let count = 300 * u64::from(Config::default().cases) / 256;
    let seeds = one.map_or(0..count.max(1), |seed: u64| seed..seed + 1);
    let (mut seen, total) = (BTreeMap::new(), seeds.end - seeds.start);
    for seed in seeds {
        catch_unwind(AssertUnwindSafe(|| run(seed, &mut seen))).unwrap_or_else(|panic| {
            println!("caught after {} cases", seed + 1);
            println!("SEED={seed} cargo test -p sluice-control --test fabric everybody");
            resume_unwind(panic)
        });
    }
    println!("{total} seeds: {seen:?}");
    // A test in which nothing happens proves nothing.
    let needed = [
        "hold-begun",
        "hold-ended",
        "vport-moved",
        "session-hung",
        "host-down",
        "claims-stale",
        "claims-evicted",
        "flow-ended",
        "address-moved",
    ];
    for name in needed {
        assert!(total < 100 || seen.get(name).is_some_and(|n| *n > total / 5), "{name} is rare");
    }
}
