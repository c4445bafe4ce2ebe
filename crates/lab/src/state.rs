//! The objects of a lab, on disk, so that they can be removed whatever happens to the program.
//!
//! `/run/sluice-lab/LAB/state.json` is written *before* each object is made: the names of the
//! namespaces before the first of them, a process before it is released (it waits for a word on its
//! standard input, see [`crate::daemons`]). Objects that are not in a state file are never touched,
//! and a process is only signalled if its start time is the recorded one.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use sluice_api::config::Policy;

use crate::netns;
use crate::plan::{RUN_ROOT, run_dir};

/// Time limit for a daemon to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// Number of, and gap between, further searches for namespaces that appeared late.
const LATE_LOOKS: u32 = 10;
const LATE_LOOK: Duration = Duration::from_millis(20);

/// A process, recognised by its start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its role.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start: u64,
}

/// All objects of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Name of the lab.
    pub lab: String,
    /// The process that runs the lab; `None`: the lab runs by itself until `lab down`.
    pub owner: Option<Process>,
    /// Policy of its daemons.
    pub policy: Policy,
    /// Its namespaces.
    pub netns: Vec<String>,
    /// Its processes.
    pub processes: Vec<Process>,
}

impl Process {
    /// Returns the process of that number, if there is one.
    #[must_use]
    pub fn find(name: &str, pid: i32) -> Option<Self> {
        stat(pid).map(|stat| Self { name: name.to_owned(), pid, start: stat.start })
    }

    /// Returns true if the process still runs. A zombie does not.
    #[must_use]
    pub fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && stat.state != 'Z')
    }
}

/// The used fields of `/proc/PID/stat`.
struct Stat {
    state: char,
    group: i32,
    start: u64,
    /// Processor time of the process, of user and of kernel, in clock ticks.
    ticks: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The name of the program stands in brackets and may hold anything,
/// brackets too.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
    })
}

impl State {
    /// Returns the path of a lab's state file.
    #[must_use]
    pub fn path(lab: &str) -> PathBuf {
        run_dir(lab).join("state.json")
    }

    /// Reads the state of a lab; `None`: there is no such lab.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no state file.
    pub fn load(lab: &str) -> anyhow::Result<Option<Self>> {
        let path = Self::path(lab);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let state = serde_json::from_str(&text);
                state.map(Some).with_context(|| format!("{} is damaged", path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Reads the states of all labs of this machine.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let Ok(folders) = std::fs::read_dir(RUN_ROOT) else { return Ok(Vec::new()) };
        let mut states = Vec::new();
        for folder in folders.flatten() {
            states.extend(Self::load(&folder.file_name().to_string_lossy())?);
        }
        states.sort_by(|a: &Self, b| a.lab.cmp(&b.lab));
        Ok(states)
    }

    /// Writes the state atomically: the file is the old one or the new one, never half of one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self) -> anyhow::Result<()> {
        let path = Self::path(&self.lab);
        let fresh = path.with_extension("new");
        let text = serde_json::to_string_pretty(self)?;
        let write = || {
            std::fs::write(&fresh, text)?;
            std::fs::rename(&fresh, &path)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// Ends every process and deletes every namespace of the lab, then forgets it. An object that
    /// is already gone is no error.
    ///
    /// # Errors
    ///
    /// A part of the lab is still there. Its state file is kept, so that the call can be repeated.
    pub fn take_down(&self) -> anyhow::Result<()> {
        end(&self.processes, &self.netns);
        netns::delete(&self.netns)?;
        if self.owner.as_ref().is_some_and(|owner| !owner.alive()) {
            // The owner was killed. Its child `ip`, which outlives it, may still make namespaces.
            for _ in 0..LATE_LOOKS {
                std::thread::sleep(LATE_LOOK);
                netns::delete(&self.netns)?;
            }
        }
        let left: Vec<&str> =
            self.processes.iter().filter(|p| p.alive()).map(|p| p.name.as_str()).collect();
        if !left.is_empty() {
            bail!("still running: {}", left.join(", "));
        }
        match std::fs::remove_file(Self::path(&self.lab)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("removing the state file")
            }
            _ => Ok(()),
        }
    }
}

/// Terminates processes, waits, and kills the ones that remain.
pub(crate) fn end(processes: &[Process], namespaces: &[String]) {
    let alive = || processes.iter().filter(|process| process.alive());
    for process in alive() {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while alive().next().is_some() && Instant::now() < deadline {
        reap(processes);
        std::thread::sleep(Duration::from_millis(5));
    }
    // Each process leads a process group of its own, so its children end with it.
    for process in alive() {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    for pid in orphans(processes, namespaces) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let deadline = Instant::now() + PATIENCE;
    while alive().next().is_some() && Instant::now() < deadline {
        reap(processes);
        std::thread::sleep(Duration::from_millis(5));
    }
    reap(processes);
}

/// Takes the exit status of child processes, so that none stays a zombie.
fn reap(processes: &[Process]) {
    for pid in processes.iter().filter_map(|process| Pid::from_raw(process.pid)) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    }
}

/// Returns the processor time that the process groups of these leaders have used so far, in clock
/// ticks. Members that have ended do not count.
pub(crate) fn processor_ticks(leaders: &[Process]) -> u64 {
    let Ok(folders) = std::fs::read_dir("/proc") else { return 0 };
    let pids = folders.flatten().filter_map(|f| f.file_name().to_str()?.parse::<i32>().ok());
    let is_own = |stat: &Stat| {
        leaders.iter().any(|leader| leader.pid == stat.group && leader.start <= stat.start)
    };
    pids.filter_map(stat).filter(is_own).map(|stat| stat.ticks).sum()
}

/// Returns the members of the lab's process groups without a leader: processes in one of the lab's
/// namespaces that started after the leader.
fn orphans(processes: &[Process], namespaces: &[String]) -> Vec<Pid> {
    let ours: Vec<(u64, u64)> =
        namespaces.iter().filter_map(|name| netns::identity(&netns::path(name))).collect();
    let Ok(folders) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = folders.flatten().filter_map(|f| f.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| {
        let Some(stat) = stat(pid) else { return false };
        let leads = |p: &Process| p.pid == stat.group && p.start <= stat.start;
        let inside = || {
            let own = netns::identity(Path::new(&format!("/proc/{pid}/ns/net")));
            own.is_some_and(|own| ours.contains(&own))
        };
        stat.state != 'Z' && processes.iter().any(leads) && inside()
    })
    .filter_map(Pid::from_raw)
    .collect()
}

/// The right to change a lab, as a file lock. It ends with the value, or with the program.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a lab, and makes its run directory.
    pub(crate) fn take(lab: &str) -> anyhow::Result<Self> {
        let folder = run_dir(lab);
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another sluice works on lab {lab} at this moment")
            }
            Err(error) => Err(error).context("locking the lab"),
        }
    }
}

#[cfg(test)]
mod tests;
