//! Messages and time of a commit, by the number of members.

use sluice_base::Nanos;
use sluice_control::commit::Done;

use super::world::World;

const COMMITS: u64 = 10;
/// Time given to each commit.
const SPAN: Nanos = Nanos::from_millis(500);
const STEP: Nanos = Nanos::from_micros(100);

/// Costs of a fabric without faults, with a network of 50 to 500 us and disks of 0.1 to 2 ms.
pub(crate) struct Cost {
    /// Messages of a commit, without those that an idle fabric sends.
    pub(crate) messages: u64,
    /// Messages of an idle fabric in a second.
    pub(crate) idle: u64,
    /// Longest time until the originator's answer.
    pub(crate) slowest: Nanos,
}

/// Lets hosts in turn commit a change each.
pub(crate) fn cost(members: u16) -> Cost {
    let mut world = World::new(u64::from(members), members);
    world.look(true);
    world.run_for(Nanos::from_millis(5_000));
    let before = world.sent;
    for _ in 0..COMMITS {
        world.run_for(SPAN);
    }
    let idle = world.sent - before;
    let before = world.sent;
    let mut slowest = Nanos::ZERO;
    for number in 0..COMMITS {
        let host = 1 + u16::try_from(number % u64::from(members)).expect("small");
        let (begun, end) = (world.now, world.now.after(SPAN));
        let asked = world.commit(host, &format!("add net{number} {number}"));
        while world.result(asked).is_none() && world.now < end {
            world.run_for(STEP);
        }
        let result = world.result(asked);
        assert!(matches!(result, Some(Ok(Done::Committed { .. }))), "{members}: {result:?}");
        slowest = slowest.max(world.now.since(begun));
        world.run_for(end.since(world.now));
    }
    let span = SPAN.0 * COMMITS / 1_000_000_000;
    Cost { messages: (world.sent - before - idle) / COMMITS, idle: idle / span, slowest }
}
