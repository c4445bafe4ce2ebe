use super::*;

const PATH: &str = "planted/base-some-fault.patch";

#[test]
fn the_header_ends_where_the_diff_begins() {
    let text = "# fault: one bit\n#   too many\n# caught by: cargo test -p sluice-base --lib bits\n\
                --- a/x.rs\n+++ b/x.rs\n# fault: not this\n";
    let fault = parse(Path::new(PATH), text).unwrap();
    assert_eq!(fault.name, "base-some-fault");
    assert_eq!(fault.what, "one bit too many");
    assert_eq!(fault.test.package, "sluice-base");
    assert_eq!(fault.test.target, Target::Lib);
    assert_eq!(fault.test.to_string(), "cargo test -p sluice-base --lib bits");
}

#[test]
fn a_command_names_package_target_and_test() {
    let good = "cargo test -p sluice-sim --test swarm checkers -- --include-ignored";
    assert_eq!(Test::parse(good).unwrap().to_string(), good);
    assert_eq!(Test::parse(good).unwrap().target, Target::Test("swarm".to_owned()));
    for bad in [
        "cargo test",
        "cargo test -p sluice-sim",
        "cargo test -p sluice-sim checkers",
        "cargo test -p sluice-sim --lib",
        "cargo test -p sluice-sim --lib -- checkers",
        "cargo test -p sluice-sim --test swarm",
        "cargo test --lib checkers",
        "cargo run -p sluice-sim --lib checkers",
    ] {
        assert_eq!(Test::parse(bad), None, "{bad}");
    }
}

#[test]
fn what_shares_a_program_is_known() {
    let test = |text| Test::parse(text).unwrap();
    let one = test("cargo test -p a --lib x");
    assert!(one.same_program(&test("cargo test -p a --lib y")));
    assert!(!one.same_program(&test("cargo test -p b --lib x")));
    assert!(!one.same_program(&test("cargo test -p a --test lib x")));
}

#[test]
fn fault_header_needs_both_lines_and_cargo_test() {
    for text in [
        "--- a/x.rs\n",
        "# fault: a\n",
        "# caught by: cargo test -p a --lib x\n",
        "# fault: a\n# caught by: rm -rf x\n",
        "# fault: a\n# caught by: cargo run\n",
    ] {
        assert!(parse(Path::new(PATH), text).is_err(), "{text}");
    }
}
