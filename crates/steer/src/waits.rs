//! Time that vCPUs wait for their core: the run-queue delay of their threads.
//!
//! The kernel counts it in `schedstat` of each thread, if it is built with `CONFIG_SCHED_INFO`, as
//! distributions do. Without it, no vCPU ever seems to lack time. Interrupts that run during a
//! vCPU's time are not included: the thread counts as running then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sluice_cpus::machines::Vcpu;
use sluice_placement::Share;

/// Reader of the delays.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Delay of each thread up to the last look, in nanoseconds; `None` before the first one.
    threads: BTreeMap<Vcpu, Option<u64>>,
}

impl Waits {
    pub(crate) fn new(threads: BTreeSet<Vcpu>) -> Self {
        let mut new = Self::default();
        new.set(threads);
        new
    }

    /// Sets the threads after machines came or went.
    pub(crate) fn set(&mut self, threads: BTreeSet<Vcpu>) {
        let before = std::mem::take(&mut self.threads);
        let last = |thread: &Vcpu| before.get(thread).copied().flatten();
        self.threads = threads.into_iter().map(|thread| (thread.clone(), last(&thread))).collect();
    }

    /// Time that the vCPUs of each core waited since the last look, all together.
    pub(crate) fn look(&mut self, period_ns: u64) -> BTreeMap<u16, Share> {
        let mut waits: BTreeMap<u16, u64> = BTreeMap::new();
        for (thread, last) in &mut self.threads {
            let text = fs::read_to_string(thread.path.join("schedstat")).unwrap_or_default();
            let now = parse(&text);
            if let (Some(now), Some(last)) = (now, *last) {
                *waits.entry(thread.core).or_default() += now.saturating_sub(last);
            }
            *last = now;
        }
        let share = |(core, ns)| (core, Share::of_period(ns, period_ns));
        waits.into_iter().map(share).collect()
    }
}

/// Parses the second number: nanoseconds on a run queue (proc(5) and the kernel's `sched-stats`).
fn parse(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(parse("123 4567 8\n"), Some(4567));
        for wrong in ["", "123", "1 x 3"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn vcpu_waits_summed_per_core_as_share() {
        let root = std::env::temp_dir().join(format!("sluice-waits-{}", std::process::id()));
        let thread = |name: &str, core| Vcpu { path: root.join(name), core };
        let write = |name: &str, text: &str| {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("schedstat"), text).unwrap();
        };
        write("1", "5 100 1");
        write("2", "5 1000 1");
        let threads = BTreeSet::from([thread("1", 3), thread("2", 3), thread("none", 4)]);
        let mut waits = Waits::new(threads);
        assert!(waits.look(1000).is_empty(), "nothing to compare with yet");
        write("1", "6 350 1");
        write("2", "6 1250 1");
        assert_eq!(waits.look(1000), BTreeMap::from([(3, Share::percent(50))]));
        fs::remove_dir_all(&root).unwrap();
        assert!(waits.look(1000).is_empty());
    }
}
