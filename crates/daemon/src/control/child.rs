//! The data process from control's side: found or started, known by its connection, drained or, if
//! it does not react any more, killed.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use sluice_base::Nanos;

use super::kept::DescriptorStore;
use crate::config::{NUMBERS, Plan};
use crate::ipc::protocol::{self, Hello, Request};
use crate::sys::clock::timespec;
use crate::sys::log::say;
use crate::sys::run_dir::{self, Role};
use crate::sys::seccomp;

/// Longest time for a data process to open its ports.
const START_MAX: Duration = Duration::from_secs(20);
/// Longest time for the answer to a greeting.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Longest time to drain, of which one second is for frames.
const DRAIN_MAX: Nanos = Nanos::from_millis(5000);

/// Longest time for a process that closed its connection to be gone.
const ENDED_WITHIN: Nanos = Nanos::from_millis(1000);

/// A running data process.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) hello: Hello,
    /// Stays open: the connection ends when the process does.
    pub(super) stream: UnixStream,
    /// Refers to the process even if its number is reused.
    process: OwnedFd,
    /// The child, if this process started it.
    child: Option<RefCell<Child>>,
}

impl Link {
    pub(super) fn new(stream: UnixStream, child: Option<Child>) -> anyhow::Result<Self> {
        stream.set_read_timeout(Some(HELLO_MAX))?;
        let line = protocol::ask(stream.try_clone()?, &Request::Hello)?;
        let hello: Hello = protocol::expect(&line)?;
        let pid = i32::try_from(hello.pid).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.context("a process has a number")?, PidfdFlags::empty())?;
        Ok(Self { hello, stream, process, child: child.map(RefCell::new) })
    }

    /// Returns how it ended, if that can be known.
    pub(super) fn how_it_ended(&self) -> String {
        match self.child.as_ref().map(|child| child.borrow_mut().wait()) {
            Some(Ok(status)) => describe(status),
            _ => {
                self.reap();
                "how is not known, for it was started by an earlier control process".to_owned()
            }
        }
    }

    /// Waits until it ends; returns false if it does not within `span`.
    fn wait(&self, span: Nanos) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        let ended = poll(&mut fds, Some(&timespec(span))).is_ok_and(|count| count > 0);
        if ended {
            self.reap();
        }
        ended
    }

    /// Returns true if it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.wait(ENDED_WITHIN)
    }

    /// Returns true if it runs the program at this program's path.
    pub(super) fn runs_the_program_there(&self) -> bool {
        let id = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let its = PathBuf::from(format!("/proc/{}/exe", self.hello.pid));
        program().is_ok_and(|there| id(&there) == id(&its))
    }

    /// Reaps a process that ended, whose status does not matter.
    fn reap(&self) {
        match &self.child {
            Some(child) => _ = child.borrow_mut().wait(),
            // The process is a child of this one if that became another program since.
            None => _ = waitpid(self.pid(), WaitOptions::NOHANG),
        }
    }

    /// Returns another descriptor of the process.
    pub(super) fn process(&self) -> std::io::Result<OwnedFd> {
        self.process.try_clone()
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.hello.pid).ok().and_then(Pid::from_raw)
    }

    /// Returns true if it runs the same program as this process, even if the file of either was
    /// replaced since.
    pub(super) fn runs_this_program(&self) -> bool {
        let id = |process: &str| {
            let file = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        id(&self.hello.pid.to_string()) == id("self")
    }
}

/// Result of the search in the directory of a host.
#[derive(Debug)]
pub(super) enum Found {
    /// No data process.
    Nobody,
    /// A data process that answers.
    Running(Link),
}

/// Looks for a data process. Waits for one that is starting or about to end: the kernel may still
/// accept connections for a process that it is tearing down.
pub(super) fn find(run_dir: &Path) -> anyhow::Result<Found> {
    let until = Instant::now() + START_MAX;
    loop {
        let reason = match protocol::connect(run_dir).map(|stream| Link::new(stream, None)) {
            Ok(Ok(link)) => return Ok(Found::Running(link)),
            Ok(Err(error)) => error,
            Err(_) if !Role::is_taken(run_dir, "data") => return Ok(Found::Nobody),
            Err(error) => error.into(),
        };
        if Instant::now() > until {
            let pid = run_dir.join("data.pid");
            let (dir, pid) = (run_dir.display(), pid.display());
            return Err(reason.context(format!(
                "the data process of {dir} does not answer; `kill -9 $(cat {pid})` ends it"
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a data process and waits until it forwards.
pub(super) fn start(plan: &Plan, kept: &DescriptorStore) -> anyhow::Result<Link> {
    // The file of the operator may change; this text was checked.
    let config = plan.run_dir.join(run_dir::CONFIG_FILE);
    run_dir::replace(&config, &plan.text)
        .and_then(|()| run_dir::replace(&config.with_extension(NUMBERS), &plan.numbers.text()))
        .with_context(|| format!("cannot write {}", config.display()))?;
    let mut child = command(plan, &config, "--takes-over")?
        .stdin(Stdio::from(kept.offer()?))
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the data process")?;
    let until = Instant::now() + START_MAX;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("the data process did not start ({}); it said why above", describe(status));
        }
        // A socket that a killed process left refuses; it is replaced when the new process is
        // ready.
        if let Ok(stream) = protocol::connect(&plan.run_dir) {
            return Link::new(stream, Some(child));
        }
        if Instant::now() > until {
            _ = child.kill();
            _ = child.wait();
            bail!("the data process did not start within {} s", START_MAX.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets a data process send its held frames and end. Kills it if it does not.
pub(super) fn drain(link: Link) {
    // A signal, since the thread that watches the connection uses that.
    let asked = pidfd_send_signal(&link.process, Signal::TERM);
    if asked.is_err() || link.wait(DRAIN_MAX) {
        return;
    }
    say!(warn: "data process {} did not end in {DRAIN_MAX}: it is killed", link.hello.pid);
    _ = pidfd_send_signal(&link.process, Signal::KILL);
    link.wait(DRAIN_MAX);
}

/// Returns the command for a data process of a plan, whose text is in `config`.
pub(super) fn command(plan: &Plan, config: &Path, begins: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(program()?);
    seccomp::tell(&mut command);
    command.args(["daemon", "--role", "data", begins, "--config"]).arg(config);
    if let Some(dir) = &plan.dir {
        // The text is a copy; its relative paths are those of the operator's file.
        command.arg("--beside").arg(dir);
    }
    Ok(command)
}

/// Returns the path of this program, also if its file was replaced by a newer one since.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find this program's file")?;
    if path.exists() {
        return Ok(path);
    }
    let text = path.to_string_lossy();
    let replaced = text.strip_suffix(" (deleted)").map(PathBuf::from).filter(|path| path.exists());
    Ok(replaced.unwrap_or_else(|| PathBuf::from("/proc/self/exe")))
}

pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
