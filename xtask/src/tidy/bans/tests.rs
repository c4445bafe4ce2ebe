use super::*;
use crate::rust_source::RustSource;

fn found(path: &str, text: &str) -> usize {
    let source = RustSource::new(text);
    problems(&RustFile { path: path.into(), text: text.to_owned(), source }).len()
}

#[test]
fn unfinished_production_is_found() {
    assert_eq!(found("crates/a/src/lib.rs", "fn f() { todo!() }\nfn g() { core::dbg!(1); }"), 2);
    assert_eq!(found("crates/a/src/lib.rs", "// todo!()\nlet my_todo = \"dbg!(\";"), 0);
    assert_eq!(found("crates/a/src/lib.rs", "#[cfg(test)]\nfn f() { todo!() }"), 0);
    assert_eq!(found("crates/a/src/a/tests.rs", "fn f() { todo!() }"), 0);
}

#[test]
fn unsafe_outside_allowed_crates_reported_even_in_tests() {
    let text = "fn f() { unsafe { g() } }";
    assert_eq!(found("crates/switch/src/lib.rs", text), 1);
    assert_eq!(found("crates/switch/src/a/tests.rs", text), 1);
    assert_eq!(found("crates/ports/src/lib.rs", text), 0);
    assert_eq!(found("crates/switch/src/lib.rs", "#![forbid(unsafe_code)]"), 0);
}

#[test]
fn line_length_counts_characters_and_exempts_urls() {
    let long = "é".repeat(100);
    assert_eq!(found("a.rs", &long), 0);
    assert_eq!(found("a.rs", &format!("{long}é")), 1);
    assert_eq!(found("a.rs", &format!("// https://{long}")), 0);
}
