//! The verdict of a test about a fault, read from the output of `cargo test`.

use std::fmt;
use std::time::Duration;

use super::scratch::Ended;

/// Verdict about a fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A test failed, after this number of seeds or cases if the test reports it.
    Caught {
        cases: Option<u64>,
    },
    /// The test passed.
    Passed,
    /// The test did not end.
    TimedOut,
    /// The test program died without a report of a failed test.
    Crashed,
    DoesNotCompile,
    DoesNotApply,
    /// The test proves nothing: it fails without any fault, too, or it does not exist.
    TestIsNoGood,
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
            Self::TestIsNoGood => write!(f, "NOT CAUGHT (the test is no good: see above)"),
        }
    }
}

/// Judges a run of the test with the fault applied.
pub(super) fn of(ended: &Ended) -> Verdict {
    if ended.success {
        Verdict::Passed
    } else if ended.timed_out {
        Verdict::TimedOut
    } else if !compiled(&ended.output) {
        Verdict::DoesNotCompile
    } else if ended.output.contains("test result: FAILED") {
        Verdict::Caught { cases: cases(&ended.output) }
    } else {
        Verdict::Crashed
    }
}

/// Returns true if cargo started to run tests. A compiler's message that quotes such a line has a
/// line number before it.
fn compiled(output: &str) -> bool {
    output.lines().any(|line| line.trim_start().starts_with("Running "))
}

/// Returns the reported run time of the tests: `finished in 1.23s`. Zero if they did not end.
pub(super) fn test_time(output: &str) -> Duration {
    let results = output.lines().filter(|line| line.starts_with("test result: "));
    let times = results.filter_map(|line| {
        let (seconds, hundredths) =
            line.rsplit_once("finished in ")?.1.strip_suffix('s')?.split_once('.')?;
        let hundredths = hundredths.parse::<u64>().ok()?;
        Some(Duration::from_millis(seconds.parse::<u64>().ok()? * 1_000 + hundredths * 10))
    });
    times.sum()
}

/// Returns the number of tests that passed.
pub(super) fn tests_passed(output: &str) -> u64 {
    let counts = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    counts.filter_map(|rest| rest.split_once(" passed")?.0.parse::<u64>().ok()).sum()
}

/// Returns the number of cases, from a line `caught after N cases` of our own checkers, or
/// proptest's `successes: N`, which does not count the failed case.
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
