//! Hosts that tell each other of their vports while everything goes wrong at the edges: connections
//! are cut at any byte, stall, or stay open on one side; hosts restart, in a new incarnation or by
//! mistake in an old one; clocks jump; neighbouring versions meet; a host claims to be another;
//! replicas have no room, or lose something. Then all of that ends, and every replica must equal
//! its owner's claims. Messages of any size between the hosts arrive whole and in order, or not at
//! all.
//!
//! `PROPTEST_CASES` scales the number of seeds (256: the usual number). A failure prints its seed;
//! `repeat` is the place to run it again.

#[path = "mesh/hosts.rs"]
mod hosts;
#[path = "mesh/messages.rs"]
mod messages;
#[path = "mesh/skew.rs"]
mod skew;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use hosts::{Faults, Mesh, add, key};
use proptest::test_runner::Config;
use sluice_base::HostId;
use sluice_control::session::Counts;

/// Runs a seed to its end. Every second one has faults inside of replicas, too. Returns the
/// counters of sessions, and the number of messages that arrived before the faults ended.
fn run(seed: u64) -> (Counts, u64) {
    let mut mesh = Mesh::new(seed, Faults { inside: seed % 2 == 1 });
    for _ in 0..400 {
        mesh.fault();
        mesh.change();
        mesh.step();
        mesh.check();
    }
    let messages = mesh.messages.all;
    mesh.heal();
    mesh.settle();
    (mesh.counts(), messages)
}

#[test]
fn every_replica_equals_its_owner_after_any_faults() {
    let seeds = 120 * u64::from(Config::default().cases) / 256;
    let (mut sum, mut messages) = (Counts::default(), 0);
    for seed in 0..seeds.max(1) {
        let (counts, arrived) =
            catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
                println!("caught after {} cases", seed + 1);
                println!("seed {seed}; put it into `repeat` of crates/control/tests/mesh.rs");
                resume_unwind(panic)
            });
        add(&mut sum, counts);
        messages += arrived;
    }
    println!("{seeds} seeds: {sum:?}, {messages} messages");
    // A test in which nothing happens proves nothing.
    let rarest = [sum.digests_differed, sum.resyncs, sum.refused, sum.hung, sum.errors];
    assert!(seeds < 100 || rarest.into_iter().all(|count| count > seeds / 10), "{rarest:?}");
    assert!(seeds < 100 || messages > 50 * seeds, "{messages} messages");
}

/// Place for a failing seed.
#[test]
fn repeat() {
    run(0);
}

#[test]
fn a_thousand_missed_changes_come_as_a_delta() {
    let mut mesh = Mesh::of(1, 2);
    let (a, b) = (HostId(1), HostId(2));
    mesh.claim(b, key(0), 0);
    for n in 0..5_000 {
        mesh.claim(a, key(n), 0);
    }
    mesh.settle();
    let before = mesh.counts();
    assert_eq!(before.snapshots_sent, 2, "one in each direction");
    mesh.cut(a, b);
    for n in 0..1_000 {
        // Some vports change often, some are gone, some are new.
        match n % 4 {
            0 => mesh.withdraw(a, key(n)),
            1 => mesh.claim(a, key(10_000 + n), 0),
            _ => (1..20).for_each(|moves| mesh.claim(a, key(n), moves)),
        }
    }
    mesh.settle();
    let after = mesh.counts();
    assert_eq!(after.snapshots_sent, before.snapshots_sent);
    assert_eq!(after.records_sent - before.records_sent, 1_000);
    assert_eq!(after.digests_differed, 0);
}

#[test]
fn a_peer_that_stalls_holds_up_nobody_else() {
    let mut mesh = Mesh::of(2, 3);
    mesh.settle();
    mesh.stall(HostId(1), HostId(3), true);
    for n in 0..20_000 {
        mesh.claim(HostId(1), key(n), 0);
    }
    for _ in 0..100 {
        mesh.step();
        mesh.check();
    }
    assert!(mesh.agree(HostId(1), HostId(2)), "it has everything");
    assert!(!mesh.agree(HostId(1), HostId(3)));
    mesh.stall(HostId(1), HostId(3), false);
    mesh.settle();
}

#[test]
fn hung_session_detected_within_300_ms() {
    let mut mesh = Mesh::of(3, 2);
    mesh.settle();
    let (hung, begin) = (mesh.counts().hung, mesh.now());
    mesh.stall(HostId(1), HostId(2), true);
    while mesh.counts().hung == hung {
        mesh.step();
    }
    let took = mesh.now().since(begin);
    assert!(took.0 <= 300_000_000, "{took}");
}
