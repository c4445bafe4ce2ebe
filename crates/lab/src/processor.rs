//! Share of the lab's own processor in a query's time: the queries under `ZZ` once more, with links
//! and vNICs that are faster than the processor, so that it is what a query waits for.
//!
//! It is a part of every run that has `ZZ` cells over Sluice, and comes right after them. Its rows
//! are `lab.processor`, with the context of `pa.fct`: measurements, nothing is computed from them
//! here. `sluice sim compare` uses them ([`crate::sim::compare`]).

use sluice_api::config::Policy;
use sluice_api::results::Row;

use crate::plan::Plan;
use crate::results::{self, broken_promises};
use crate::run::{Options, groups, measure};
use crate::scenario::{Fabric, Pa, Scenario};
use crate::view;

/// Measure of the completion times.
pub(crate) const MEASURE: &str = "lab.processor";
/// Rate of a link in Mbit/s that a lab's processor does not fill: 330,000 full frames a second,
/// each of which five processes handle.
const LINK_MBPS: u64 = 4_000;
/// Factor by which the scenario's links are exceeded at least.
const FASTER: u64 = 4;
/// Largest number of queries of a cell.
const QUERIES_MAX: u32 = 100;
/// Longest time of a cell.
const SECONDS_MAX: f64 = 4.0;

/// Returns the scenario of the measurement; none where it means nothing: without `ZZ`, without
/// Sluice, or with virtual machines, whose processor is emulated.
pub(crate) fn scenario(scenario: &Scenario) -> Option<Scenario> {
    let pa = scenario.pa.as_ref()?;
    let is_plain = scenario.lab.fabric == Fabric::Sluice && scenario.lab.vms_per_host == 0;
    if !is_plain || !pa.policies.contains(&Policy::ZZ) {
        return None;
    }
    let mut own = scenario.clone();
    own.today = None;
    own.checks.clear();
    own.tcp.congestion = pa.congestions(&scenario.tcp).swap_remove(0);
    let rate = scenario.settings.link_mbps.unwrap_or(0);
    own.settings.link_mbps = Some(LINK_MBPS.max(rate * FASTER));
    own.settings.service_mbps = Some(0);
    let queries = pa.queries.min(QUERIES_MAX);
    own.pa = Some(Pa {
        policies: vec![Policy::ZZ],
        variants: Vec::new(),
        congestions: Vec::new(),
        switch_kb: Vec::new(),
        queries,
        queries_min: pa.queries_min.min(queries),
        seconds_per_cell: pa.seconds_per_cell.min(SECONDS_MAX),
        ..pa.clone()
    });
    Some(own)
}

/// Measures the cells. Returns their rows, and promises that Sluice did not keep in them.
///
/// # Errors
///
/// The lab cannot be built, or a part of it ended.
pub(crate) fn run(
    scenario: &Scenario,
    options: &Options,
) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let Some(own) = self::scenario(scenario) else { return Ok((Vec::new(), Vec::new())) };
    let findings = measure(&own, &groups(&own), options)?;
    let results = results::results(&own, &Plan::new(&own), &findings);
    let named = |row: &Row| Row {
        measure: MEASURE.to_owned(),
        ..row.clone().with("link_mbps", own.settings.link_mbps)
    };
    let rows = view::rows(&results, "pa.fct").map(named).collect();
    let broken = broken_promises(&findings);
    Ok((rows, broken.into_iter().map(|line| format!("processor: {line}")).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_cells_are_zz_without_rates() {
        let demo = Scenario::load("demo").unwrap();
        let own = scenario(&demo).unwrap();
        let groups = groups(&own);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].policy, Policy::ZZ);
        assert_eq!((groups[0].settings.service_mbps, groups[0].settings.link_mbps), (None, 4_000));
        let (pa, theirs) = (own.pa.as_ref().unwrap(), demo.pa.as_ref().unwrap());
        assert_eq!(pa.sizes, theirs.sizes);
        assert!(pa.queries <= 100 && own.today.is_none());
        // The scenario can be built as if somebody had written it.
        assert_eq!(Scenario::parse(&toml::to_string(&own).unwrap()).unwrap(), own);
        let fast = demo.clone();
        let settings = crate::settings::Override { link_mbps: Some(10_000), ..fast.settings };
        let own = scenario(&Scenario { settings, ..fast }).unwrap();
        assert_eq!(own.settings.link_mbps, Some(40_000));
    }

    #[test]
    fn processor_not_measured_without_zz_or_sluice() {
        for name in ["linux-bridge", "two-subnets", "pa-vms"] {
            assert!(scenario(&Scenario::load(name).unwrap()).is_none(), "{name}");
        }
    }
}
