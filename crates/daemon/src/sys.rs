//! The processes' own dealings with the kernel: clock, log, poller, descriptors, privileges, and
//! the directory of a host.

pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod marked;
pub(crate) mod notify;
pub(crate) mod peer;
pub(crate) mod poller;
pub(crate) mod privileges;
pub mod run_dir;
#[cfg(feature = "processes")]
pub(crate) mod seccomp;
pub(crate) mod taps;
pub(crate) mod threads;
pub(crate) mod veths;
