//! The kernel as an oracle: the simulator's TCP under the losses of `tests/goldens`, compared with
//! the segments of Linux under the same losses.
//!
//! ```text
//!   goldens/NAME.txt ──▶ scenario ──▶ two connections, a delay, the same losses ──▶ trace
//!          └───────────▶ trace of the kernel ──────────────────────────────────────▶ compare
//! ```
//!
//! If both are specified alike, the segments must be the same ones in the same order and in the
//! same round trip. If not, the golden has a `deviation:` line, with its reason and the bounds that
//! hold nevertheless. See `docs/tcp-oracles.md`; `make goldens` writes the files.

mod compare;
mod golden;
mod replay;

use std::fmt::Write as _;
use std::path::Path;

use compare::compare;
use golden::{Entry, Golden, What};

/// All goldens by name.
fn goldens() -> Vec<(String, Golden)> {
    let folder = Path::new("tests/goldens");
    let mut goldens = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let golden = golden::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        goldens.push((name, golden));
    }
    goldens.sort_by(|a, b| a.0.cmp(&b.0));
    goldens
}

#[test]
fn the_simulator_sends_what_the_kernel_sends() {
    let mut report = String::new();
    let mut failed = Vec::new();
    for (name, golden) in goldens() {
        let trace = replay::run(&golden.scenario);
        if let Err(problem) = compare(&golden, &trace) {
            let beside = compare::beside(&golden.trace, &trace);
            writeln!(report, "\n{name}: {problem}\n\n{beside}").unwrap();
            failed.push(format!("{name}: {problem}"));
        }
    }
    assert!(failed.is_empty(), "{report}\n{} differ:\n{}", failed.len(), failed.join("\n"));
}

/// Goldens whose deviation is that the kernel finds losses by time (RFC 8985), with the time up to
/// which nothing else differs: the end, and the repair's end, after which the kernel's window grows
/// by the segment that ended it.
const BY_TIME: [(&str, u64); 2] =
    [("reno-few-duplicates", u64::MAX), ("reno-limited-transmit", 55_000)];

#[test]
fn losses_found_by_time_as_kernel_finds_them() {
    let goldens = goldens();
    for (name, until_us) in BY_TIME {
        let (_, golden) = goldens.iter().find(|(known, _)| known == name).unwrap();
        let early = |trace: &[Entry]| -> Vec<Entry> {
            trace.iter().filter(|entry| entry.at_us < until_us).cloned().collect()
        };
        let trace = early(&replay::run_by_time(&golden.scenario));
        let golden = Golden { deviation: None, trace: early(&golden.trace), ..golden.clone() };
        assert!(trace.iter().any(is_again), "{name} has its repair before that time");
        let beside = compare::beside(&golden.trace, &trace);
        assert_eq!(compare(&golden, &trace), Ok(()), "{name}\n{beside}");
    }
}

#[test]
fn lost_retransmissions_need_no_timeout_by_time() {
    let (_, golden) =
        goldens().into_iter().find(|(name, _)| name == "reno-retransmission").unwrap();
    let by_time = replay::run_by_time(&golden.scenario);
    assert_eq!(compare::timeouts(&by_time), compare::timeouts(&golden.trace));
    assert!(compare::timeouts(&replay::run(&golden.scenario)) > 0);
}

#[test]
fn a_replay_is_the_same_twice() {
    for (_, golden) in goldens() {
        assert_eq!(replay::run(&golden.scenario), replay::run(&golden.scenario));
    }
}

#[test]
fn there_are_goldens_of_every_kind() {
    let goldens = goldens();
    assert!(goldens.len() >= 12);
    let count = |what: &dyn Fn(&Golden) -> bool| goldens.iter().filter(|(_, g)| what(g)).count();
    assert!(count(&|golden| golden.scenario.cubic) >= 4);
    assert!(count(&|golden| !golden.scenario.sack) >= 4);
    assert!(count(&|golden| compare::timeouts(&golden.trace) > 0) >= 4);
    // With a deviation less is compared. Enough goldens must be compared to the end.
    assert!(count(&|golden| golden.deviation.is_none()) >= 16);
}

