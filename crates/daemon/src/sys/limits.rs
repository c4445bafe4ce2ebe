//! Limits of the process that the program raises itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of a process beside those of its ports.
const BESIDE: u64 = 128;
/// Descriptors of a TAP: its queue, control's copy, and netlink.
const OF_A_TAP: u64 = 3;

/// Raises the limit of descriptors as far as this process may: shells and service managers set it
/// to 1,024 for the sake of `select(2)`, which this process does not use. Returns the number of
/// ports that the limit allows.
pub(crate) fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    ports_with(limit)
}

/// Returns the number of ports that a limit of descriptors allows.
pub(crate) fn ports_with(limit: Option<u64>) -> u64 {
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(BESIDE) / OF_A_TAP)
}
