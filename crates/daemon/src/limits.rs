//! Limits of the process that the program raises itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of a process beside those of its ports.
const BESIDE: u64 = 128;
/// Descriptors of a TAP: its queue, the copy that is lent to control, and netlink.
const OF_A_TAP: u64 = 3;

/// Allows this process as many descriptors as it may allow itself: shells and service managers give
/// it 1,024 for the sake of `select(2)`, which it does not use. Returns how many ports that is.
pub(crate) fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(BESIDE) / OF_A_TAP)
}
