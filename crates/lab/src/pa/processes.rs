//! The workers and the aggregator as processes in their namespaces, or in virtual machines.
//!
//! Each process holds one end of a pipe, or of a machine's serial port, to this program. It ends
//! when the other end is closed, so that no process outlives a program that was killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{Job, PORT, Report};
use crate::interrupt;
use crate::netns;
use crate::plan::Container;
use crate::state::{Process, State};

/// Time limit for a process to become ready.
const READY: Duration = Duration::from_secs(10);

/// A process of the workload. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Role {
    name: String,
    body: Body,
    lines: Receiver<String>,
}

#[derive(Debug)]
enum Body {
    /// A child of this process.
    Child(Child),
    /// A process in a virtual machine, at the other end of the serial port.
    Far(UnixStream),
}

impl Role {
    fn start(container: &Container, program: &Path, words: &[String]) -> anyhow::Result<Self> {
        let name = format!("{} in {}", words[0], container.name);
        let mut child = netns::enter(&container.netns, || {
            Command::new(program)
                .arg("lab")
                .args(words)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .process_group(0)
                .spawn()
                .with_context(|| format!("starting {name}"))
        })?;
        let lines = lines_of(child.stdout.take().context("a pipe")?);
        Ok(Self { name, body: Body::Child(child), lines })
    }

    /// Returns a role that runs in a virtual machine.
    fn far(name: String, stream: UnixStream) -> anyhow::Result<Self> {
        let lines = lines_of(stream.try_clone().context("a second handle of a socket")?);
        Ok(Self { name, body: Body::Far(stream), lines })
    }

    fn write(&mut self, line: &str) -> anyhow::Result<()> {
        match &mut self.body {
            Body::Child(child) => {
                child.stdin.as_mut().context("its input")?.write_all(line.as_bytes())?;
            }
            Body::Far(stream) => stream.write_all(line.as_bytes())?,
        }
        Ok(())
    }

    /// Waits for the next line of output.
    fn line(&self, patience: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + patience;
        loop {
            interrupt::check()?;
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => bail!("{} ended", self.name),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    bail!("{} says nothing for {patience:?}", self.name)
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the process id; none for a process in a virtual machine.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.body {
            Body::Child(child) => Some(child.id()),
            Body::Far(_) => None,
        }
    }
}

/// Reads lines in a thread of its own.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = sync_channel(64);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl Drop for Role {
    fn drop(&mut self) {
        let child = match &mut self.body {
            Body::Child(child) => child,
            Body::Far(stream) => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        };
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Starts a worker in each container.
pub(crate) fn workers(
    containers: &[&Container],
    state: &mut State,
    program: &Path,
    congestion: &str,
) -> anyhow::Result<Vec<Role>> {
    let mut roles = Vec::new();
    for container in containers {
        let words = ["__worker", "--address", &container.ip.to_string()]
            .into_iter()
            .chain(["--port", &PORT.to_string(), "--congestion", congestion])
            .map(str::to_owned)
            .collect::<Vec<_>>();
        roles.push(Role::start(container, program, &words)?);
    }
    record(state, &roles)?;
    for role in &roles {
        role.line(READY)?;
    }
    Ok(roles)
}

fn record(state: &mut State, roles: &[Role]) -> anyhow::Result<()> {
    let pid = |role: &Role| i32::try_from(role.pid()?).ok();
    let known = roles.iter().filter_map(|role| Process::find(&role.name, pid(role)?));
    state.processes.extend(known);
    state.save()
}

/// The aggregator.
#[derive(Debug)]
pub(crate) struct Aggregator {
    role: Role,
}

impl Aggregator {
    /// Starts the aggregator of a container.
    pub(crate) fn start(
        container: &Container,
        state: &mut State,
        program: &Path,
    ) -> anyhow::Result<Self> {
        let role = Role::start(container, program, &["__aggregator".to_owned()])?;
        record(state, std::slice::from_ref(&role))?;
        let aggregator = Self { role };
        aggregator.ready(READY)?;
        Ok(aggregator)
    }

    /// Returns the aggregator of a booting virtual machine, at the other end of its serial port.
    pub(crate) fn far(name: &str, port: UnixStream) -> anyhow::Result<Self> {
        Ok(Self { role: Role::far(name.to_owned(), port)? })
    }

    /// Waits until the aggregator takes jobs.
    pub(crate) fn ready(&self, patience: Duration) -> anyhow::Result<()> {
        match self.report(patience)? {
            Report::Ready => Ok(()),
            other => bail!("{} begins with {other:?}", self.role.name),
        }
    }

    /// Runs a job. `progress` gets the number of queries done.
    pub(crate) fn run(
        &mut self,
        job: &Job,
        patience: Duration,
        progress: &mut dyn FnMut(u32),
    ) -> anyhow::Result<Report> {
        self.begin(job)?;
        self.end(patience, progress)
    }

    /// Starts a job; [`Self::end`] waits for its end.
    pub(crate) fn begin(&mut self, job: &Job) -> anyhow::Result<()> {
        let line = serde_json::to_string(job)? + "\n";
        let name = self.role.name.clone();
        self.role.write(&line).with_context(|| format!("giving {name} a job"))
    }

    /// Waits for the end of a job. `progress` gets the number of queries done.
    pub(crate) fn end(
        &mut self,
        patience: Duration,
        progress: &mut dyn FnMut(u32),
    ) -> anyhow::Result<Report> {
        loop {
            match self.report(patience)? {
                Report::Progress { queries } => progress(queries),
                Report::Failed { error } => bail!("{}: {error}", self.role.name),
                report => return Ok(report),
            }
        }
    }

    fn report(&self, patience: Duration) -> anyhow::Result<Report> {
        let line = self.role.line(patience)?;
        serde_json::from_str(&line).with_context(|| format!("{} says {line}", self.role.name))
    }
}
