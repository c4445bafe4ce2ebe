//! Use of the machine's cores during a cell: by the lab's own processes, by all, and what a
//! hypervisor took.
//!
//! The work of the kernel for a frame is its sender's, except for interrupts and kernel threads:
//! these, and the program that runs the lab, are in `busy` and not in `own`.

use sluice_api::results::Row;

use crate::state::{Process, processor_ticks};

/// Time of all cores since the start of the machine, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// All time, of all cores together.
    all: u64,
    /// Time in which a core did something.
    busy: u64,
    /// Time that the hypervisor gave to others.
    stolen: u64,
    /// Time of the lab's processes.
    own: u64,
}

impl Cores {
    /// Reads the times; `own` leads the lab's process groups. None where `/proc` has none.
    pub(crate) fn read(own: &[Process]) -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&text, processor_ticks(own))
    }

    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq,
    /// steal.
    /// The times of guests, which follow, are in those of users already.
    fn parse(text: &str, own: u64) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = fields[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self { all: busy + idle + iowait + stolen, busy, stolen, own })
    }

    /// Returns the row of a cell that ended at `after`: the busy part of the cores, with the others
    /// beside it. None for a cell shorter than a tick.
    pub(crate) fn row_until(&self, after: &Self) -> Option<Row> {
        let all = after.all.checked_sub(self.all).filter(|&all| all > 0)?;
        let part = |from: u64, to: u64| {
            let ticks = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
            f64::from(ticks) / f64::from(u32::try_from(all).unwrap_or(u32::MAX))
        };
        let row = Row::new("lab.cores", "sluice", "ratio", vec![part(self.busy, after.busy)]);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Some(
            row.with("own", part(self.own, after.own))
                .with("stolen", part(self.stolen, after.stolen))
                .with("cores", cores),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::number;

    #[test]
    fn parts_of_cores_follow_from_ticks() {
        let before = Cores::parse("cpu  10 0 10 70 5 1 4 0 9 0\ncpu0 1", 8).unwrap();
        let after = Cores::parse("cpu  60 0 30 90 5 1 14 10 99 0\n", 58).unwrap();
        // 110 ticks: 50 user, 20 system, 10 softirq, 20 idle, 10 stolen.
        let row = before.row_until(&after).unwrap();
        assert!((row.median - 80.0 / 110.0).abs() < 1e-9, "{row:?}");
        assert!((number(&row, "own").unwrap() - 50.0 / 110.0).abs() < 1e-9, "{row:?}");
        assert!((number(&row, "stolen").unwrap() - 10.0 / 110.0).abs() < 1e-9, "{row:?}");
        assert!(before.row_until(&before).is_none());
        assert!(Cores::parse("cpu  1 2 3\n", 0).is_none());
    }

    #[test]
    fn processor_time_of_group_grows_with_work() {
        let mut child = std::process::Command::new("/bin/sh");
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        let mut child = child.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Process::find("loop", pid).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut used = 0;
        while used < 3 && std::time::Instant::now() < deadline {
            used = processor_ticks(std::slice::from_ref(&process));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(used >= 3, "{used}");
        assert_eq!(processor_ticks(&[]), 0);
    }
}
