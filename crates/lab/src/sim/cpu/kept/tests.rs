use super::super::params::File;
use super::super::published::Rule;
use super::super::{cli, predict, rows};
use super::*;

/// Path of a file in the folder of the experiment.
fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/vs-extend").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

const AGAIN: &str = "run experiments/vs-extend/run.sh keep, then correct the page";

#[test]
fn kept_result_is_what_predict_writes() {
    let file = File::load(None).unwrap();
    let figures = predict::figures(&file.testbed, &file.params(), 32).unwrap();
    let text = read("result.json");
    let kept: Results = serde_json::from_str(&text).unwrap();
    // Neither commit nor machine decides a figure.
    let now = Results { rows: rows::predict(&figures, 32), ..kept };
    assert!(cli::json(&now).unwrap() == text, "result.json is another one: {AGAIN}");
}

#[test]
fn kept_drawings_show_kept_result() {
    let kept = Kept::load(&path("result.json")).unwrap();
    assert!(kept.two_vms() == read("two-vms.svg"), "two-vms.svg: {AGAIN}");
    assert!(kept.errors() == read("errors.svg"), "errors.svg: {AGAIN}");
}

#[test]
fn pages_say_what_kept_result_says() {
    let kept = Kept::load(&path("result.json")).unwrap();
    let page = read("README.md");
    for table in kept.tables() {
        assert!(page.contains(&table), "{AGAIN}\n{table}");
    }
    let all = summary::predicted(&kept.figures);
    let claim = format!("{:.1} % of {} figures", all.median(), all.errors.len());
    assert!(read("../../SPEC.md").contains(&claim), "SPEC.md, C14: {claim}");
}

#[test]
fn kept_result_has_every_cell() {
    let kept = Kept::load(&path("result.json")).unwrap();
    let count = |table: u8, unit: Unit, mode: Rule| {
        let is = |f: &&Figure| (f.table, f.unit) == (table, unit) && f.mode == mode.name();
        let of_rule = kept.figures.iter().filter(is);
        of_rule.filter(|f| f.basis != Basis::Plain && f.basis != Basis::Repeated).count()
    };
    assert_eq!(kept.figures.iter().filter(|f| f.table == 4).count(), 12);
    for rule in [Rule::Default, Rule::Rss, Rule::VsExtend] {
        // Four cores, or two machines, of three sizes.
        assert_eq!((count(5, Unit::Share, rule), count(5, Unit::Count, rule)), (12, 12));
        assert_eq!(count(6, Unit::Loss, rule), 6);
    }
    // Three machines and their sum; two sizes have a derived sum of the others.
    assert_eq!([Rule::Rss, Rule::VsExtend].map(|rule| count(7, Unit::Mbps, rule)), [14, 14]);
}

#[test]
fn figure_of_two_vms_has_both_bars() {
    let svg = Kept::load(&path("result.json")).unwrap().two_vms();
    for class in ["paper", "model"] {
        let bars = svg.matches(&format!("class=\"bar {class}\"")).count();
        assert_eq!(bars, 9 + 1, "three rules of three sizes, and the key");
    }
}
