//! Tests of the state in words.

use super::*;

#[test]
fn joined_host_says_what_it_waits_for() {
    let missing = ["h1 (10.0.0.1)".to_owned(), "h2 (10.0.0.2)".to_owned()];
    let said = waits_for(&[], &missing);
    assert!(said.contains("a connection to a member"), "{said}");
    assert!(said.contains("h1 (10.0.0.1), h2 (10.0.0.2)"), "{said}");
    let said = waits_for(&["h1"], &missing[1..]);
    assert!(said.contains("waits for the configuration from h1;"), "{said}");
}
