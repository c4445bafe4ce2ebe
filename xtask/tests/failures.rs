//! `scripts/failures.awk` names failures, in the words of the tools that print them.

use std::io::Write;
use std::process::{Command, Stdio};

/// Relative to the folder in which cargo runs tests: cargo does not see that a file outside the
/// package has changed, so that a copy of the work tree would run the original's.
const SCRIPT: &str = "../scripts/failures.awk";
/// Two tests that fail, one of them with lines like libtest's own; a program that dies; a program
/// without failure; a doc test.
const TESTS: &str = "\
     Running unittests src/lib.rs (target/debug/deps/sluice_base-1)

running 3 tests
test ids::tests::good ... ok
test ids::tests::bad ... FAILED
test ids::tests::worse ... FAILED

failures:

---- ids::tests::bad stdout ----

thread 'ids::tests::bad' (1) panicked at crates/base/src/ids.rs:1:1:
assertion failed
failures:
    printed_by_the_test

---- ids::tests::worse stdout ----

printed 1
printed 2
printed 3
thread 'ids::tests::worse' (2) panicked at crates/base/src/ids.rs:2:1:
one
two
three
four


failures:
    ids::tests::bad
    ids::tests::worse

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out

error: test failed, to rerun pass `-p sluice-base --lib`
     Running tests/live_x.rs (target/debug/deps/live_x-1)

running 2 tests
test first ... ok
test aborts ... its last words
error: test failed, to rerun pass `-p sluice-daemon --test live_x`

Caused by:
  process didn't exit successfully: `/t/live_x-1 --include-ignored` (signal: 6, SIGABRT: abort)
     Running tests/live_y.rs (target/debug/deps/live_y-1)
test fine ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
   Doc-tests sluice_ports

failures:

---- crates/ports/src/lib.rs - (line 3) stdout ----
Test executable failed (exit status: 101).

failures:
    crates/ports/src/lib.rs - (line 3)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

error: doctest failed, to rerun pass `-p sluice-ports --doc`
error: 3 targets failed:
    `-p sluice-base --lib`
";

/// A row whose test fails.
const ROW_FAILED: &str = "     Running tests/live/main.rs (target/debug/deps/live-1)
test b ... FAILED

failures:

failures:
    b

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
error: test failed, to rerun pass `-p a --test live`
";

fn found(step: &str, settings: &[&str], log: &str) -> String {
    let step = format!("step={step}");
    let mut awk = Command::new("awk");
    awk.args(["-v", &step]);
    for setting in settings {
        awk.args(["-v", setting]);
    }
    awk.args(["-f", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut awk = awk.spawn().expect("awk");
    awk.stdin.take().expect("a pipe").write_all(log.as_bytes()).expect("it reads all");
    let output = awk.wait_with_output().expect("awk ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn failed_tests_are_named_with_their_program() {
    assert_eq!(
        found("unit", &[], TESTS),
        "\
ids::tests::bad (-p sluice-base --lib)
ids::tests::worse (-p sluice-base --lib)
aborts (-p sluice-daemon --test live_x), (signal: 6, SIGABRT: abort)
crates/ports/src/lib.rs - (line 3) (-p sluice-ports --doc)
"
    );
}

#[test]
fn panics_are_shown_up_to_a_bound() {
    let panics = found("live", &["want=panics", "lines=5"], TESTS);
    for shown in [
        "panicked at crates/base/src/ids.rs:1:1:\nassertion failed\n",
        "---- ids::tests::worse stdout ----\n    ... 2 lines before\nprinted 2\nprinted 3\n",
        "panicked at crates/base/src/ids.rs:2:1:\none\ntwo\n    ... 4 more lines\n",
        "last words of `-p sluice-daemon --test live_x`\n",
        "test aborts ... its last words\n",
        "---- crates/ports/src/lib.rs - (line 3) stdout ----\n",
    ] {
        assert!(panics.contains(shown), "{shown}is missing in:\n{panics}");
    }
    assert!(
        !panics.contains("... ok\n\ntest result"),
        "tests that passed are of no use:\n{panics}"
    );
}

#[test]
fn nothing_is_named_where_nothing_failed() {
    for step in ["fmt", "clippy", "doc", "tidy", "deny", "unit", "fuzz", "planted", "live"] {
        assert_eq!(found(step, &[], "running 1 test\ntest a ... ok\n\ntest result: ok. 1\n"), "");
    }
}

#[test]
fn each_step_has_words_of_its_own() {
    let fmt = "Diff in /r/a.rs:1:\n-x\n+y\nDiff in /r/a.rs:9:\nDiff in /r/b.rs:2:\n";
    let clippy = "error: unused\n --> a.rs:3:1\n  |\n\nerror: could not compile `a`\n\n";
    let fuzz = "fuzz target wire\n#1 INITED\nthread '<unnamed>' (1) panicked at a.rs:7:5:\n\
                boom\nTest unit written to artifacts/wire/crash-1\n";
    let planted =
        "passes: cargo test\nNOT CAUGHT (the test passes): a-fault (why)\n    command: c\n";
    let rows = format!("{ROW_FAILED}row live-b ended with 101\nrow live-c ended with 9\n");
    for (step, log, names) in [
        ("fmt", fmt, "/r/a.rs\n/r/b.rs\n"),
        ("clippy", clippy, "error: unused a.rs:3:1\nerror: could not compile `a`\n"),
        ("tidy", "error[size]: a.rs is long\ntidy size: FAILED\n", "error[size]: a.rs is long\n"),
        ("fuzz", fuzz, "wire a.rs:7:5 artifacts/wire/crash-1\n"),
        ("planted", planted, "NOT CAUGHT (the test passes): a-fault (why)\n"),
        ("unit", "error: could not compile `a` (lib)\n", "error: could not compile `a` (lib)\n"),
        // A row that is not named by its tests, and one that is.
        ("live", "test result: ok. 1\nrow live-a ended with 9\n", "row live-a ended with 9\n"),
        ("live", &rows, "b (-p a --test live)\n"),
        (
            "live",
            "the live tests left namespaces behind:\nx\n",
            "the live tests left namespaces behind:\n",
        ),
    ] {
        assert_eq!(found(step, &[], log), names, "{step}");
    }
}
