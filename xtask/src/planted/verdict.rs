//! Whether a test caught a fault, read from what `cargo test` printed.

use std::fmt;

use super::scratch::Ended;

/// What became of a fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A test failed, after so many seeds or cases if it said how many.
    Caught {
        cases: Option<u64>,
    },
    /// The test passed.
    Passed,
    /// The test did not end.
    TimedOut,
    /// The test program died without saying that a test failed.
    Crashed,
    DoesNotCompile,
    DoesNotApply,
}

impl Verdict {
    pub(super) fn is_caught(&self) -> bool {
        matches!(self, Self::Caught { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught { cases: None } => write!(f, "caught"),
            Self::Caught { cases: Some(cases) } => write!(f, "caught after {cases} cases"),
            Self::Passed => write!(f, "NOT CAUGHT (the test passes: make it stricter)"),
            Self::TimedOut => write!(f, "NOT CAUGHT (the test hangs: bound its waiting)"),
            Self::Crashed => write!(f, "NOT CAUGHT (the test program crashes: let it assert)"),
            Self::DoesNotCompile => write!(f, "NOT CAUGHT (it does not compile: mend the patch)"),
            Self::DoesNotApply => write!(f, "NOT CAUGHT (it does not apply: make the patch anew)"),
        }
    }
}

/// Judges a run of the test with the fault applied.
pub(super) fn of(ended: &Ended) -> Verdict {
    if ended.success {
        Verdict::Passed
    } else if ended.timed_out {
        Verdict::TimedOut
    } else if ended.output.contains("test result: FAILED") {
        Verdict::Caught { cases: cases(&ended.output) }
    } else {
        Verdict::Crashed
    }
}

/// How many tests passed.
pub(super) fn tests_passed(output: &str) -> u64 {
    let counts = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    counts.filter_map(|rest| rest.split_once(" passed")?.0.parse::<u64>().ok()).sum()
}

/// From a line `caught after N cases` of our own checkers, or proptest's `successes: N`, which does
/// not count the one that failed.
fn cases(output: &str) -> Option<u64> {
    let number = |text: &str| {
        let digits = text.trim_start();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse::<u64>().ok()
    };
    let own = output.split_once("caught after ").and_then(|(_, rest)| number(rest));
    let proptest = output.split_once("successes: ").and_then(|(_, rest)| number(rest));
    own.or(proptest.map(|successes| successes + 1))
}

#[cfg(test)]
mod tests;
