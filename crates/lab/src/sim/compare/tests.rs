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
    let error = compare(&path, &path, None).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(error.contains("its file comes second"), "{error}");
}