#[test]
fn a_golden_lost_what_it_names() {
    for (name, golden) in goldens() {
        let scenario = &golden.scenario;
        let data: usize = scenario.lost_data.iter().map(|(_, times)| times.len()).sum();
        let lost = golden.trace.iter().filter(|entry| entry.lost).count();
        assert_eq!(lost, data + scenario.lost_acks.len(), "{name}");
    }
}

#[test]
fn the_page_names_every_golden_and_every_deviation() {
    let page = std::fs::read_to_string("../../docs/tcp-oracles.md").unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let row = |name: &str| {
        let row = rows.iter().find(|row| row.starts_with(&format!("| `{name}` |")));
        *row.unwrap_or_else(|| panic!("docs/tcp-oracles.md has no row for `{name}`"))
    };
    for (name, golden) in goldens() {
        let outcome = row(&name).rsplit('|').nth(1).unwrap().trim();
        let rescue = (!golden.rescues.is_empty()).then_some("rescue");
        let deviation = golden.deviation.as_ref().map(|deviation| deviation.name.as_str());
        let words: Vec<&str> = rescue.into_iter().chain(deviation).collect();
        for word in &words {
            row(word);
        }
        let expected = if words.is_empty() { "the same".to_owned() } else { words.join(", ") };
        assert_eq!(outcome, expected, "the outcome of {name} on the page");
    }
}

/// Compares a golden with its own trace as the simulator's, after `doctor` changed it.
fn doctored(name: &str, doctor: impl Fn(&mut Vec<Entry>)) -> Result<(), String> {
    let goldens = goldens();
    let (_, golden) = goldens.into_iter().find(|(found, _)| found == name).unwrap();
    let golden = Golden { deviation: None, rescues: Vec::new(), ..golden };
    let mut trace = golden.trace.clone();
    doctor(&mut trace);
    trace.sort_by_key(|entry| entry.at_us);
    compare(&golden, &trace)
}

fn position(trace: &[Entry], what: impl Fn(&Entry) -> bool) -> usize {
    trace.iter().position(what).unwrap()
}

fn is_again(entry: &Entry) -> bool {
    matches!(entry.what, What::Data { again: true, .. })
}

#[test]
fn every_golden_agrees_with_itself() {
    for (name, golden) in goldens() {
        let golden = Golden { deviation: None, rescues: Vec::new(), ..golden };
        assert_eq!(compare(&golden, &golden.trace), Ok(()), "{name}");
    }
}

#[test]
fn a_swapped_segment_is_found() {
    let swap = |trace: &mut Vec<Entry>| {
        let at = position(trace, |entry| matches!(entry.what, What::Data { seq: 10_000, .. }));
        let (a, b) = (trace[at].what.clone(), trace[at + 1].what.clone());
        (trace[at].what, trace[at + 1].what) = (b, a);
    };
    let problem = doctored("reno-middle", swap).unwrap_err();
    assert!(problem.contains("data  10000") && problem.contains("data  11000"), "{problem}");
}

#[test]
fn a_missing_retransmission_is_found() {
    let remove = |trace: &mut Vec<Entry>| {
        trace.remove(position(trace, is_again));
    };
    for name in ["reno-middle", "newreno-three", "reno-last", "cubic-window"] {
        assert!(doctored(name, remove).unwrap_err().contains("again"));
    }
}

#[test]
fn a_segment_in_another_round_trip_is_found() {
    let delay = |trace: &mut Vec<Entry>| {
        let at = position(trace, is_again);
        trace[at].at_us += 10_000;
    };
    assert!(doctored("reno-middle", delay).is_err());
}

#[test]
fn an_early_time_out_is_found() {
    let hasten = |trace: &mut Vec<Entry>| {
        let at = position(trace, is_again);
        for entry in &mut trace[at..] {
            entry.at_us -= 100_000;
        }
    };
    assert!(doctored("reno-last", hasten).is_err());
}

#[test]
fn a_slow_drift_is_found() {
    let stretch = |trace: &mut Vec<Entry>| {
        for entry in trace {
            entry.at_us += entry.at_us / 6;
        }
    };
    assert!(doctored("cubic-middle", stretch).is_err());
}

