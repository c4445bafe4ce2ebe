//! Hosts that commit a common configuration while everything goes wrong at the edges: messages are
//! lost, late, doubled and out of order; directions are cut; hosts crash at any durable step; disks
//! are slow, full, or lost for good; clocks jump; members join, leave and are evicted; versions
//! differ. Then all of that ends, and everything must be as the one history says.
//!
//! `PROPTEST_CASES` scales the number of seeds (256: the usual number). A failure prints its seed;
//! `repeat` is the place to run it again.

#[path = "commit/check.rs"]
mod check;
#[path = "commit/doc.rs"]
mod doc;
#[path = "commit/host.rs"]
mod host;
#[path = "commit/world.rs"]
mod world;

use sluice_base::Nanos;
use sluice_control::commit::{Done, Refused};
use world::World;

const SECOND: Nanos = Nanos::from_millis(1_000);

#[test]
fn one_host_commits_alone() {
    let mut world = World::new(1, 1);
    world.run_for(SECOND);
    let asked = world.commit(1, "add blue 100");
    world.run_for(SECOND);
    assert!(matches!(world.result(asked), Some(Ok(Done::Committed { .. }))));
    world.crash(1);
    world.start(1);
    assert_eq!(world.hosts[&1].machine.as_ref().unwrap().doc().unwrap().names["blue"], "100");
}

#[test]
fn three_hosts_commit_from_any() {
    let mut world = World::new(1, 3);
    world.look(true);
    world.run_for(Nanos::from_millis(3_000));
    for host in 1..=3 {
        let asked = world.commit(host, &format!("add net{host} {host}"));
        world.run_for(SECOND);
        assert!(matches!(world.result(asked), Some(Ok(Done::Committed { .. }))), "{host}");
    }
    let asked = world.commit(2, "add net1 7");
    world.run_for(SECOND);
    assert!(matches!(world.result(asked), Some(Err(Refused::Unfit(_)))));
    let doc = world.checker.document();
    for host in 1..=3 {
        let machine = world.hosts[&host].machine.as_ref().unwrap();
        assert_eq!(machine.doc().as_ref(), Some(&doc));
        let status = machine.status();
        assert_eq!(status.voters.len(), 3);
        assert!(status.reserved.is_empty());
    }
}
