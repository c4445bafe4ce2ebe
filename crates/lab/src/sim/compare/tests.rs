use super::*;
use crate::results::tests::synthetic;
use crate::sim::{Options, Overrides};
use sluice_api::config::Policy;

fn simulated() -> Results {
    let options = Options {
        quiet: true,
        overrides: Overrides {
            queries: Some(4),
            sizes: Some(vec![4, 16]),
            policies: Some(vec![Policy::LL, Policy::ZZ]),
            ..Overrides::default()
        },
        ..Options::default()
    };
    crate::sim::run("demo", &options).unwrap().results
}

#[test]
fn lab_and_sim_compared_only_at_common_sizes() {
    let (lab, sim) = (synthetic("demo"), simulated());
    let pairs = pairs(&lab, &sim);
    let sizes: Vec<u64> = pairs.iter().map(|pair| pair.size).collect();
    assert_eq!(sizes, [4, 16]);
    let (theirs, ours) = pairs[1].p50.unwrap();
    assert!(theirs > 12e6 && ours > 5e6, "{theirs} {ours}");
    // The made-up lab has 95 time-outs in 32 queries and 2 before them.
    assert_eq!(pairs[1].timeouts.unwrap().0, 95.0 / 34.0);
    assert!(pairs[1].timeouts.unwrap().1 > 0.0);
    let text = table(&pairs);
    assert!(text.contains("ZZ p50 ms: lab") && text.contains("2.79"), "{text}");
}

#[test]
fn the_page_stands_alone() {
    let (lab, sim) = (synthetic("demo"), simulated());
    let page = comparison::html(&lab, &sim, &pairs(&lab, &sim));
    assert_eq!(page.matches("<svg viewBox=\"0 0 760").count(), 3);
    for other in ["http://", "https://", "<script", "NaN"] {
        assert!(!page.contains(other), "{other}");
    }
}

#[test]
fn files_in_the_wrong_order_are_said() {
    let folder = std::env::temp_dir().join(format!("sluice-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("lab.json");
    std::fs::write(&path, serde_json::to_string(&synthetic("demo")).unwrap()).unwrap();
    let error = compare(&path, &path, &CompareOptions::default()).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(error.contains("its file comes second"), "{error}");
}

/// A made-up lab with rows of its processor, `factor` times the simulator's median.
fn with_share(sim: &Results, factor: f64) -> Results {
    let mut lab = synthetic("demo");
    for cell in view::cells(sim).iter().filter(|cell| cell.series.policy == "ZZ") {
        let median = cell.p50 * factor;
        let row = Row::new(crate::processor::MEASURE, "sluice", "ns", vec![median]);
        lab.rows.push(row.with("size_packets", cell.size).with("p50", median));
        let cores = Row::new("lab.cores", "sluice", "ratio", vec![0.97]).with("policy", "ZZ");
        lab.rows.push(cores.with("own", 0.6).with("stolen", 0.03).with("cores", 2));
    }
    lab
}

#[test]
fn processor_share_bounds_the_median() {
    let pair =
        |processor| Pair { size: 4, p50: Some((5e6, 3e6)), processor, mean: None, timeouts: None };
    let with = pair(Some(1.5e6));
    assert_eq!(with.bounds(), Some(Bounds { least: 3e6, most: 4.5e6 }));
    assert_eq!((with.without_processor(), with.with_processor()), (Some(0.6), Some(0.9)));
    // A lab between the bounds agrees as it is; one that is faster than both does not.
    assert_eq!(pair(Some(2.5e6)).with_processor(), Some(1.0));
    assert_eq!(pair(Some(8e6)).with_processor(), Some(1.6));
    assert_eq!(pair(None).with_processor(), None);
    let pairs = [with, pair(Some(8e6)), pair(None)];
    assert_eq!(share::agreeing(&pairs), (0, 1, 2));
}

#[test]
fn processor_share_is_named_everywhere() {
    let sim = simulated();
    let lab = with_share(&sim, 2.0);
    let pairs = pairs(&lab, &sim);
    let (_, median) = pairs[0].p50.unwrap();
    assert_eq!(pairs[0].processor, Some(2.0 * median));
    let text = table(&pairs) + &share::words(&lab, &pairs);
    for word in ["with it / lab", "busy for 97 %", "60 % with its own", "took 3 %", "Corrected: "] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let rows = results(&lab, &pairs).rows;
    let row = rows.iter().find(|row| row.measure == "parity.median").unwrap();
    assert_eq!(view::number(row, "most_ns"), Some(3.0 * median));
    assert_eq!(view::number(row, "least_ns"), Some(2.0 * median));
    assert!(rows.iter().any(|row| row.measure == "parity.cores"));
    let page = comparison::html(&lab, &sim, &pairs);
    assert!(page.contains("with it by lab") && page.contains("Measured: "), "{page}");
}

#[test]
fn lab_without_processor_rows_is_said() {
    let (lab, sim) = (synthetic("demo"), simulated());
    let words = share::words(&lab, &pairs(&lab, &sim));
    assert!(words.contains("Not measured") && words.contains("run it again"), "{words}");
}
