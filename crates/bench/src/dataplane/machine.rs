//! Resources of the machine for the measurements, and their release.
//!
//! Huge pages and priority are taken for the time of a benchmark. A shell that waits for the end of
//! its input gives them back, in whatever way the benchmark ends. Programs started by a benchmark
//! die with it (`setpriv --pdeathsig`), and so do their TAPs, in a network namespace without a
//! name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The core of the switches.
pub(super) const SWITCH_CORE: usize = 1;
/// The core of all guests.
pub(super) const GUEST_CORE: usize = 0;
/// Number of pages of 2 MiB, enough for one switch and sixteen guests.
const HUGE_PAGES: u64 = 512;
const NR_HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const COMPACT_MEMORY: &str = "/proc/sys/vm/compact_memory";
const AUTOGROUP: &str = "/proc/self/autogroup";
/// Time limit for a child to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(3);
/// The highest priority.
const NICE: i32 = -20;

/// Returns the reason why nothing can be measured here; `None` if it can.
pub(super) fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("huge pages and priorities need root".to_owned());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Some("one core for the switch and one for the guests are needed".to_owned());
    }
    let missing =
        ["setpriv", "taskset", "unshare", "nsenter", "ip"].into_iter().find(|t| !is_installed(t));
    missing.map(|tool| format!("`{tool}` is not installed (Debian: util-linux, iproute2)"))
}

/// Returns true if a program is installed.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder: PathBuf| folder.join(program).is_file())
}

/// The prepared machine; dropping this releases everything.
pub(super) struct Machine {
    dir: PathBuf,
    keeper: Child,
}

impl Machine {
    /// Takes huge pages, priority and a folder.
    ///
    /// # Errors
    /// If there are not enough huge pages, or no folder.
    pub(super) fn take() -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("sluice-dp-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let before =
            fs::read_to_string(NR_HUGE_PAGES).context("reading the number of huge pages")?;
        let before: u64 = before.trim().parse()?;
        let script = r#"read -r line; echo "$1" > "$2"; rm -rf "$3"
            [ -z "$4" ] || echo "$4" > /proc/self/autogroup"#;
        let autogroup = autogroup();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script, "keeper", &before.to_string(), NR_HUGE_PAGES]).arg(&dir);
        keeper.arg(autogroup.as_deref().unwrap_or(""));
        // A process group of its own: a signal that interrupts the benchmark does not reach the
        // shell.
        std::os::unix::process::CommandExt::process_group(&mut keeper, 0);
        let keeper = keeper.stdin(Stdio::piped()).spawn().context("cannot start sh")?;
        let machine = Self { dir, keeper };
        let reserve = || {
            let free = free_huge_pages();
            if free < HUGE_PAGES {
                fs::write(NR_HUGE_PAGES, (before + HUGE_PAGES - free).to_string())?;
            }
            anyhow::Ok(free_huge_pages())
        };
        if reserve()? < HUGE_PAGES {
            // Memory is fragmented: the page cache is dropped, and memory is compacted.
            fs::write(DROP_CACHES, "3").and_then(|()| fs::write(COMPACT_MEMORY, "1"))?;
        }
        let free = reserve()?;
        ensure!(
            free >= HUGE_PAGES,
            "only {free} of {HUGE_PAGES} huge pages of 2 MiB are to be had: end programs that use \
             much memory"
        );
        if autogroup.is_some() {
            // Otherwise builds of another session have the same right to the cores as this one,
            // whatever their niceness.
            fs::write(AUTOGROUP, NICE.to_string()).context("raising the session's priority")?;
        }
        rustix::process::setpriority_process(None, NICE).context("raising the priority")?;
        Ok(machine)
    }

    /// Returns the folder for sockets, configurations and logs.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        _ = self.keeper.wait();
    }
}

/// Returns the niceness of this session, if the kernel keeps one.
fn autogroup() -> Option<String> {
    let text = fs::read_to_string(AUTOGROUP).ok()?;
    text.split_whitespace().last().map(str::to_owned)
}

fn free_huge_pages() -> u64 {
    let text = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Returns a command on the switch's core that dies with this process. Its output goes into a file.
///
/// # Errors
/// If the file cannot be made.
pub(super) fn program(dir: &Path, name: &str, own_net: bool) -> anyhow::Result<Command> {
    let log = fs::File::create(dir.join(format!("{name}.log")))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", "taskset", "-c", &SWITCH_CORE.to_string()]);
    if own_net {
        command.args(["unshare", "--net", "--"]);
    }
    command.stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

/// A child that ends when this is dropped. It gets SIGTERM first, so that it can end its own
/// children.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + END_MAX;
        while Instant::now() < until {
            if !self.is_alive() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Running {
    /// Returns true if the child has not ended by itself.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Returns its process id.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// Returns the processor time of a process and its children, all threads, in seconds.
///
/// # Errors
/// If the process is gone.
pub(super) fn processor_seconds(pid: u32) -> anyhow::Result<f64> {
    let mut ticks = Stat::of(pid)?.ticks;
    for entry in fs::read_dir("/proc")? {
        let Some(other) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Other processes may end meanwhile.
        let Ok(stat) = Stat::of(other) else { continue };
        if stat.parent == pid {
            ticks += stat.ticks;
        }
    }
    let per_second = rustix::param::clock_ticks_per_second();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let seconds = ticks as f64 / per_second as f64;
    Ok(seconds)
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    /// Processor time.
    ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in brackets may have blanks (proc(5): ppid is field 4, utime 14, stime 15).
        let rest = text.rsplit_once(") ").context("a process has a state")?.1;
        let field = |n: usize| rest.split(' ').nth(n - 3).context("a process has times");
        let ticks = field(14)?.parse::<u64>()? + field(15)?.parse::<u64>()?;
        Ok(Self { parent: field(4)?.parse()?, ticks })
    }
}
