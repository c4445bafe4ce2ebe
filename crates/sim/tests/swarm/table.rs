//! Columns that both tables of the golden text share.
//!
//! Numbers have fixed digits, cut off and not rounded. No float takes part: its last digit could
//! depend on the machine.

use sluice_base::{Nanos, PriorityMask};
use sluice_sim::world::WorldConfig;

use crate::run::Outcome;

/// Returns the names of the columns of [`results`]; `tail` names the second time.
pub(crate) fn results_head(tail: &str) -> String {
    format!(
        "{:>8}  {:>9}  {:>9}  {:>6}  {:>8}  {:>6}  {:>8}  {:16}",
        "Mbit/s", "p50 ms", tail, "losses", "physical", "pauses", "messages", "digest"
    )
}

/// Returns the results of a run; `tail` is the percentile of the second time, 100 the maximum.
pub(crate) fn results(outcome: &Outcome, tail: usize) -> String {
    format!(
        "{:>8}  {:>9}  {:>9}  {:6}  {:8}  {:6}  {:8}  {:016x}",
        mbit_per_s(outcome.bytes, outcome.last),
        millis(percentile(&outcome.fct, 50)),
        millis(percentile(&outcome.fct, tail)),
        outcome.losses(),
        outcome.physical_losses(),
        outcome.pauses(),
        outcome.messages,
        outcome.digest
    )
}

/// Returns the two letters of a policy, virtual and physical network: `L` drops, `Z` holds back.
/// `-` means no virtual network, `z` a physical one that holds back half of the priorities.
pub(crate) fn policy(config: &WorldConfig) -> String {
    let virt = match &config.overlay {
        None => '-',
        Some(overlay) if overlay.lossless == PriorityMask::ALL => 'Z',
        Some(_) => 'L',
    };
    let physical = match config.net.lossless {
        PriorityMask::NONE => 'L',
        PriorityMask::ALL => 'Z',
        _ => 'z',
    };
    [virt, physical].iter().collect()
}

/// Returns a rate with one digit behind the point.
fn mbit_per_s(bytes: u64, span: Nanos) -> String {
    let tenths = u128::from(bytes) * 80_000 / u128::from(span.0.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns a time with three digits behind the point.
fn millis(time: Nanos) -> String {
    let micros = time.0 / 1_000;
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}

/// Returns the percentile by nearest rank; zero if there are no times.
fn percentile(times: &[Nanos], percent: usize) -> Nanos {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[test]
fn numbers_with_fixed_digits_are_cut_off() {
    assert_eq!(mbit_per_s(1_250, Nanos::from_micros(1)), "10000.0");
    assert_eq!(mbit_per_s(1, Nanos::from_millis(100)), "0.0");
    assert_eq!(mbit_per_s(1, Nanos::ZERO), "8000.0");
    assert_eq!(millis(Nanos(1_002_999)), "1.002");
    assert_eq!(millis(Nanos(999)), "0.000");
}

#[test]
fn percentile_of_few_times_is_nearest_rank() {
    let times: Vec<Nanos> = (1..=4).rev().map(Nanos).collect();
    assert_eq!([1, 50, 51, 99, 100].map(|p| percentile(&times, p).0), [1, 2, 3, 4, 4]);
    assert_eq!(percentile(&[], 50), Nanos::ZERO);
}
