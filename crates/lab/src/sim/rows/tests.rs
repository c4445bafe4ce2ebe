use std::collections::BTreeSet;

use super::*;
use crate::sim::experiment::Overrides;
use crate::sim::scenario::{Any, text_of};
use crate::sim::simulate::simulate;

fn found(name: &str, overrides: &Overrides) -> Results {
    let experiment =
        Experiment::new(Any::parse(&text_of(name).unwrap()).unwrap(), overrides).unwrap();
    let measured: Vec<Measured> =
        experiment.cases.iter().map(|case| simulate(case, &mut |_| {}).unwrap()).collect();
    results(&experiment, &measured)
}

fn incast() -> Results {
    let overrides = Overrides {
        queries: Some(3),
        sizes: Some(vec![16]),
        policies: Some(vec![Policy::LL, Policy::ZZ]),
        ..Overrides::default()
    };
    found("incast", &overrides)
}

#[test]
fn queries_have_the_rows_of_the_lab() {
    let results = incast();
    let lab = crate::results::tests::synthetic("demo");
    for measure in ["pa.fct", "pa.gain"] {
        let keys = |results: &Results| {
            let row = results.rows.iter().find(|row| row.measure == measure).unwrap();
            row.context.keys().cloned().collect::<BTreeSet<_>>()
        };
        assert_eq!(keys(&results), keys(&lab), "{measure}");
    }
}

#[test]
fn settings_name_every_parameter_and_the_seed() {
    let results = incast();
    let row = results.rows.iter().find(|row| row.measure == "sim.settings").unwrap();
    for key in ["seed", "topology_hosts", "overlay_vm_mbps", "switch_buffer_kb", "tcp_profile"] {
        assert!(row.context.contains_key(key), "{key}");
    }
    assert_eq!(row.context["rto_min_ms"], 200);
}

#[test]
fn no_row_is_empty() {
    assert!(incast().rows.iter().all(|row| !row.values.is_empty()));
}

#[test]
fn endless_flows_have_a_goodput_each() {
    let policies = Some(vec![Policy::ZZ]);
    let text = text_of("leaf-spine").unwrap().replace("duration_ms = 50", "duration_ms = 2");
    let experiment = Experiment::new(
        Any::parse(&text).unwrap(),
        &Overrides { policies, ..Overrides::default() },
    )
    .unwrap();
    let measured = simulate(&experiment.cases[0], &mut |_| {}).unwrap();
    assert_eq!(measured.broken, Vec::<String>::new());
    let results = results(&experiment, &[measured]);
    let row = results.rows.iter().find(|row| row.measure == "sim.goodput").unwrap();
    assert_eq!((row.values.len(), row.unit.as_str()), (32, "bit/s"));
    assert!(row.values.iter().all(|&rate| rate > 0.0 && rate < 10e9), "{:?}", row.values);
    let page = crate::report::html(&results);
    assert!(page.contains("Goodput of endless flows") && !page.contains("NaN"));
}

#[test]
fn the_report_says_that_it_is_a_simulation() {
    let results = incast();
    let page = crate::report::html(&results);
    assert!(page.contains("This is a simulation.") && page.contains("Seed 1"));
    assert!(page.contains("Sluice simulation: incast"));
    for other in ["http://", "https://", "<script", "counters of the kernel", "One machine."] {
        assert!(!page.contains(other), "{other}");
    }
    let text = serde_json::to_string(&results).unwrap();
    let back: Results = serde_json::from_str(&text).unwrap();
    assert_eq!(crate::report::html(&back), page);
}
