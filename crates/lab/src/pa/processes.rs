//! The workers and the aggregator as processes in their namespaces.
//!
//! Each holds the other end of a pipe to this program and ends when that is closed, so that none
//! outlives a program that was killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{Job, PORT, Report};
use crate::plan::Container;
use crate::state::{Process, State};
use crate::{interrupt, netns};

/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(10);

/// A process of the workload. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Role {
    name: String,
    child: Child,
    lines: Receiver<String>,
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
        let output = child.stdout.take().context("a pipe")?;
        let (sender, lines) = sync_channel(64);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { name, child, lines })
    }

    /// The next line that it says.
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

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    let pid = |role: &Role| i32::try_from(role.child.id()).ok();
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
    /// Starts it.
    pub(crate) fn start(
        container: &Container,
        state: &mut State,
        program: &Path,
    ) -> anyhow::Result<Self> {
        let role = Role::start(container, program, &["__aggregator".to_owned()])?;
        record(state, std::slice::from_ref(&role))?;
        let aggregator = Self { role };
        match aggregator.report(READY)? {
            Report::Ready => Ok(aggregator),
            other => bail!("the aggregator begins with {other:?}"),
        }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.role.pid()
    }

    /// Does a job. `progress` hears how many queries are done.
    pub(crate) fn run(
        &mut self,
        job: &Job,
        patience: Duration,
        progress: &mut dyn FnMut(u32),
    ) -> anyhow::Result<Report> {
        let line = serde_json::to_string(job)? + "\n";
        let input = self.role.child.stdin.as_mut().context("the aggregator's input")?;
        input.write_all(line.as_bytes()).context("giving the aggregator a job")?;
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
        serde_json::from_str(&line).with_context(|| format!("the aggregator says {line}"))
    }
}
