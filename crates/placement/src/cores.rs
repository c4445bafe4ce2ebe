//! Cores: their properties, and their load beside the work that is placed here.

use alloc::vec::Vec;

use crate::CoreIndex;
use crate::config::Config;
use crate::mode::Mode;
use crate::share::Share;

/// A core of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Number of the core in the kernel.
    pub number: u16,
    /// Number of the physical core of which it is a thread; cores with the same one are siblings.
    /// `None` if there is none, or it is unknown.
    pub physical: Option<u16>,
    /// Its NUMA node. `None` if it is unknown.
    pub node: Option<u16>,
    /// True if a vCPU of a running virtual machine is pinned to it.
    pub runs_vcpu: bool,
    /// True if policy gives it no work.
    pub excluded: bool,
}

/// vCPUs starve if they waited for at least this share of a period, and ran for less than one part
/// in `STARVES_BELOW` of that. If work is wasted already, the divisor is `LACKS_BELOW`: helping
/// them sooner costs nobody more.
const STARVES_FROM: Share = Share::percent(50);
const STARVES_BELOW: u32 = 64;
const LACKS_BELOW: u32 = 8;

/// Load of a core in a period beside placed work: virtual machines, programs, other interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreLoad {
    /// Time in programs, vCPUs included.
    pub user: Share,
    /// Time in interrupts and the kernel, without placed work.
    pub softirq: Share,
    /// Time that its pinned vCPUs were runnable but waited for it, all together. Zero if it is not
    /// measured.
    pub wait: Share,
}

impl CoreLoad {
    fn sum(self) -> Share {
        self.user.plus(self.softirq)
    }

    /// Time that waiting vCPUs would take beyond their use: as much again, or `least`.
    fn lack(self, least: Share) -> Share {
        self.wait.min(self.user.max(least))
    }

    /// Returns true if vCPUs got next to nothing of the time that they wanted.
    const fn starves(self, below: u32) -> bool {
        self.wait.0 >= STARVES_FROM.0 && self.user.0 < self.wait.0 / below
    }
}

/// State that the threads of a physical core share.
#[derive(Clone, Debug, Default)]
struct Physical {
    threads: Vec<CoreIndex>,
    /// Number of its threads to which a vCPU is pinned.
    vcpus: u32,
    /// Entries of high priority on all of its threads.
    high: u32,
}

/// All cores, with the sums for every decision.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    cores: Vec<Core>,
    physical: Vec<Physical>,
    /// Physical core of each core.
    part_of: Vec<usize>,
    /// Load that is not placed here, plus the time that vCPUs lack, averaged.
    foreign: Vec<Share>,
    /// Load that is not placed here, plus all the time for which vCPUs waited, averaged.
    wanted: Vec<Share>,
    /// Work of the entries that are placed on it.
    placed: Vec<Share>,
    /// Its part of high priority.
    placed_high: Vec<Share>,
    /// Number of entries of high priority that are placed on it.
    high: Vec<u32>,
    /// Numbers of entries whose machine's vCPU is pinned to it: all, and those of high priority.
    received: Vec<(u32, u32)>,
    /// Number of periods in which its vCPUs starved.
    starved: Vec<u32>,
}

