//! End of the data process.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::*;

/// Tells the test program that it is the process which ends.
const ENDS: &str = "SLUICE_TEST_WORKER_ENDS";

/// Runs two workers in threads of a process of their own. One of the workers never ends by itself.
fn ends(test: &str) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("data::tests::{test}"), "--nocapture"])
        .env(ENDS, test)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("the process goes on without one of its workers");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn beside_one_that_runs(run: impl FnOnce() -> std::io::Result<()> + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| drained_or_end(run));
        loop {
            std::thread::park();
        }
    })
}

#[test]
fn a_worker_that_panics_ends_the_process() {
    if std::env::var_os(ENDS).is_some() {
        return beside_one_that_runs(|| panic!("on purpose"));
    }
    let status = ends("a_worker_that_panics_ends_the_process");
    assert_eq!(status.signal(), Some(signal_hook::consts::SIGABRT));
}

#[test]
fn a_worker_that_cannot_wait_ends_the_process() {
    if std::env::var_os(ENDS).is_some() {
        return beside_one_that_runs(|| Err(std::io::Error::other("on purpose")));
    }
    assert_eq!(ends("a_worker_that_cannot_wait_ends_the_process").code(), Some(1));
}
