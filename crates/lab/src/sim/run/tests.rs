use super::*;
use sluice_api::config::Policy;

use super::super::simulate::simulate;

/// Returns options for a few queries, small enough for a debug build.
fn few(policies: &[Policy], seed: u64) -> Options {
    Options {
        quiet: true,
        overrides: Overrides {
            seed: Some(seed),
            queries: Some(6),
            sizes: Some(vec![8, 32]),
            policies: Some(policies.to_vec()),
        },
        ..Options::default()
    }
}

#[test]
fn incast_loses_under_ll_and_not_under_zz() {
    let outcome = run("incast", &few(&Policy::ALL, 1)).unwrap();
    assert_eq!(outcome.broken, Vec::<String>::new());
    let dropped = |policy: &str| {
        let cells = crate::view::cells(&outcome.results);
        let own = cells.iter().filter(|cell| cell.series.policy == policy);
        own.map(|cell| cell.drops_congestion).sum::<u64>()
    };
    assert!(dropped("LL") > 0);
    assert_eq!(dropped("ZZ"), 0);
    let gains = crate::view::gains(&outcome.results);
    assert_eq!(gains.len(), 6, "three policies of two sizes");
    let zz = gains.iter().find(|gain| gain.series.policy == "ZZ" && gain.size == 32).unwrap();
    assert!(zz.value > 2.0 && zz.low > 1.0, "{zz:?}");
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    let rows = |seed: u64| {
        let outcome = run("incast", &few(&[Policy::LL, Policy::ZZ], seed)).unwrap();
        serde_json::to_string(&outcome.results.rows).unwrap()
    };
    assert_eq!(rows(1), rows(1));
    assert_ne!(rows(1), rows(2));
}

#[test]
fn a_scenario_of_the_lab_is_simulated() {
    let outcome = run("smoke", &few(&[Policy::LL, Policy::ZZ], 1)).unwrap();
    assert_eq!(outcome.broken, Vec::<String>::new());
    let cells = crate::view::cells(&outcome.results);
    assert_eq!(cells.len(), 4);
    assert!(cells.iter().all(|cell| cell.audit_closed == Some(true)));
}

#[test]
fn a_broken_promise_says_what_repeats_it() {
    let experiment = load("incast", &few(&[Policy::LL], 7).overrides).unwrap();
    // A case run under LL is called ZZ: its drops are a broken promise then.
    let mut case = experiment.cases[1].clone();
    let mut found = simulate(&case, &mut |_| {}).unwrap();
    assert!(found.broken.is_empty() && found.losses.congestion > 0);
    case.policy = Policy::ZZ;
    case.world.overlay.as_mut().unwrap().lossless = sluice_base::PriorityMask::ALL;
    case.world.net.lossless = sluice_base::PriorityMask::ALL;
    found.broken = super::super::simulate::broken(&case, &found);
    let text = report(&case, &found, 7, &command("incast", &experiment, &case));
    let repeat = "sluice sim run incast --seed 7 --policies ZZ --sizes 32 --queries 6";
    assert!(text.contains(repeat) && text.contains("congestion drops"), "{text}");
    assert!(text.contains("seed 7") && text.contains("drops: "), "{text}");
}

#[test]
fn unfinished_workload_reported_as_broken_promise() {
    let mut experiment = load("incast", &few(&[Policy::ZZ], 1).overrides).unwrap();
    let case = &mut experiment.cases[0];
    case.end = sluice_base::Nanos::from_micros(500);
    let found = simulate(case, &mut |_| {}).unwrap();
    assert!(found.broken[0].contains("queries are done"), "{:?}", found.broken);
}

#[test]
fn scenarios_that_can_be_simulated_are_listed() {
    let names: Vec<&str> = list().unwrap().into_iter().map(|(name, _)| name).collect();
    let own = ["incast", "search-small", "search-clients", "leaf-spine", "demo"];
    assert!(names.starts_with(&own), "{names:?}");
    assert_eq!(names.len(), 14, "{names:?}");
    assert!(names.contains(&"linux-bridge"), "{names:?}");
    for other in ["pa-vms", "netvisor-walk"] {
        assert!(!names.contains(&other), "{other}");
    }
}

#[test]
fn lab_check_cell_repeated_by_command() {
    let experiment = load("smoke", &Overrides::default()).unwrap();
    let case = experiment.cases.iter().find(|case| case.probe().is_some()).unwrap();
    let command = command("smoke", &experiment, case);
    assert_eq!(command, "sluice sim run smoke --seed 1 # ping h0c0 to h1c1");
}
