//! Random switches under random steps: every promise holds after each step, and in the end all
//! frames come out.
//!
//! `PROPTEST_CASES` scales the number of cases (256: the usual number). A failure prints the
//! shortest case that was found; `repeat` is the place to run it again.

mod harness;

use harness::ops::{Op, run};
use proptest::prelude::*;
use proptest::test_runner::Config;
use sluice_base::Prng;

fn cases(usual: u32) -> Config {
    let set = Config::default();
    let cases = u32::try_from(u64::from(set.cases) * u64::from(usual) / 256).unwrap().max(1);
    Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..set }
}

fn op() -> impl Strategy<Value = Op> {
    (0u8..32, 0u32..100_000)
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn every_promise_holds_after_every_step(
        seed in 0u64..1_000_000,
        ops in prop::collection::vec(op(), 1..150),
    ) {
        run(seed, &ops);
    }
}

/// Long runs, for states that need many steps to build up.
#[test]
fn every_promise_holds_in_long_runs() {
    let mut came = [0; 3];
    let runs = 30 * u64::from(Config::default().cases) / 256;
    for seed in 0..runs.max(1) {
        let mut rng = Prng::new(seed);
        let ops: Vec<Op> = (0..3_000)
            .map(|_| {
                (u8::try_from(rng.below(32)).unwrap(), u32::try_from(rng.below(1 << 32)).unwrap())
            })
            .collect();
        match std::panic::catch_unwind(|| run(seed, &ops).come()) {
            Ok(more) => came.iter_mut().zip(more).for_each(|(sum, more)| *sum += more),
            Err(panic) => {
                println!("caught after {} cases", seed + 1);
                println!(
                    "seed {seed}; to repeat: cargo test -p sluice-switch --test random long_runs"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    // The steps reach the states that they are meant for.
    assert!(came[0] > 3 * runs, "{came:?} ports, networks and tunnels came");
    assert!(came[1] > runs && came[2] > runs, "{came:?} ports, networks and tunnels came");
}

/// A failing case goes in here, as it was printed.
#[test]
fn repeat() {
    run(0, &[]);
}
