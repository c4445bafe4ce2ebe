//! Network namespaces for hosts and peers, removed in any case.
//!
//! A namespace is named after the process of the benchmark that made it. By this name [`sweep`]
//! finds and removes the namespaces of benchmarks that were killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
pub(crate) use sluice_netns::{Netns, cable, is_installed, run, veth_pair};

/// Prefix of the names of all namespaces and folders.
const PREFIX: &str = "sluice-b-";
/// Time limit of an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a condition that must become true; checks it every millisecond.
pub(crate) fn wait_for(
    what: &str,
    mut happened: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let pause = || {
        std::thread::sleep(Duration::from_millis(1));
        anyhow::Ok(())
    };
    let happens = sluice_netns::wait(PATIENCE, pause, || Ok(happened()?.then_some(())))?;
    happens.with_context(|| format!("not within {PATIENCE:?}: {what}"))
}

/// Returns the reason why nothing can be measured between namespaces here; `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let missing = ["ip", "bridge", "ethtool"].into_iter().find(|tool| !is_installed(tool));
    missing.map(|tool| format!("`{tool}` is not installed (scripts/setup.sh bench)"))
}

/// The namespaces and the folder of one benchmark. All processes in them end when this is dropped.
pub(crate) struct Net {
    name: String,
    dir: PathBuf,
    namespaces: Vec<Netns>,
}

impl Net {
    /// Makes an empty network.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(crate) fn new(word: &str) -> anyhow::Result<Self> {
        let name = format!("{PREFIX}{}-{word}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { name, dir, namespaces: Vec::new() })
    }

    /// Returns the folder of its files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a namespace, without IPv6, so that the kernel sends nothing by itself.
    ///
    /// # Errors
    /// If the namespace cannot be made.
    pub(crate) fn netns(&mut self, word: &str) -> anyhow::Result<Netns> {
        let netns = Netns::create(&format!("{}-{word}", self.name))?;
        self.namespaces.push(netns.clone());
        Ok(netns)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for netns in &self.namespaces {
            take_away(netns.name());
        }
        _ = fs::remove_dir_all(&self.dir);
    }
}

/// Kills the processes in a namespace, and deletes it.
fn take_away(name: &str) {
    for line in run(&format!("ip netns pids {name}")).unwrap_or_default().lines() {
        if let Some(pid) = line.trim().parse().ok().and_then(Pid::from_raw) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
    // The namespace does not exist if making it failed.
    _ = run(&format!("ip netns del {name}"));
}

/// Removes the namespaces and folders of benchmarks that were killed.
pub(crate) fn sweep() {
    let is_left = |name: &str| {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    for line in run("ip netns list").unwrap_or_default().lines() {
        if let Some(name) = line.split_whitespace().next().filter(|name| is_left(name)) {
            eprintln!("{name} was left behind: it is taken away");
            take_away(name);
        }
    }
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if is_left(&entry.file_name().to_string_lossy()) {
            _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Sends a signal to a process that was started here.
///
/// # Errors
/// If the process is gone.
pub(crate) fn signal(child: &std::process::Child, signal: Signal) -> anyhow::Result<()> {
    match kill_process(Pid::from_child(child), signal) {
        Ok(()) => Ok(()),
        Err(error) => bail!("process {} takes no signal: {error}", child.id()),
    }
}
