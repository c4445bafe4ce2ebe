use sluice_sim::cpu::Policy;

use super::fit::{NAMES, cells, field};
use super::params::File;
use super::published::{Case, Rule};
use super::testbed::{Question, ask};
use super::*;

fn shipped() -> File {
    File::load(None).unwrap()
}

#[test]
fn the_shipped_parameters_give_table_4() {
    let file = shipped();
    let found = cells(&file.testbed, &file.params()).unwrap();
    assert_eq!(found.len(), 11);
    for cell in &found {
        assert!(cell.error() < 3.0, "{cell:?}");
    }
}

#[test]
fn no_step_from_the_shipped_parameters_fits_better() {
    let file = shipped();
    let badness = |params| {
        let cells: Vec<fit::Cell> = cells(&file.testbed, &params).unwrap();
        cells.iter().map(|cell| cell.error() * cell.error()).sum::<f64>()
    };
    let best = badness(file.params());
    for name in NAMES {
        let value = (field(name).get)(&file.params());
        for thousandths in [950, 1050] {
            let mut params = file.params();
            (field(name).set)(&mut params, (value * thousandths).div_ceil(1000));
            assert!(badness(params) >= best, "{name} {thousandths}");
        }
    }
}

#[test]
fn tunnel_fragments_share_core_under_rss_not_adaptive() {
    let file = shipped();
    let mut question = Question {
        rule: Rule::Rss,
        bytes: 8192,
        vms: 2,
        has_priority: false,
        is_guarded: false,
        policy: Policy::Drop,
        seeds: 2,
    };
    let rss = ask(&file.testbed, &file.params(), &question).unwrap();
    assert!(rss.softirq[0] > 99.9, "{rss:?}");
    question.rule = Rule::Adaptive;
    question.seeds = 1;
    let adaptive = ask(&file.testbed, &file.params(), &question).unwrap();
    // Delivery, the small part, is done on the cores of the machines.
    assert!(adaptive.softirq[0] + adaptive.softirq[1] < 5.0, "{adaptive:?}");
    assert!(adaptive.total() > 2.0 * rss.total());
}

#[test]
fn high_priority_vm_among_others_keeps_solo_throughput() {
    let file = shipped();
    let first = |vms| {
        let question = Question {
            rule: Rule::Adaptive,
            bytes: 8192,
            vms,
            has_priority: true,
            is_guarded: false,
            policy: Policy::Hold,
            seeds: 1,
        };
        ask(&file.testbed, &file.params(), &question).unwrap().throughput[0]
    };
    let (alone, among) = (first(1), first(3));
    assert!(among >= 0.98 * alone, "{among} of {alone} Mbit/s");
}

#[test]
fn guarded_core_has_no_tunnel_softirq_work() {
    let file = shipped();
    let question = Question {
        rule: Rule::Adaptive,
        bytes: 1400,
        vms: 3,
        has_priority: true,
        is_guarded: true,
        policy: Policy::Hold,
        seeds: 1,
    };
    let answer = ask(&file.testbed, &file.params(), &question).unwrap();
    assert!(answer.softirq[0] < f64::EPSILON, "{answer:?}");
    assert!(answer.loss.iter().all(|loss| *loss < f64::EPSILON));
}

#[test]
fn cpu_params_invalid_or_missing_error_names_fix() {
    let folder = std::env::temp_dir().join(format!("sluice-cpu-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = include_str!("../../../../../experiments/vs-extend/params.toml");
    let fails = |from: &str, to: &str| {
        let path = folder.join("params.toml");
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
        format!("{:#}", File::load(Some(&path)).unwrap_err())
    };
    assert!(fails("refill = 16", "refill = 0").contains("refill cannot work"));
    assert!(fails("cores = 4", "cores = 3").contains("testbed.cores is at least 4"));
    assert!(fails("refill = 16", "refil = 16").contains("write it as experiments/vs-extend"));
    let missing = format!("{:#}", File::load(Some(&folder.join("none.toml"))).unwrap_err());
    assert!(missing.contains("--params takes a file"), "{missing}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn table_4_puts_flows_where_its_rows_say() {
    let file = shipped();
    let at = |case| testbed::table_4(&file.testbed, &file.params(), case, 1400).unwrap();
    assert!(at(Case::SharedCore) < 0.7 * at(Case::TwoCores));
    assert!(at(Case::OnVmCore) < 0.9 * at(Case::OnFreeCore));
}
