use super::*;

/// Returns the result of a command that started to run tests.
fn ended(success: bool, timed_out: bool, output: &str) -> Ended {
    let output = format!("   Compiling x\n     Running unittests src/lib.rs (x)\n{output}");
    Ended { success, timed_out, output, time: Duration::ZERO }
}

#[test]
fn only_a_failed_test_catches() {
    let failed = "test result: FAILED. 1 passed; 1 failed";
    assert_eq!(of(&ended(false, false, failed)), Verdict::Caught { cases: None });
    assert_eq!(of(&ended(true, false, "test result: ok. 2 passed")), Verdict::Passed);
    assert_eq!(of(&ended(false, true, failed)), Verdict::TimedOut);
    assert_eq!(of(&ended(false, false, "signal: 6, SIGABRT")), Verdict::Crashed);
}

#[test]
fn what_does_not_compile_is_not_caught() {
    let output = "   Compiling x\nerror[E0308]: mismatched types\n\
                  12 |     Running test result: FAILED\nerror: could not compile `x`";
    let ended =
        Ended { success: false, timed_out: false, output: output.to_owned(), time: Duration::ZERO };
    assert_eq!(of(&ended), Verdict::DoesNotCompile);
}

#[test]
fn the_time_of_the_tests_is_read() {
    let output = "    Finished `test` profile target(s) in 12.30s\n\
                  test result: ok. 1 passed; 0 failed; finished in 61.05s\n\
                  test result: FAILED. 0 passed; 1 failed; finished in 0.20s\n";
    assert_eq!(test_time(output), Duration::from_millis(61_250));
    assert_eq!(test_time("finished in 3.00s"), Duration::ZERO);
}

#[test]
fn the_number_of_cases_is_read() {
    let own = "x\ncaught after 12 cases\ntest result: FAILED";
    assert_eq!(of(&ended(false, false, own)), Verdict::Caught { cases: Some(12) });
    let proptest = "\tsuccesses: 3\n\tlocal rejects: 0\ntest result: FAILED";
    assert_eq!(of(&ended(false, false, proptest)), Verdict::Caught { cases: Some(4) });
}

#[test]
fn passed_tests_are_summed_over_all_programs() {
    let output = "test result: ok. 2 passed; 0 failed\nx\ntest result: ok. 3 passed; 0 failed\n";
    assert_eq!(tests_passed(output), 5);
    assert_eq!(tests_passed("running 0 tests\n\ntest result: ok. 0 passed; 0 failed"), 0);
}
