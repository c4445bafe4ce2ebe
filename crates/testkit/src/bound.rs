//! Bounds on measured time. They hold on a quiet machine only, so a test asserts them when it is
//! asked to (`SLUICE_SOAK=1`, as `make soak` does) and prints what it measured in any case.

use std::fmt::Debug;
use std::io::Write as _;

/// Returns true if this is a long run on a machine of its own: `SLUICE_SOAK` is set.
#[must_use]
pub fn is_soak() -> bool {
    std::env::var_os("SLUICE_SOAK").is_some()
}

/// Prints `seen`; panics in a soak run if it is more than `limit`.
#[track_caller]
pub fn at_most<T: PartialOrd + Debug>(what: &str, seen: T, limit: T) {
    say(what, &seen, "at most", &limit);
    assert!(!is_soak() || seen <= limit, "{what}: {seen:?}, at most {limit:?} is wanted");
}

/// Prints `seen`; panics in a soak run if it is less than `limit`.
#[track_caller]
pub fn at_least<T: PartialOrd + Debug>(what: &str, seen: T, limit: T) {
    say(what, &seen, "at least", &limit);
    assert!(!is_soak() || seen >= limit, "{what}: {seen:?}, at least {limit:?} is wanted");
}

/// Writes to standard error directly, which the test harness does not capture.
fn say<T: Debug>(what: &str, seen: &T, relation: &str, limit: &T) {
    _ = writeln!(std::io::stderr(), "{what}: {seen:?} ({relation} {limit:?} in a soak run)");
}
