use std::collections::BTreeMap;

use sluice_base::Nanos;

use super::case::{Case, Work};
use super::{Plan, check, rows};

/// Runs the whole part in its short form, without a peer, so that it keeps working.
#[test]
fn every_row_is_there_and_every_check_holds() {
    let rows = rows(&Plan::short(1), None).expect("every check holds");
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        *count.entry(row.measure.as_str()).or_default() += 1;
        assert!(row.values.len() == 1 && row.median > 0.0, "{row:?}");
        for key in ["workload", "pfc", "overlay", "hosts"] {
            assert!(row.context.contains_key(key), "{row:?}");
        }
    }
    let expected = [("hops_rate", 7), ("hops_rate.ratio", 3), ("hops_rate.memory", 1)];
    assert_eq!(count, BTreeMap::from(expected));
}

/// Checks that each check can fail: an outcome that is a little wrong gives no figure.
#[test]
fn sim_bench_with_implausible_outcome_is_refused() {
    let case = Case::of_256(Work::Pa { waves: 4 }, true, false);
    let good = case.run(|| 0.0).expect("a good run");
    let refused = |change: &dyn Fn(&mut super::Outcome)| {
        let mut outcome = good.clone();
        change(&mut outcome);
        check::all(&case, &outcome).expect_err("it is wrong").to_string()
    };
    assert!(refused(&|o| o.summary.hops += o.summary.hops / 50).contains("not within 1 %"));
    assert!(refused(&|o| o.summary.tcp.segments -= 1).contains("segments in 1024 answers"));
    assert!(refused(&|o| o.summary.tcp.retransmissions = 1).contains("1 sent again"));
    assert!(refused(&|o| o.fct[255] = Nanos(267_000)).contains("the least"));
    assert!(refused(&|o| o.fct[0] = Nanos(16_000)).contains("the least"));
    assert!(refused(&|o| o.fct[9] = Nanos(1_000_000)).contains("longer than a wave"));
}
