use super::*;

fn ended(success: bool, timed_out: bool, output: &str) -> Ended {
    Ended { success, timed_out, output: output.to_owned() }
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
