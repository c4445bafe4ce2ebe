//! The daemons of a lab: start, wait until ready, query, stop.
//!
//! A daemon is started as a shell that waits for a word on its standard input and then becomes `ip
//! netns exec NS sluice daemon …`. The lab writes the process to the state file first and then
//! sends the word. If the lab dies in between, the shell sees the end of its input and ends. So
//! every daemon that runs is on record. (`ip netns exec` also gives it the `/sys` of its
//! namespace.)

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_api::config::{Policy, PortKind};

use crate::interrupt;
use crate::members;
use crate::plan::Plan;
use crate::scenario::Scenario;
use crate::settings::Settings;
use crate::show::{self, Snapshot};
use crate::state::{self, Process, State};

/// Time limit for a daemon to answer after its start.
const READY: Duration = Duration::from_secs(15);
/// Time limit for frames to leave the lab after the last query.
const DRAIN: Duration = Duration::from_secs(3);
/// The script of the shell: reads the word, then becomes the daemon.
const GATE: &str = "read -r word && exec ip netns exec \"$0\" \"$@\" </dev/null";

/// The running daemons of a lab.
#[derive(Debug)]
pub(crate) struct Daemons {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    name: String,
    socket: PathBuf,
    log: PathBuf,
    ports: usize,
    /// Ports of the containers and virtual machines.
    containers: Vec<String>,
    /// True if the host is a member of the fabric.
    is_member: bool,
    process: Process,
}

impl Daemons {
    /// Starts all daemons with a policy and waits until each answers.
    pub(crate) fn start(
        (plan, scenario): (&Plan, &Scenario),
        state: &mut State,
        policy: Policy,
        settings: &Settings,
        program: &Path,
    ) -> anyhow::Result<Self> {
        state.policy = policy;
        certify(plan, program)?;
        let mut daemons = Self { nodes: Vec::new() };
        for (name, netns, config) in plan.daemons(policy, settings) {
            let folder = plan.run_dir().join(&name);
            std::fs::create_dir_all(&folder)?;
            let path = folder.join("host.toml");
            members::forget(&folder)?;
            std::fs::write(&path, members::file(plan, config.clone())?)
                .with_context(|| format!("writing {}", path.display()))?;
            let socket = folder.join("show.sock");
            let _ = std::fs::remove_file(&socket);
            let log = plan.run_dir().join(format!("{name}.log"));
            let mut command = Command::new(program);
            command.args(["daemon", "--config"]).arg(&path);
            let process = launch(state, &name, &netns, &command, &log)?;
            let ports = config.ports.len() + usize::from(config.underlay.is_some());
            let is_member = config.fabric.is_some();
            let machines = [PortKind::Tap, PortKind::VhostUser];
            let own = config.ports.into_iter().filter(|port| machines.contains(&port.kind));
            let containers = own.map(|port| port.name).collect();
            daemons.nodes.push(Node { name, socket, log, ports, containers, is_member, process });
        }
        if plan.by_command {
            members::become_fabric(plan, scenario, program)?;
        }
        for node in &daemons.nodes {
            node.wait_ready()?;
        }
        // A learned endpoint is known only after its first frame.
        for node in daemons.nodes.iter().filter(|node| node.is_member && !plan.learned) {
            node.wait_for_vports(plan.containers.len())?;
        }
        Ok(daemons)
    }

    /// Ends all daemons.
    pub(crate) fn stop(self, state: &mut State) -> anyhow::Result<()> {
        let processes: Vec<Process> = self.nodes.iter().map(|node| node.process.clone()).collect();
        state::end(&processes, &state.netns);
        state.processes.retain(|known| !processes.contains(known) || known.alive());
        state.save()
    }

