//! Cores: what each is, and what runs on it beside the work that is placed here.

use alloc::vec::Vec;

use crate::CoreIndex;
use crate::config::{Config, Mode};
use crate::share::Share;

/// A core of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// The number that the kernel gives it.
    pub number: u16,
    /// The physical core of which it is a thread, by any number: those that have the same one are
    /// siblings. `None`: it has none, or nobody knows.
    pub physical: Option<u16>,
    /// Its NUMA node. `None`: nobody knows.
    pub node: Option<u16>,
    /// A vCPU of a running virtual machine is pinned to it.
    pub runs_vcpu: bool,
    /// By policy it gets no work.
    pub excluded: bool,
}

/// vCPUs starve if they waited for at least so much of a period, and got less than one part in so
/// many of that. Where work is wasted already, they are helped sooner: it costs nobody more.
const STARVES_FROM: Share = Share::percent(50);
const STARVES_BELOW: u32 = 64;
const LACKS_BELOW: u32 = 8;

/// What a core did in a period beside placed work: virtual machines, programs, other interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreLoad {
    /// In programs, vCPUs included.
    pub user: Share,
    /// In interrupts and the kernel, without placed work.
    pub softirq: Share,
    /// How long its pinned vCPUs waited for it although they had something to do, all together.
    /// Zero where nobody measures it.
    pub wait: Share,
}

impl CoreLoad {
    fn sum(self) -> Share {
        self.user.plus(self.softirq)
    }

    /// What vCPUs would take beyond what they took, if they waited: as much again, or `least`.
    fn lack(self, least: Share) -> Share {
        self.wait.min(self.user.max(least))
    }

    /// Whether vCPUs got next to nothing of the time that they wanted.
    const fn starves(self, below: u32) -> bool {
        self.wait.0 >= STARVES_FROM.0 && self.user.0 < self.wait.0 / below
    }
}

/// A physical core: what its threads share.
#[derive(Clone, Debug, Default)]
struct Physical {
    threads: Vec<CoreIndex>,
    /// Of its threads, those to which a vCPU is pinned.
    vcpus: u32,
    /// Entries of high priority on all of them.
    high: u32,
}

/// All cores, with the sums that every decision looks at.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    cores: Vec<Core>,
    physical: Vec<Physical>,
    /// Of which physical core each is a thread.
    part_of: Vec<usize>,
    /// What is not placed here and what vCPUs lack, averaged.
    foreign: Vec<Share>,
    /// The same, with all the time for which vCPUs waited.
    wanted: Vec<Share>,
    /// Work of entries that are placed on it.
    placed: Vec<Share>,
    /// What of it is of high priority.
    placed_high: Vec<Share>,
    /// Entries of high priority that are placed on it.
    high: Vec<u32>,
    /// Entries whose machine's vCPU is pinned to it, and those of high priority among them.
    received: Vec<(u32, u32)>,
    /// For how many periods its vCPUs starved.
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

    /// What changes while the host runs: pinning and policy.
    pub(crate) fn set(&mut self, core: CoreIndex, runs_vcpu: bool, excluded: bool) {
        let physical = &mut self.physical[self.part_of[core.index()]];
        let core = &mut self.cores[core.index()];
        physical.vcpus -= u32::from(core.runs_vcpu);
        physical.vcpus += u32::from(runs_vcpu);
        (core.runs_vcpu, core.excluded) = (runs_vcpu, excluded);
    }

    /// Whether another thread of its physical core runs a vCPU, or has work of high priority.
    pub(crate) fn is_beside(&self, core: CoreIndex) -> bool {
        let at = core.index();
        let physical = &self.physical[self.part_of[at]];
        physical.vcpus > u32::from(self.cores[at].runs_vcpu) || physical.high > self.high[at]
    }

    pub(crate) fn are_siblings(&self, one: CoreIndex, other: CoreIndex) -> bool {
        one != other && self.part_of[one.index()] == self.part_of[other.index()]
    }

    /// How busy it is: what runs on it, and half of what runs on its siblings, since threads that
    /// share a physical core slow each other down.
    pub(crate) fn pressure(&self, core: CoreIndex) -> Share {
        let threads = &self.physical[self.part_of[core.index()]].threads;
        let others = threads.iter().filter(|other| **other != core);
        let beside: u64 = others.map(|other| u64::from(self.total(*other).0)).sum();
        self.total(core).plus(Share(u32::try_from(beside / 2).unwrap_or(u32::MAX)))
    }

    /// Notes what ran beside placed work in a period.
    pub(crate) fn observe(&mut self, loads: &[CoreLoad], config: &Config, wastes: bool) {
        let (full_at, least) = (config.full_at, config.hysteresis);
        let below = if wastes { LACKS_BELOW } else { STARVES_BELOW };
        for (at, load) in loads.iter().enumerate().take(self.cores.len()) {
            // Only the adaptive mode knows what vCPUs lack. Where there is time left they lack
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

    /// For how many periods in a row the vCPUs of a core starved.
    pub(crate) fn starved(&self, core: CoreIndex) -> u32 {
        self.starved[core.index()]
    }

    /// Something has changed there: what its vCPUs get is to be seen anew.
    pub(crate) fn see_anew(&mut self, core: CoreIndex) {
        self.starved[core.index()] = 0;
    }

    /// A placed entry's machine is pinned to a core, or is not any more.
    pub(crate) fn receives(&mut self, core: CoreIndex, is_high: bool) {
        let (all, high) = &mut self.received[core.index()];
        (*all, *high) = (*all + 1, *high + u32::from(is_high));
    }

    /// Entries of machines that are pinned to a core, and those of high priority among them.
    pub(crate) fn received(&self, core: CoreIndex) -> (u32, u32) {
        self.received[core.index()]
    }

    /// All that runs on it.
    pub(crate) fn total(&self, core: CoreIndex) -> Share {
        self.foreign[core.index()].plus(self.placed[core.index()])
    }

    /// What an entry of high priority finds there: the others make way for it.
    pub(crate) fn total_for_high(&self, core: CoreIndex) -> Share {
        self.wanted[core.index()].plus(self.placed_high[core.index()])
    }

    pub(crate) fn placed(&self, core: CoreIndex) -> Share {
        self.placed[core.index()]
    }

    /// Entries of high priority there.
    pub(crate) fn high(&self, core: CoreIndex) -> u32 {
        self.high[core.index()]
    }

    /// Work comes to a core.
    pub(crate) fn add(&mut self, core: CoreIndex, load: Share, is_high: bool) {
        let at = core.index();
        self.placed[at] = self.placed[at].plus(load);
        if is_high {
            self.placed_high[at] = self.placed_high[at].plus(load);
            self.high[at] += 1;
            self.physical[self.part_of[at]].high += 1;
        }
    }

    /// Work goes from a core.
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

/// The physical cores, and of which of them each core is a thread.
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
