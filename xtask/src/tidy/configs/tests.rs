use super::*;

#[test]
fn the_lints_table_must_take_the_workspace() {
    assert!(takes_workspace_lints("[package]\n\n[lints]\nworkspace = true\n"));
    assert!(!takes_workspace_lints("[package]\n"));
    assert!(!takes_workspace_lints("[lints]\n[dependencies]\n"));
}
