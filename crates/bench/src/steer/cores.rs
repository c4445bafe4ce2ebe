//! Usage of the cores, from `/proc/stat`.

use std::fs;

use anyhow::{Context as _, ensure};

/// Times of one core since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    all: u64,
    user: u64,
    kernel: u64,
    softirq: u64,
}

/// Shares of a core's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// Time in programs.
    pub(super) user: f64,
    /// Time in the kernel outside of soft interrupts, including the threads of CPU maps.
    pub(super) kernel: f64,
    pub(super) softirq: f64,
}

/// Reads the times of the first cores.
///
/// # Errors
/// If there are fewer cores.
pub(super) fn look<const N: usize>() -> anyhow::Result<[Times; N]> {
    let text = fs::read_to_string("/proc/stat").context("what the cores do")?;
    let mut times = [Times::default(); N];
    for (core, times) in times.iter_mut().enumerate() {
        let name = format!("cpu{core} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        let line = line.with_context(|| format!("there is no core {core}"))?;
        // user nice system idle iowait irq softirq steal (proc(5)); guests are in user already.
        let fields: Vec<u64> = line.split_whitespace().take(8).flat_map(str::parse).collect();
        ensure!(fields.len() == 8, "/proc/stat: {line}");
        let all = fields.iter().sum();
        let user = fields[0] + fields[1];
        *times = Times { all, user, kernel: fields[2], softirq: fields[6] };
    }
    Ok(times)
}

impl Times {
    /// Returns the shares since `before`.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub(super) fn since(self, before: Self) -> Shares {
        let all = (self.all - before.all).max(1) as f64;
        let share = |new: u64, old: u64| new.saturating_sub(old) as f64 / all;
        Shares {
            user: share(self.user, before.user),
            kernel: share(self.kernel, before.kernel),
            softirq: share(self.softirq, before.softirq),
        }
    }
}

/// Returns the ticks of a process, of its children and of the threads of CPU maps.
pub(super) fn of_family(pid: u32) -> u64 {
    let others = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = others.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ticks_of = |other: u32| {
        let text = fs::read_to_string(format!("/proc/{other}/stat")).ok()?;
        // The name in brackets may have blanks (proc(5): ppid is field 4, utime 14, stime 15).
        let (name, rest) = text.rsplit_once(") ")?;
        let field = |nth: usize| rest.split(' ').nth(nth - 3)?.parse::<u64>().ok();
        let is_own = other == pid || field(4)? == u64::from(pid) || name.contains("(cpumap/");
        is_own.then(|| Some(field(14)? + field(15)?)).flatten()
    };
    others.filter_map(ticks_of).sum()
}

/// Returns the usage of other programs between two samples, in cores.
#[expect(clippy::cast_precision_loss, reason = "a share for people")]
pub(super) fn of_others(before: &[Times], after: &[Times], own_ticks: u64) -> f64 {
    let sum = |of: fn(&Times) -> u64| {
        after.iter().map(of).sum::<u64>() - before.iter().map(of).sum::<u64>()
    };
    let (ran, all) = (sum(|times| times.user + times.kernel), sum(|times| times.all).max(1));
    ran.saturating_sub(own_ticks) as f64 / all as f64 * before.len() as f64
}
