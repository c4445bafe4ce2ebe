//! Results of a few scenarios, as text: the same bytes on every machine and with every
//! optimisation. After a change that is meant to change them: `UPDATE_GOLDENS=1 cargo test -p
//! sluice-sim --test swarm digest`, and read the difference.

use std::fmt::Write as _;

use crate::repeat;
use crate::run::run;
use crate::scenario::Scenario;

const SCENARIOS: u64 = 24;

#[test]
fn digests_are_those_of_the_golden_text() {
    let mut text =
        "seed  digest            time_ns        hops  drops  xoff  messages\n".to_owned();
    for seed in 0..SCENARIOS {
        let scenario = Scenario::new(seed);
        let outcome = run(&scenario, 100_000, &repeat(seed, "digest"), |_| {}).unwrap();
        writeln!(
            text,
            "{seed:4}  {:016x}  {:13}  {:6}  {:5}  {:4}  {:8}",
            outcome.digest,
            outcome.summary.time.0,
            outcome.summary.hops,
            outcome.losses(),
            outcome.pauses(),
            outcome.messages
        )
        .unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/swarm/digest.txt");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, golden, "see the top of tests/swarm/digest.rs");
}
