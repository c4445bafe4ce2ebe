//! Cores: what each is, and what runs on it beside the work that is placed here.

use alloc::vec::Vec;

use crate::CoreIndex;
use crate::share::Share;

/// A core of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// The number that the kernel gives it.
    pub number: u16,
    /// A vCPU of a running virtual machine is pinned to it.
    pub runs_vcpu: bool,
    /// By policy it gets no work.
    pub excluded: bool,
}

/// What a core did in a period beside placed work: virtual machines, programs, other interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreLoad {
    /// In programs, vCPUs included.
    pub user: Share,
    /// In interrupts and the kernel, without placed work.
    pub softirq: Share,
}

impl CoreLoad {
    fn sum(self) -> Share {
        self.user.plus(self.softirq)
    }
}

/// All cores, with the sums that every decision looks at.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    cores: Vec<Core>,
    /// What is not placed here, averaged.
    foreign: Vec<Share>,
    /// Work of entries that are placed on it.
    placed: Vec<Share>,
    /// What of it is of high priority.
    placed_high: Vec<Share>,
    /// Entries of high priority that are placed on it.
    high: Vec<u32>,
}

impl Cores {
    pub(crate) fn new(cores: &[Core]) -> Self {
        let zeros = || cores.iter().map(|_| Share::ZERO).collect();
        let high = cores.iter().map(|_| 0).collect();
        Self {
            cores: cores.to_vec(),
            foreign: zeros(),
            placed: zeros(),
            placed_high: zeros(),
            high,
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
        let core = &mut self.cores[core.index()];
        (core.runs_vcpu, core.excluded) = (runs_vcpu, excluded);
    }

    /// Notes what ran beside placed work in a period.
    pub(crate) fn observe(&mut self, loads: &[CoreLoad]) {
        for (foreign, load) in self.foreign.iter_mut().zip(loads) {
            *foreign = foreign.towards(load.sum());
        }
    }

    /// All that runs on it.
    pub(crate) fn total(&self, core: CoreIndex) -> Share {
        self.foreign[core.index()].plus(self.placed[core.index()])
    }

    /// What an entry of high priority finds there: the others make way for it.
    pub(crate) fn total_for_high(&self, core: CoreIndex) -> Share {
        self.foreign[core.index()].plus(self.placed_high[core.index()])
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
        }
    }

    /// Work goes from a core.
    pub(crate) fn remove(&mut self, core: CoreIndex, load: Share, is_high: bool) {
        let at = core.index();
        self.placed[at] = self.placed[at].minus(load);
        if is_high {
            self.placed_high[at] = self.placed_high[at].minus(load);
            self.high[at] -= 1;
        }
    }

    /// Forgets all placed work, to count it anew.
    pub(crate) fn clear(&mut self) {
        self.placed.fill(Share::ZERO);
        self.placed_high.fill(Share::ZERO);
        self.high.fill(0);
    }
}
