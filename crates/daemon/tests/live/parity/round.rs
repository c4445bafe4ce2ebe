//! Runs every case on both subjects and judges the observations.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sluice_testkit::bound::is_soak;

use super::bridge::Bridge;
use super::fabric::Fabric;
use super::judge::{self, Differing};
use super::seen::Seen;
use super::table::{self, Known};
use super::world::{Subject, World};
use super::{Case, When, cases};
use crate::rig::say;

/// Number of cases that run in parallel. They mostly wait.
const LANES: usize = 8;

/// More surprises than these are no accident: they are not repeated.
const AGAIN_MAX: usize = 12;

/// Differences of a case; or the reason why it could not be run.
type Shown = Result<Differing, String>;

/// Everything of one run of the suite.
struct Round {
    bridge: Bridge,
    fabric: Fabric,
    known: Known,
    shown: Mutex<BTreeMap<&'static str, Shown>>,
}

/// Runs the suite; panics with every surprise.
pub(crate) fn run() {
    let wanted = std::env::var("PARITY").unwrap_or_default();
    let all = cases::all();
    let names: BTreeSet<_> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len(), "a name is there twice");
    let runs = |case: &&Case| {
        case.name.starts_with(&wanted)
            && (is_soak() || case.when != When::Soak)
            && !lacks_tool(case)
    };
    let mut chosen: Vec<(usize, Case)> = all
        .iter()
        .enumerate()
        .filter(|(_, case)| runs(case))
        .map(|(at, case)| (at, *case))
        .collect();
    let round = Round {
        bridge: Bridge::new(),
        fabric: Fabric::new(2 * all.len()),
        known: table::read(),
        shown: Mutex::default(),
    };
    for (name, _) in round.known.keys() {
        assert!(names.contains(&**name), "docs/bridge-parity.md: there is no case {name}");
    }
    let alone = chosen
        .split_off(chosen.iter().position(|c| c.1.when != When::Beside).unwrap_or(chosen.len()));
    let begin = Instant::now();
    round.run_beside(&chosen);
    for (network, case) in &alone {
        round.run_one(*network, case);
    }
    round.look_again(&chosen, &alone, all.len());
    let surprises: Vec<_> =
        chosen.iter().chain(&alone).flat_map(|(_, case)| round.surprises(case)).collect();
    let count = chosen.len() + alone.len();
    say(&format!("bridge parity: {count} cases in {:?}", begin.elapsed()));
    if surprises.is_empty() {
        round.fabric.assert_books_balance();
    } else {
        round.fabric.tell_drops();
    }
    // Dropped before the panic: the daemons would print all of their output.
    drop(round);
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
}

/// Returns true if a program is missing that a case needs, and prints that.
fn lacks_tool(case: &Case) -> bool {
    case.tools.iter().any(|tool| crate::rig::skip(case.name, &[tool]))
}

impl Round {
    fn run_beside(&self, chosen: &[(usize, Case)]) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(|| {
                    while let Some((network, case)) =
                        chosen.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        self.run_one(*network, case);
                    }
                });
            }
        });
    }

    /// Runs surprising cases again, with no other beside them; the second result counts.
    fn look_again(&self, beside: &[(usize, Case)], alone: &[(usize, Case)], networks: usize) {
        let surprises = |case: &&(usize, Case)| !self.surprises(&case.1).is_empty();
        let again: Vec<_> = beside.iter().chain(alone).filter(surprises).collect();
        if again.is_empty() || again.len() > AGAIN_MAX {
            return;
        }
        self.fabric.tell_drops();
        for (network, case) in again {
            for surprise in self.surprises(case) {
                say(&format!("again: {surprise}"));
            }
            // In an unused network.
            self.run_one(networks + network, case);
        }
    }

    /// Runs a case on both subjects at the same time.
    fn run_one(&self, network: usize, case: &Case) {
        let begin = Instant::now();
        let on = |subject: &dyn Subject| {
            let script = || (case.script)(&World::new(subject, network));
            catch_unwind(AssertUnwindSafe(script))
                .map_err(|panic| format!("on {}: {}", subject.word(), text(&*panic)))
        };
        let (bridge, fabric) = std::thread::scope(|scope| {
            let bridge = scope.spawn(|| on(&self.bridge));
            let fabric = scope.spawn(|| on(&self.fabric));
            (bridge.join().unwrap(), fabric.join().unwrap())
        });
        let seconds = begin.elapsed().as_secs_f64();
        let shown = match (bridge, fabric) {
            (Ok(bridge), Ok(fabric)) => {
                say(&format!(
                    "{} ({seconds:.1} s)\n    bridge  {bridge}\n    sluice  {fabric}",
                    case.name
                ));
                Ok(differing(&bridge, &fabric))
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        self.shown.lock().unwrap().insert(case.name, shown);
    }

    /// Returns the differences of a case from the tables.
    fn surprises(&self, case: &Case) -> Vec<String> {
        match &self.shown.lock().unwrap()[case.name] {
            Ok(differing) => judge::surprises(case.name, differing, &self.known),
            Err(error) => vec![format!("{}: it cannot be run {error}", case.name)],
        }
    }
}

fn differing(bridge: &Seen, fabric: &Seen) -> Differing {
    let rows = fabric.differences(bridge).into_iter();
    rows.map(|(of, bridge, own)| (of, (bridge, own))).collect()
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
