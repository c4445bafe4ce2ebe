//! A data process that hangs: it runs, and answers nothing.
//!
//! ```text
//!   every second: pulse ─▶ every worker ─▶ answer
//!     none within `data_hung_ms`: it is traced ─▶ logged once, waited for
//!                                 otherwise    ─▶ killed, and replaced like any that ended
//! ```

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::child::Link;
use crate::ipc::protocol::{self, Done, Request};
use crate::sys::log::say;
use crate::sys::threads::spawn;

/// Time between two questions.
const BEAT: Duration = Duration::from_secs(1);

struct Pulse {
    run_dir: PathBuf,
    pid: u32,
    process: OwnedFd,
    limit: Duration,
    stream: Option<UnixStream>,
}

/// Watches a data process in a thread, until it ends. A `limit` of zero disables this.
pub(super) fn watch(link: &Link, run_dir: &Path, limit: Duration) -> anyhow::Result<()> {
    if limit.is_zero() {
        return Ok(());
    }
    let process = link.process()?;
    let (run_dir, pid) = (run_dir.to_owned(), link.hello.pid);
    let pulse = Pulse { run_dir, pid, process, limit, stream: None };
    spawn("pulse", move || pulse.run())
}

impl Pulse {
    fn run(mut self) {
        let mut said = false;
        let mut alive = Instant::now();
        loop {
            std::thread::sleep(BEAT);
            if self.has_ended() {
                return;
            }
            match self.ask() {
                Ok(true) => {
                    (said, alive) = (false, Instant::now());
                    continue;
                }
                // The process reports that a worker does not answer.
                Ok(false) if alive.elapsed() >= self.limit => {}
                Err(error) if is_silence(&error) => {}
                _ => continue,
            }
            if self.has_ended() {
                return;
            }
            if is_traced(self.pid) {
                if !said {
                    said = true;
                    let pid = self.pid;
                    say!(warn: "data process {pid} does not answer, and is traced: it is left");
                }
                continue;
            }
            say!(
                error: "data process {} did not answer for {:?}: it hangs, and is killed",
                self.pid,
                self.limit
            );
            _ = pidfd_send_signal(&self.process, Signal::KILL);
            return;
        }
    }

    /// Returns true if all workers answer. An error means silence, or that the process cannot be
    /// reached.
    fn ask(&mut self) -> io::Result<bool> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => protocol::connect_within(&self.run_dir, self.limit)?,
        };
        // After an error the stream is not used again: the answer may still come.
        let line = protocol::ask(stream.try_clone()?, &Request::Pulse)?;
        self.stream = Some(stream);
        Ok(protocol::expect::<Done>(&line).is_ok())
    }

    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Returns true if a debugger or `strace` traces the process (proc_pid_status(5)).
fn is_traced(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    tracer(&text).is_some_and(|tracer| tracer != 0)
}

fn tracer(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests;
