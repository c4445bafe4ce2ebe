use super::*;
use crate::rust_source::RustSource;

fn sizes(entries: &[(&str, usize)]) -> BTreeMap<Subject, usize> {
    let lines: Vec<String> = entries.iter().map(|(what, size)| format!("{what} {size}")).collect();
    parse_ratchet(&lines.join("\n")).unwrap()
}

fn problem(now: usize, ratchet: &[(&str, usize)]) -> String {
    compare(&sizes(&[("a.rs", now)]), &sizes(ratchet)).join("\n")
}

#[test]
fn within_the_limit_nothing_is_said() {
    assert_eq!(problem(600, &[]), "");
    assert!(compare(&sizes(&[("a.rs fn f", 70)]), &BTreeMap::new()).is_empty());
}

#[test]
fn above_the_limit_it_must_be_split() {
    assert!(problem(601, &[]).contains("601 lines, 600 are the limit"));
    let long = compare(&sizes(&[("a.rs fn f", 71)]), &BTreeMap::new());
    assert!(long[0].starts_with("a.rs fn f has 71 lines"));
}

#[test]
fn size_exception_must_shrink_with_file() {
    assert_eq!(problem(700, &[("a.rs", 700)]), "");
    assert!(problem(701, &[("a.rs", 700)]).contains("grew from 700 to 701"));
    assert!(problem(650, &[("a.rs", 700)]).contains("write 650"));
    assert!(problem(600, &[("a.rs", 700)]).contains("no exception any more"));
}

#[test]
fn size_exception_for_missing_file_reported() {
    assert!(problem(1, &[("b.rs", 700)]).contains("b.rs is gone"));
}

#[test]
fn the_longest_of_several_functions_counts() {
    let source = RustSource::new("fn new() {}\nfn new() {\n}\nfn new() {}\n");
    let mut measured = BTreeMap::new();
    measure("a.rs", &source, &mut measured);
    assert_eq!(measured, sizes(&[("a.rs", 4), ("a.rs fn new", 2)]));
}

#[test]
fn a_bad_line_is_named() {
    assert!(parse_ratchet("# fine\na.rs\n").unwrap_err().to_string().contains(":2:"));
}
