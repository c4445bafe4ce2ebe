//! Results as text, the same bytes on every machine and with every optimisation: a grid by policy
//! and load, and a few drawn scenarios. The head of `digest.txt` explains the columns.
//!
//! A change that is meant to change them writes the text again, to be read as a difference:
//!
//! ```text
//! UPDATE_GOLDENS=1 cargo test -p sluice-sim --test swarm digest
//! git diff crates/sim/tests/swarm/digest.txt
//! ```

use crate::grid::grid;
use crate::repeat;
use crate::run::run;
use crate::scenario::Scenario;
use crate::table::{policy, results, results_head};

const SCENARIOS: u64 = 24;

const HEAD: &str = "\
# policy    Virtual and physical network. L drops, Z holds back, - there is none, z holds back half
#           of the priorities.
# Mbit/s    Goodput: payload of the messages that have arrived, until the last one has.
# ms        Flow completion times, of questions or of messages.
# losses    Frames dropped for congestion; of these, in physical switches.
# pauses    XOFF sent by switches and hosts.
# digest    Every arrival and drop, with its time.
#
# To write it again: UPDATE_GOLDENS=1 cargo test -p sluice-sim --test swarm digest
";

const GRID_HEAD: &str = "\
# Grid: so many hosts answer one at once; 24 hosts behind 3 leaves and 2 spines (swarm/grid.rs).
";

const DRAWN_HEAD: &str = "\
# Drawn scenarios (swarm/scenario.rs).
# kB        Payload that the messages are to carry. Background traffic is not in it, or in goodput.
# topology  Its kind and its hosts.
# work      mix: single messages, many of them to one host; ask: questions; waves: waves of
#           answers; tcp, udp: background traffic.
";

#[test]
fn results_with_same_seeds_match_golden_text() {
    let text = format!("{HEAD}\n{GRID_HEAD}{}\n{DRAWN_HEAD}{}", grid(), drawn());
    let path = "tests/swarm/digest.txt";
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    let differing = differing(&golden, &text);
    assert!(text == golden, "see the top of tests/swarm/digest.rs\n{differing}");
}

/// Returns the lines that differ, the golden ones with a minus before them.
fn differing(golden: &str, text: &str) -> String {
    let only = |sign, these: &str, others: &str| -> String {
        let lines = these.lines().filter(|line| !others.lines().any(|other| other == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    only('-', golden, text) + &only('+', text, golden)
}

/// Returns the drawn scenarios as text, by policy and then by load.
fn drawn() -> String {
    let mut scenarios: Vec<Scenario> = (0..SCENARIOS).map(Scenario::new).collect();
    scenarios.sort_by_key(|scenario| (policy(&scenario.config), scenario.bytes(), scenario.seed));
    let rows = scenarios.iter().map(|scenario| row(scenario) + "\n");
    drawn_head() + "\n" + &rows.collect::<String>()
}

fn drawn_head() -> String {
    format!(
        "policy  {:>5}  seed  {:8}  {:17}  {}  {:>6}  {:>12}",
        "kB",
        "topology",
        "work",
        results_head("max ms"),
        "hops",
        "end_ns"
    )
}

fn row(scenario: &Scenario) -> String {
    let outcome = run(scenario, 100_000, &repeat(scenario.seed, "digest"), |_| {}).unwrap();
    format!(
        "{:6}  {:5}  {:4}  {:8}  {:17}  {}  {:6}  {:12}",
        policy(&scenario.config),
        scenario.bytes() / 1_000,
        scenario.seed,
        topology(scenario),
        scenario.work(),
        results(&outcome, 100),
        outcome.summary.hops,
        outcome.summary.time.0
    )
}

/// Returns the topology in a word, with its number of hosts.
fn topology(scenario: &Scenario) -> String {
    format!("{} {}", scenario.shape, scenario.config.topology.hosts)
}
