//! Distance of the adaptive mode from the optimum, found by trying all placements on small hosts.

mod support;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use sluice_placement::Mode;
use support::{Host, World};

/// Hosts without machines and priorities, on which only the load of the fullest core counts.
fn small() -> impl Strategy<Value = Host> {
    let few = |host: &mut Host| {
        host.cores.truncate(4);
        host.cores.iter_mut().for_each(|(core, _)| {
            (core.runs_vcpu, core.physical, core.node) = (false, None, None);
        });
        host.entries.truncate(7);
        host.entries.retain(|(load, _)| load.sum().0 < 500_000);
        host.entries.iter_mut().for_each(|(_, is_high)| *is_high = false);
    };
    support::worlds().prop_map(move |mut host| {
        few(&mut host);
        host
    })
}

/// The load of the fullest core in the best of all placements.
fn best(host: &Host) -> u64 {
    let cores = host.cores.len();
    let foreign = |core: usize| {
        let load = host.cores[core].1;
        u64::from(load.user.0) + u64::from(load.softirq.0)
    };
    let count = cores.pow(u32::try_from(host.entries.len()).unwrap());
    let fullest = |mut choice: usize| {
        let mut sums: Vec<u64> = (0..cores).map(foreign).collect();
        for (load, _) in &host.entries {
            sums[choice % cores] += u64::from(load.sum().0);
            choice /= cores;
        }
        sums.into_iter().max().unwrap()
    };
    (0..count).map(fullest).min().unwrap()
}

fn reached(host: &Host) -> u64 {
    let mut run = World::start(host, Mode::Adaptive);
    (0..100).for_each(|_| _ = run.period());
    support::fullest(&run)
}

#[test]
fn fullest_core_load_near_optimal_placement() {
    let mut runner = TestRunner::deterministic();
    let mut sum = (0.0, 0.0_f64);
    let mut above = 0;
    const CASES: u32 = 400;
    for _ in 0..CASES {
        let host = small().new_tree(&mut runner).unwrap().current();
        let (best, reached) = (best(&host), reached(&host));
        // Moves of one entry at a time end when none helps any more; that is at most twice the
        // optimum (Finn and Horowitz 1979), and a gain below the hysteresis causes no move.
        assert!(reached <= 2 * best + 110_000, "{reached} against {best}: {host:?}");
        above += u32::from(reached > best + 110_000);
        let ratio = reached.max(1) as f64 / best.max(1) as f64;
        sum = (sum.0 + ratio, sum.1.max(ratio));
    }
    let mean = sum.0 / f64::from(CASES);
    println!("mean {mean:.3}, most {:.3}, above best and hysteresis: {above}", sum.1);
    assert!(mean < 1.15 && above * 20 < CASES, "mean {mean}, {above} of {CASES} beyond");
}
