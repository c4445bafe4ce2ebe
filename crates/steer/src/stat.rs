//! Use of every core, from `/proc/stat`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use anyhow::Context;
use sluice_placement::Share;

/// Ticks of a second, as `/proc/stat` counts on every architecture (`USER_HZ`).
const TICKS: u64 = 100;

/// Ticks of one core since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    kernel: u64,
    softirq: u64,
}

/// Use of a core in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreTime {
    /// Programs, including machines.
    pub(crate) user: Share,
    /// The kernel, outside of soft interrupts, including the threads of CPU maps.
    pub(crate) kernel: Share,
    pub(crate) softirq: Share,
}

/// Reader of `/proc/stat`.
#[derive(Debug)]
pub(crate) struct Cores {
    last: BTreeMap<u16, Ticks>,
    at: Instant,
}

impl Cores {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { last: read()?, at: Instant::now() })
    }

    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.last.keys().copied().collect()
    }

    /// Use of each core since the last look. A core that came meanwhile has none yet.
    pub(crate) fn look(&mut self) -> anyhow::Result<BTreeMap<u16, CoreTime>> {
        let (now, at) = (read()?, Instant::now());
        let period = u64::try_from((at - self.at).as_nanos()).unwrap_or(u64::MAX);
        let share = |ticks: u64| Share::of_period(ticks * 1_000_000_000 / TICKS, period);
        let did = now.iter().map(|(core, new)| {
            let old = self.last.get(core).copied().unwrap_or(*new);
            let did = CoreTime {
                user: share(new.user.saturating_sub(old.user)),
                kernel: share(new.kernel.saturating_sub(old.kernel)),
                softirq: share(new.softirq.saturating_sub(old.softirq)),
            };
            (*core, did)
        });
        let did = did.collect();
        (self.last, self.at) = (now, at);
        Ok(did)
    }
}

fn read() -> anyhow::Result<BTreeMap<u16, Ticks>> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    Ok(parse(&text))
}

/// The lines `cpuN user nice system idle iowait irq softirq …` (proc(5)).
fn parse(text: &str) -> BTreeMap<u16, Ticks> {
    let core = |line: &str| {
        let mut words = line.split_whitespace();
        let core: u16 = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let fields: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or(0);
        // Without `nice`: niced programs make way.
        let (user, kernel) = (field(0), field(2) + field(5));
        Some((core, Ticks { user, kernel, softirq: field(6) }))
    };
    text.lines().filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_a_line() {
        let text =
            "cpu  9 9 9 9 9 9 9\ncpu0 10 1 20 300 4 5 6 0 0 0\ncpu12 1 0 0 0 0 0 0\nintr 5\n";
        let cores = parse(text);
        assert_eq!(cores.len(), 2);
        assert_eq!(cores[&0], Ticks { user: 10, kernel: 25, softirq: 6 });
        assert_eq!(cores[&12].user, 1);
    }

    #[test]
    fn this_machine_has_cores() {
        let mut cores = Cores::new().unwrap();
        assert!(!cores.numbers().is_empty());
        assert_eq!(cores.look().unwrap().len(), cores.numbers().len());
    }
}