#[test]
fn another_sack_block_is_found() {
    let change = |trace: &mut Vec<Entry>| {
        let at = position(trace, |e| matches!(&e.what, What::Ack { sack, .. } if sack.len() == 2));
        let What::Ack { sack, .. } = &mut trace[at].what else { unreachable!() };
        sack.swap(0, 1);
    };
    assert!(doctored("reno-two-apart", change).unwrap_err().contains("sack"));
}

#[test]
fn tcp_trace_missing_or_extra_last_entry_fails() {
    assert!(doctored("reno-no-loss", |trace| drop(trace.pop())).is_err());
    let repeat = |trace: &mut Vec<Entry>| trace.push(trace.last().unwrap().clone());
    assert!(doctored("reno-no-loss", repeat).is_err());
}

mod deviations {
    use super::*;

    /// A golden with a deviation, compared with its own trace after `doctor` changed it.
    fn loosely(
        name: &str,
        deviation: &str,
        doctor: impl Fn(&mut Vec<Entry>),
    ) -> Result<(), String> {
        let goldens = goldens();
        let (_, golden) = goldens.into_iter().find(|(found, _)| found == name).unwrap();
        let deviation = Some(golden::parse_deviation(deviation).unwrap());
        let golden = Golden { deviation, rescues: Vec::new(), ..golden };
        let mut trace = golden.trace.clone();
        doctor(&mut trace);
        trace.sort_by_key(|entry| entry.at_us);
        compare(&golden, &trace)
    }

    fn later(trace: &mut [Entry]) {
        let at = position(trace, is_again);
        trace[at].at_us += 18_000;
    }

    const LINE: &str = "prr from 20 ms, apart 1, end 20 ms, timeouts 0: a test";

    #[test]
    fn one_that_is_needed_is_granted() {
        assert_eq!(loosely("reno-middle", LINE, |trace| later(trace)), Ok(()));
    }

    #[test]
    fn one_that_grants_too_much_fails() {
        let line = LINE.replace("apart 1", "apart 2");
        let problem = loosely("reno-middle", &line, |trace| later(trace)).unwrap_err();
        assert!(problem.contains("at most 1 segments apart"), "{problem}");
    }

    #[test]
    fn one_that_is_not_needed_fails() {
        let problem = loosely("reno-middle", LINE, |_| {}).unwrap_err();
        assert!(problem.contains("not needed"), "{problem}");
    }

    #[test]
    fn tcp_deviation_starting_too_early_or_late_fails() {
        for from in ["0 ms", "30 ms"] {
            let line = LINE.replace("20 ms, apart", &format!("{from}, apart"));
            assert!(loosely("reno-middle", &line, |trace| later(trace)).is_err(), "{line}");
        }
    }

    #[test]
    fn a_missing_retransmission_is_found_nevertheless() {
        let remove = |trace: &mut Vec<Entry>| drop(trace.remove(position(trace, is_again)));
        assert!(loosely("reno-middle", LINE, remove).unwrap_err().contains("4000"));
    }

    #[test]
    fn a_needless_retransmission_is_found_nevertheless() {
        let repeat = |trace: &mut Vec<Entry>| {
            let at = position(trace, is_again);
            trace.insert(at, trace[at].clone());
        };
        assert!(loosely("reno-middle", LINE, repeat).is_err());
    }

    #[test]
    fn a_time_out_is_found_nevertheless() {
        let wait = |trace: &mut Vec<Entry>| {
            let at = position(trace, is_again);
            for entry in &mut trace[at..] {
                entry.at_us += 220_000;
            }
        };
        let line = LINE.replace("end 20 ms", "end 900 ms");
        assert!(loosely("reno-middle", &line, wait).unwrap_err().contains("time-outs"));
    }

    #[test]
    fn tcp_deviation_detects_oversized_burst_and_late_end() {
        let burst = |trace: &mut Vec<Entry>| {
            for entry in trace.iter_mut().filter(|entry| entry.at_us > 35_000) {
                entry.at_us -= 20_000;
            }
        };
        let line = LINE.replace("end 20 ms", "end 900 ms").replace("from 20 ms", "from 40 ms");
        assert!(loosely("reno-middle", &line, burst).unwrap_err().contains("apart"));
        let late = |trace: &mut Vec<Entry>| {
            later(trace);
            trace.last_mut().unwrap().at_us += 30_000;
        };
        assert!(loosely("reno-middle", LINE, late).unwrap_err().contains("end"));
    }
}