    /// Waits until no frame is in any switch and no container sends one. Returns true if that
    /// happens before the deadline. (Traffic between the hosts themselves never ends.)
    pub(crate) fn drain(&self) -> anyhow::Result<bool> {
        let deadline = Instant::now() + DRAIN;
        let mut before = u64::MAX;
        loop {
            let (mut resident, mut received) = (0, 0);
            for node in &self.nodes {
                for row in &node.audit()?.rows {
                    resident += row.frames.resident;
                    if node.containers.contains(&row.port) {
                        received += row.frames.received;
                    }
                }
            }
            if resident == 0 && received == before {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            before = received;
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }

    /// The socket of a host.
    pub(crate) fn socket(&self, name: &str) -> Option<&Path> {
        self.nodes.iter().find(|node| node.name == name).map(|node| node.socket.as_path())
    }

    /// Takes a snapshot of every daemon.
    pub(crate) fn snapshot(&self) -> anyhow::Result<Vec<Snapshot>> {
        self.nodes
            .iter()
            .map(|node| {
                show::snapshot(&node.name, &node.socket)
                    .with_context(|| format!("{}; {}", node.name, node.last_words()))
            })
            .collect()
    }
}

impl Node {
    fn audit(&self) -> anyhow::Result<sluice_api::show::Audit> {
        show::audit(&self.socket).with_context(|| format!("{}; {}", self.name, self.last_words()))
    }

    fn wait_ready(&self) -> anyhow::Result<()> {
        let mut seen = String::new();
        let ready = interrupt::wait(READY, || {
            match show::ports(&self.socket) {
                Ok(rows) if rows.len() >= self.ports => return Ok(Some(())),
                Ok(rows) => seen = format!("it has {} of {} ports", rows.len(), self.ports),
                Err(error) => seen = format!("{error:#}"),
            }
            if !self.process.alive() {
                bail!("the daemon of {} ended at once; {}", self.name, self.last_words());
            }
            Ok(None)
        })?;
        ready.with_context(|| {
            format!("the daemon of {} is not ready: {seen}; {}", self.name, self.last_words())
        })
    }

    /// Waits until the host knows every container of the lab. Otherwise the first frames would wait
    /// for that.
    fn wait_for_vports(&self, count: usize) -> anyhow::Result<()> {
        let mut known = 0;
        let all = interrupt::wait(READY, || {
            let rows = show::vports(&self.socket)
                .with_context(|| format!("{}; {}", self.name, self.last_words()))?;
            known = rows.len();
            Ok((known >= count).then_some(()))
        })?;
        all.with_context(|| {
            format!("{} knows {known} of {count} containers; {}", self.name, self.last_words())
        })
    }

    fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

/// Returns the end of a log, for a message.
pub(crate) fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    format!("{} ends with: {}", log.display(), lines.join(" | "))
}

/// Makes certificates for the hosts.
fn certify(plan: &Plan, program: &Path) -> anyhow::Result<()> {
    // A fabric that is made by command makes its own.
    if plan.hosts.is_empty() || plan.by_command {
        return Ok(());
    }
    let names: Vec<&str> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
    let made = sluice_netns::host::certificates(program, &plan.certificates(), &names);
    made.context("making certificates")
}

/// Starts a program in a namespace and puts it on record; its output goes to a log.
pub(crate) fn launch(
    state: &mut State,
    name: &str,
    netns: &str,
    command: &Command,
    log: &Path,
) -> anyhow::Result<Process> {
    let output = File::options().create(true).append(true).open(log)?;
    let mut child = Command::new("/bin/sh")
        .args(["-c", GATE, netns])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting the process of {name}"))?;
    let process = record(state, name, &child)?;
    if let Some(mut gate) = child.stdin.take() {
        gate.write_all(b"go\n").with_context(|| format!("letting the process of {name} go"))?;
    }
    Ok(process)
}

fn record(state: &mut State, name: &str, child: &Child) -> anyhow::Result<Process> {
    let pid = i32::try_from(child.id()).context("a process number")?;
    let process = Process::find(name, pid).context("a process that just started is gone")?;
    state.processes.push(process.clone());
    state.save()?;
    Ok(process)
}
