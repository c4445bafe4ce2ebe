//! The comparison with each parameter half as large, and half as large again.

use sluice_sim::cpu::{Params, Policy};

use super::compare::{self, Comparison, Extent};
use super::params::Testbed;
use super::published::Rule;
use super::{predict, summary};

/// Results with one parameter moved.
#[derive(Clone, Debug)]
pub(crate) struct Varied {
    /// The parameter, or `as fitted`.
    pub(crate) name: &'static str,
    pub(crate) value: Option<u64>,
    /// Total of `adaptive` that holds over that of RSS that drops, three VMs: 1,400 and 8,192
    /// bytes.
    pub(crate) over_rss: [f64; 2],
    /// The same over RSS that holds as well.
    pub(crate) over_rss_hold: [f64; 2],
    /// The larger loss of two VMs under drop, 1,400 and 8,192 bytes, in hundredths.
    pub(crate) loss: [f64; 2],
    /// Rate of VM1 relative to its rate alone, under hold: 1,400 and 8,192 bytes, in hundredths.
    pub(crate) priority: [f64; 2],
    /// The smallest total of `adaptive` over that of RSS++: under drop, under hold.
    pub(crate) over_rss_plus_plus: [f64; 2],
    /// Median and ninth decile of the errors of all predictions, in hundredths.
    pub(crate) predicted_error: [f64; 2],
}

const LARGE: [u64; 2] = [1400, 8192];

/// Moves each parameter.
pub(crate) fn vary(
    testbed: &Testbed,
    base: &Params,
    seeds: u64,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Vec<Varied>> {
    let mut all = vec![measure(testbed, base, seeds, ("as fitted", None))?];
    for field in &Params::FIELDS {
        progress(field.name);
        let value = (field.get)(base);
        for moved in [value / 2, value + value.div_ceil(2)] {
            let mut params = *base;
            (field.set)(&mut params, moved);
            if params.wrong().is_none() {
                all.push(measure(testbed, &params, seeds, (field.name, Some(moved)))?);
            }
        }
    }
    Ok(all)
}

fn measure(
    testbed: &Testbed,
    params: &Params,
    seeds: u64,
    (name, value): (&'static str, Option<u64>),
) -> anyhow::Result<Varied> {
    let extent = Extent {
        vms: &[2, 3],
        sizes: &LARGE,
        rules: &[Rule::Rss, Rule::RssPlusPlus, Rule::Adaptive],
        // RSS++ takes long to simulate, and moves badly hashed flows by itself.
        seeds: [seeds, seeds.min(4), seeds.min(2)],
    };
    let found = compare::run(testbed, params, &extent)?;
    let total = |rule, bytes, policy, guard| {
        found.of(rule, bytes, 3, policy, guard).map_or(0.0, super::testbed::Answer::total)
    };
    let ours = |bytes| total(Rule::Adaptive, bytes, Policy::Hold, false);
    let alone = |bytes| {
        let is = |row: &&(u64, Policy, f64)| (row.0, row.1) == (bytes, Policy::Hold);
        found.alone.iter().find(is).map_or(f64::MAX, |row| row.2)
    };
    let first = |bytes| {
        let answer = found.of(Rule::Adaptive, bytes, 3, Policy::Hold, false);
        answer.map_or(0.0, |answer| answer.throughput[0])
    };
    let loss = |bytes| {
        let answer = found.of(Rule::Adaptive, bytes, 2, Policy::Drop, false);
        answer.map_or(0.0, |answer| answer.loss.iter().copied().fold(0.0, f64::max))
    };
    let predicted = summary::predicted(&predict::figures(testbed, params, seeds)?);
    Ok(Varied {
        name,
        value,
        over_rss: LARGE.map(|b| ours(b) / total(Rule::Rss, b, Policy::Drop, false)),
        over_rss_hold: LARGE.map(|b| ours(b) / total(Rule::Rss, b, Policy::Hold, false)),
        loss: LARGE.map(loss),
        priority: LARGE.map(|b| 100.0 * first(b) / alone(b)),
        over_rss_plus_plus: [Policy::Drop, Policy::Hold].map(|policy| least(&found, policy)),
        predicted_error: [predicted.median(), predicted.p90()],
    })
}

/// Returns the smallest total of `adaptive` over that of RSS++.
fn least(found: &Comparison, policy: Policy) -> f64 {
    let mut least = f64::MAX;
    for vms in [2, 3] {
        for bytes in LARGE {
            let of = |rule| found.of(rule, bytes, vms, policy, false);
            if let (Some(ours), Some(other)) = (of(Rule::Adaptive), of(Rule::RssPlusPlus)) {
                least = least.min(ours.total() / other.total());
            }
        }
    }
    least
}
