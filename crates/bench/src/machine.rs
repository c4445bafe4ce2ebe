//! The machine of the measurements.

use std::fs;
use std::process::Command;

use rustix::time::{ClockId, clock_gettime};

/// Describes the machine in one line.
pub(crate) fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpuinfo
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(": ").nth(1))
            .unwrap_or("unknown")
            .to_owned()
    };
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {cores} cores, kernel {}", field("model name"), kernel.trim())
}

/// Returns the commit of the work tree, `unknown` outside a repository.
pub(crate) fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    output
        .ok()
        .filter(|o| o.status.success())
        .map_or_else(|| "unknown".to_owned(), |o| String::from_utf8_lossy(&o.stdout).trim().into())
}

/// Returns the processor time of this thread in seconds: other programs on the same core do not
/// count.
pub(crate) fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    seconds
}