impl Cores {
    pub(crate) fn new(cores: &[Core]) -> Self {
        let zeros = || cores.iter().map(|_| Share::ZERO).collect();
        let (physical, part_of) = threads(cores);
        Self {
            cores: cores.to_vec(),
            physical,
            part_of,
            foreign: zeros(),
            wanted: zeros(),
            placed: zeros(),
            placed_high: zeros(),
            high: cores.iter().map(|_| 0).collect(),
            received: cores.iter().map(|_| (0, 0)).collect(),
            starved: cores.iter().map(|_| 0).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.cores.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = CoreIndex> + use<> {
        (0..self.cores.len()).map(|at| CoreIndex(u16::try_from(at).expect("checked when made")))
    }

    pub(crate) fn get(&self, core: CoreIndex) -> &Core {
        &self.cores[core.index()]
    }

    /// Sets the properties that change while the host runs: pinning and policy.
    pub(crate) fn set(&mut self, core: CoreIndex, runs_vcpu: bool, excluded: bool) {
        let physical = &mut self.physical[self.part_of[core.index()]];
        let core = &mut self.cores[core.index()];
        physical.vcpus -= u32::from(core.runs_vcpu);
        physical.vcpus += u32::from(runs_vcpu);
        (core.runs_vcpu, core.excluded) = (runs_vcpu, excluded);
    }

    /// Returns true if another thread of its physical core runs a vCPU, or has work of high
    /// priority.
    pub(crate) fn is_beside(&self, core: CoreIndex) -> bool {
        let at = core.index();
        let physical = &self.physical[self.part_of[at]];
        physical.vcpus > u32::from(self.cores[at].runs_vcpu) || physical.high > self.high[at]
    }

    pub(crate) fn are_siblings(&self, one: CoreIndex, other: CoreIndex) -> bool {
        one != other && self.part_of[one.index()] == self.part_of[other.index()]
    }

    /// Pressure on a core: its load, and half of its siblings' load, since threads that share a
    /// physical core slow each other down.
    pub(crate) fn pressure(&self, core: CoreIndex) -> Share {
        let threads = &self.physical[self.part_of[core.index()]].threads;
        let others = threads.iter().filter(|other| **other != core);
        let beside: u64 = others.map(|other| u64::from(self.total(*other).0)).sum();
        self.total(core).plus(Share(u32::try_from(beside / 2).unwrap_or(u32::MAX)))
    }

    /// Notes the load beside placed work in a period.
    pub(crate) fn observe(&mut self, loads: &[CoreLoad], config: &Config, wastes: bool) {
        let (full_at, least) = (config.full_at, config.hysteresis);
        let below = if wastes { LACKS_BELOW } else { STARVES_BELOW };
        for (at, load) in loads.iter().enumerate().take(self.cores.len()) {
            // Only the adaptive mode uses the lack of vCPUs. On a core with time left they lack
            // nothing, though they may have waited for their turn.
            let is_full = load.sum().plus(self.placed[at]) > full_at;
            let lacks = is_full && config.mode == Mode::Adaptive;
            let (lack, wait) = (load.lack(least), load.wait.min(Share::WHOLE));
            let (lack, wait) = if lacks { (lack, wait) } else { (Share::ZERO, Share::ZERO) };
            self.foreign[at] = self.foreign[at].towards(load.sum().plus(lack));
            self.wanted[at] = self.wanted[at].towards(load.sum().plus(wait));
            let starves = self.cores[at].runs_vcpu && load.starves(below);
            self.starved[at] = if starves { self.starved[at].saturating_add(1) } else { 0 };
        }
    }

    /// Number of periods in a row in which the vCPUs of a core starved.
    pub(crate) fn starved(&self, core: CoreIndex) -> u32 {
        self.starved[core.index()]
    }

    /// Restarts the count of starved periods of a core after a change.
    pub(crate) fn see_anew(&mut self, core: CoreIndex) {
        self.starved[core.index()] = 0;
    }

    /// Counts a placed entry whose machine is pinned to a core.
    pub(crate) fn receives(&mut self, core: CoreIndex, is_high: bool) {
        let (all, high) = &mut self.received[core.index()];
        (*all, *high) = (*all + 1, *high + u32::from(is_high));
    }

    /// Numbers of entries of machines that are pinned to a core: all, and those of high priority.
    pub(crate) fn received(&self, core: CoreIndex) -> (u32, u32) {
        self.received[core.index()]
    }

    /// Total load of a core.
    pub(crate) fn total(&self, core: CoreIndex) -> Share {
        self.foreign[core.index()].plus(self.placed[core.index()])
    }

    /// Load that counts for an entry of high priority: the other entries make way for it.
    pub(crate) fn total_for_high(&self, core: CoreIndex) -> Share {
        self.wanted[core.index()].plus(self.placed_high[core.index()])
    }

    pub(crate) fn placed(&self, core: CoreIndex) -> Share {
        self.placed[core.index()]
    }

    /// Number of entries of high priority on a core.
    pub(crate) fn high(&self, core: CoreIndex) -> u32 {
        self.high[core.index()]
    }

    /// Adds work to a core.
    pub(crate) fn add(&mut self, core: CoreIndex, load: Share, is_high: bool) {
        let at = core.index();
        self.placed[at] = self.placed[at].plus(load);
        if is_high {
            self.placed_high[at] = self.placed_high[at].plus(load);
            self.high[at] += 1;
            self.physical[self.part_of[at]].high += 1;
        }
    }

    /// Removes work from a core.
    pub(crate) fn remove(&mut self, core: CoreIndex, load: Share, is_high: bool) {
        let at = core.index();
        self.placed[at] = self.placed[at].minus(load);
        if is_high {
            self.placed_high[at] = self.placed_high[at].minus(load);
            self.high[at] -= 1;
            self.physical[self.part_of[at]].high -= 1;
        }
    }

    /// Forgets all placed work, to count it anew.
    pub(crate) fn clear(&mut self) {
        self.placed.fill(Share::ZERO);
        self.placed_high.fill(Share::ZERO);
        self.high.fill(0);
        self.physical.iter_mut().for_each(|physical| physical.high = 0);
        self.received.fill((0, 0));
    }
}

/// The physical cores, and the physical core of each core.
fn threads(cores: &[Core]) -> (Vec<Physical>, Vec<usize>) {
    let mut all: Vec<Physical> = Vec::new();
    let mut part_of: Vec<usize> = Vec::with_capacity(cores.len());
    for (at, core) in cores.iter().enumerate() {
        let is_sibling = |other: &Core| core.physical.is_some() && other.physical == core.physical;
        let of = cores[..at].iter().position(is_sibling).map(|first| part_of[first]);
        let of = of.unwrap_or_else(|| {
            all.push(Physical::default());
            all.len() - 1
        });
        all[of].threads.push(CoreIndex(u16::try_from(at).expect("checked when made")));
        all[of].vcpus += u32::from(core.runs_vcpu);
        part_of.push(of);
    }
    (all, part_of)
}
