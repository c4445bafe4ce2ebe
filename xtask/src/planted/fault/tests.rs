use super::*;

const PATH: &str = "planted/base-some-fault.patch";

#[test]
fn the_header_ends_where_the_diff_begins() {
    let text = "# fault: one bit\n#   too many\n# caught by: cargo test -p sluice-base bits\n\
                --- a/x.rs\n+++ b/x.rs\n# fault: not this\n";
    let fault = parse(Path::new(PATH), text).unwrap();
    assert_eq!(fault.name, "base-some-fault");
    assert_eq!(fault.what, "one bit too many");
    assert_eq!(fault.test, ["cargo", "test", "-p", "sluice-base", "bits"]);
}

#[test]
fn both_lines_are_needed_and_only_cargo_test_can_catch() {
    for text in [
        "--- a/x.rs\n",
        "# fault: a\n",
        "# caught by: cargo test x\n",
        "# fault: a\n# caught by: rm -rf x\n",
        "# fault: a\n# caught by: cargo run\n",
    ] {
        assert!(parse(Path::new(PATH), text).is_err(), "{text}");
    }
}
