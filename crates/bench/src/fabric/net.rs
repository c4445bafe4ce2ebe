//! Network namespaces for hosts and peers, removed in any case.
//!
//! A namespace is named after the process of the benchmark that made it. By this name [`sweep`]
//! finds and removes the namespaces of benchmarks that were killed.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Prefix of the names of all namespaces and folders.
const PREFIX: &str = "sluice-b-";
/// Time limit of an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command line and returns its output.
pub(crate) fn run(line: &str) -> anyhow::Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().context("a command line has a program")?;
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for a condition that must become true; checks it every millisecond.
pub(crate) fn wait_for(
    what: &str,
    mut happened: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !happened()? {
        ensure!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns true if a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
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
        let netns = Netns(format!("{}-{word}", self.name));
        self.namespaces.push(netns.clone());
        run(&format!("ip netns add {}", netns.0))?;
        netns.ip("link set lo up")?;
        netns.inside(|| {
            for scope in ["all", "default"] {
                // The kernel may lack IPv6.
                _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
            }
            Ok(())
        })?;
        Ok(netns)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for netns in &self.namespaces {
            take_away(&netns.0);
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

/// A namespace.
#[derive(Clone, Debug)]
pub(crate) struct Netns(String);

impl Netns {
    /// Returns the name of the namespace.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Returns the path of the namespace's file.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.0)
    }

    /// Runs `ip` inside of the namespace.
    ///
    /// # Errors
    /// The output of `ip`.
    pub(crate) fn ip(&self, line: &str) -> anyhow::Result<String> {
        run(&format!("ip -n {} {line}", self.0))
    }

    /// Runs a command line inside of the namespace.
    ///
    /// # Errors
    /// The output of the command.
    pub(crate) fn run(&self, line: &str) -> anyhow::Result<String> {
        run(&format!("ip netns exec {} {line}", self.0))
    }

    /// Returns a command that starts a program in the namespace. `ip` execs the program: both are
    /// one process.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs `work` on a thread inside of the namespace.
    ///
    /// # Errors
    /// Errors of `work`, or one if the namespace cannot be entered.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let path = self.path();
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            thread.join().map_err(|_| anyhow!("a thread in a namespace panicked"))?
        })
    }
}

/// Lays a cable between two namespaces, both ends up. The offloads of both ends are off, so that
/// frames are as on a wire.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn cable(left: (&Netns, &str), right: (&Netns, &str)) -> anyhow::Result<()> {
    for (netns, device) in veth_pair(left, right)? {
        netns.run(&format!("ethtool -K {device} tx off tso off gso off gro off"))?;
    }
    Ok(())
}

/// Makes a pair of veth devices between two namespaces, both up, with the kernel's offloads.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn veth_pair<'a>(
    left: (&'a Netns, &'a str),
    right: (&'a Netns, &'a str),
) -> anyhow::Result<[(&'a Netns, &'a str); 2]> {
    run(&format!(
        "ip link add {} netns {} type veth peer name {} netns {}",
        left.1, left.0.0, right.1, right.0.0
    ))?;
    for (netns, device) in [left, right] {
        netns.ip(&format!("link set {device} up"))?;
    }
    Ok([left, right])
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
