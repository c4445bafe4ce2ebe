//! Random small data centres under random traffic, with every checker on.
//!
//! A scenario is a function of its seed: topology, rates, delays, buffers, policies, TCPs, virtual
//! networks, workloads, the order of ties. Each is run to its end and drained.
//!
//! `PROPTEST_CASES` scales the number of scenarios (256: the usual number). A failure prints its
//! seed and the command that repeats it.

#[path = "swarm/digest.rs"]
mod digest;
#[path = "swarm/early.rs"]
mod early;
#[path = "swarm/grid.rs"]
mod grid;
#[path = "swarm/meter.rs"]
mod meter;
#[path = "swarm/mix.rs"]
mod mix;
#[path = "swarm/run.rs"]
mod run;
#[path = "swarm/scenario.rs"]
mod scenario;
#[path = "swarm/table.rs"]
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use run::{Outcome, run};
use scenario::Scenario;
use sluice_sim::world::End;

/// Mean number of events between two censuses: it differs from seed to seed.
const EVERY: u64 = 97;

/// Number of scenarios to run; `usual` is the number of an ordinary test run.
fn cases(usual: u64) -> u64 {
    let set = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u64>().ok());
    (usual * set.unwrap_or(256) / 256).max(1)
}

/// Runs `one` for seeds from 0 on two threads, until one fails.
fn each_seed(cases: u64, test: &str, one: impl Fn(u64) -> Result<(), String> + Sync) {
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= cases {
                return;
            }
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one(seed)));
            let problem = match ended {
                Ok(Ok(())) => continue,
                Ok(Err(problem)) => problem,
                Err(_) => "a panic".to_owned(),
            };
            next.store(cases, Ordering::Relaxed);
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            if failed.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                *failed = Some((seed, problem));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    if let Some((seed, problem)) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        println!("caught after {} cases", seed + 1);
        panic!("seed {seed}; to repeat: {}\n{problem}", repeat(seed, test));
    }
}

/// Returns the command that runs one seed of a test again.
fn repeat(seed: u64, test: &str) -> String {
    format!("SWARM_SEED={seed} cargo test -p sluice-sim --test swarm {test} -- --nocapture")
}

/// Runs the seed that the environment names, or many.
fn seeds(usual: u64, test: &str, one: impl Fn(u64) -> Result<(), String> + Sync) -> u64 {
    if let Some(seed) = std::env::var("SWARM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        println!("{:#?}", Scenario::new(seed));
        one(seed).unwrap_or_else(|problem| panic!("seed {seed}\n{problem}"));
        return 1;
    }
    let cases = cases(usual);
    each_seed(cases, test, one);
    cases
}

#[test]
fn every_checker_is_content() {
    let [hard, lost, paused, messages, starved] = [const { AtomicU64::new(0) }; 5];
    let cases = seeds(1_000, "every_checker_is_content", |seed| {
        let scenario = Scenario::new(seed);
        let every = EVERY / 2 + seed % EVERY;
        let outcome = run(&scenario, every, &repeat(seed, "every_checker_is_content"), |_| {})?;
        hard.fetch_add(u64::from(outcome.is_hard()), Ordering::Relaxed);
        lost.fetch_add(u64::from(outcome.losses() > 0), Ordering::Relaxed);
        paused.fetch_add(u64::from(outcome.pauses() > 0), Ordering::Relaxed);
        messages.fetch_add(outcome.messages, Ordering::Relaxed);
        starved.fetch_add(u64::from(outcome.end != End::Done), Ordering::Relaxed);
        Ok(())
    });
    let [hard, lost, paused, messages, starved] =
        [hard, lost, paused, messages, starved].map(AtomicU64::into_inner);
    println!(
        "{cases} scenarios: {lost} with losses, {paused} with pauses, {messages} messages, \
         {starved} with a connection that lost every retransmission"
    );
    assert!(starved * 200 <= cases, "{starved} of {cases} never ended");
    assert!(cases < 100 || hard * 100 >= cases * 95, "{hard} of {cases} met a pause or a loss");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    seeds(40, "the_same_seed_gives_the_same_run", |seed| {
        let scenario = Scenario::new(seed);
        let twice: Vec<Outcome> = (0..2)
            .map(|_| run(&scenario, 100_000, &repeat(seed, "the_same_seed"), |_| {}))
            .collect::<Result<_, _>>()?;
        if twice[0] == twice[1] { Ok(()) } else { Err(format!("{twice:#?}")) }
    });
}
