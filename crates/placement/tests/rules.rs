//! The rules hold with any cores and any load, and nothing moves for ever.

mod support;

use proptest::prelude::*;
use sluice_placement::Mode;
use support::{World, broken_rule, worlds};

/// Number of periods until all entries are in place: entries over moves in a period, and some for
/// the averages and for rest.
const SETTLES_IN: u32 = 120;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn constant_load_settles_with_no_rule_broken(
        world in worlds(),
        mode in prop_oneof![Just(Mode::OnTheFly), Just(Mode::Adaptive)],
    ) {
        let mut run = World::start(&world, mode);
        for _ in 0..SETTLES_IN {
            let moves = run.period();
            prop_assert!(moves <= run.config.moves_max as usize);
        }
        for late in 0..30 {
            prop_assert_eq!(run.period(), 0, "it moves for ever: {} periods later", late);
        }
        if let Some(broken) = broken_rule(&run) {
            prop_assert!(false, "{}", broken);
        }
    }

    /// Loads that go up and down by less than the hysteresis move nothing that has settled.
    #[test]
    fn small_changes_move_nothing(world in worlds(), noise in any::<u64>()) {
        let mut run = World::start(&world, Mode::Adaptive);
        (0..SETTLES_IN).for_each(|_| _ = run.period());
        let mut moves = 0;
        for period in 0..40 {
            run.shake(noise, period);
            moves += run.period();
        }
        // A load that was just at a threshold may go over it once, for each entry.
        prop_assert!(moves <= run.world.entries.len(), "{moves} moves");
    }

    /// Under any load, an entry that moved for balance rests, so that moves are bounded.
    #[test]
    fn moves_are_bounded_whatever_the_load_does(world in worlds(), noise in any::<u64>()) {
        let mut run = World::start(&world, Mode::Adaptive);
        for period in 0..100 {
            run.storm(noise, period);
            prop_assert!(run.period() <= run.config.moves_max as usize);
        }
    }

    #[test]
    fn excluded_cores_are_left_in_every_mode(world in worlds(), which in 0..5_usize) {
        let mut run = World::start(&world, Mode::ALL[which]);
        (0..10).for_each(|_| _ = run.period());
        let core = run.world.entries.len() % run.world.cores.len();
        let excluded = run.exclude(core);
        // Enough periods for all of 40 entries.
        (0..14).for_each(|_| _ = run.period());
        let there = run.entries_on(core);
        prop_assert!(!excluded || there == 0, "{there} entries are on an excluded core");
    }
}

#[test]
fn the_same_input_gives_the_same_decisions() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    for _ in 0..20 {
        let world = worlds().new_tree(&mut runner).unwrap().current();
        let run = || {
            let mut run = World::start(&world, Mode::Adaptive);
            (0..30).for_each(|_| _ = run.period());
            run.log
        };
        assert_eq!(run(), run());
    }
}
