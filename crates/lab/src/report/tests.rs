use super::*;
use crate::results::tests::synthetic;

#[test]
fn the_page_needs_nothing_beside_itself() {
    let page = html(&synthetic("demo"));
    for outside in ["http://", "https://", "<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "a number that is none");
    assert_eq!(page.matches("<svg viewBox=\"0 0 760").count(), 3);
    assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
}

#[test]
fn published_figures_stand_beside_ours() {
    let page = html(&synthetic("demo"));
    assert!(page.contains("15.95: published best") && page.contains("19.1: published best"));
    assert!(page.contains("not what a kernel of today does"));
}

#[test]
fn the_page_comes_from_the_file_alone() {
    let results = synthetic("demo");
    let text = serde_json::to_string(&results).unwrap();
    let back: Results = serde_json::from_str(&text).unwrap();
    assert_eq!(html(&back), html(&results));
}

#[test]
fn results_without_cells_make_a_page() {
    let results =
        Results { name: "x".into(), commit: "c".into(), machine: "m".into(), rows: Vec::new() };
    let page = html(&results);
    assert!(page.contains("Sluice lab: x") && !page.contains("<svg"));
}

#[test]
fn a_sweep_is_drawn_over_the_buffer() {
    let page = html(&synthetic("pa-buffers"));
    assert!(page.contains("buffer of the physical switch per port, KB"));
    assert!(!page.contains("size of an answer, full segments</text>"));
}

#[test]
fn every_tcp_has_a_line_of_its_own() {
    let page = html(&synthetic("pa-vms"));
    for policy in ["LL", "ZZ"] {
        for tcp in ["reno", "cubic", "vegas"] {
            assert!(page.contains(&format!("</svg>{policy} {tcp}</span>")), "{policy} {tcp}");
        }
    }
    assert_eq!(page.matches("class=\"key ZZ\"></span>ZZ vegas").count(), 4 + 4, "two tables");
}

/// Run with `cargo test -p sluice-lab -- --ignored pages`, then open the pages.
#[test]
#[ignore = "writes pages to look at, with made-up figures"]
fn pages_to_look_at() {
    for name in ["demo", "pa-buffers", "pa-total", "pa-vms"] {
        let path = std::env::temp_dir().join(format!("sluice-report-{name}.html"));
        std::fs::write(&path, html(&synthetic(name))).unwrap();
        println!("{}", path.display());
    }
}
