//! The CPUs of the workers: those that run vCPUs, and those that a policy excludes.
//!
//! A CPU that shares its physical core with that of a worker, and belongs to no worker itself, is a
//! core of the placement, too. It gets no work, but its vCPU affects the sibling.

use std::collections::BTreeSet;

use sluice_api::placement::CpuStatus;
use sluice_base::Nanos;
use sluice_cpus::topology::CpuEntry;
use sluice_cpus::{machines, topology};
use sluice_placement::{Core, CoreIndex, Placement};

/// Time between two searches for vCPUs.
const MACHINES_EVERY: Nanos = Nanos::from_millis(1000);

/// CPUs of workers, and of virtual machines.
#[derive(Clone, Debug)]
pub(super) struct Cpus {
    /// CPU by worker; `None`: the worker is not pinned.
    workers: Vec<Option<u16>>,
    /// Sibling CPUs of the workers' CPUs that belong to no worker themselves.
    beside: Vec<u16>,
    /// Topology of all of these CPUs, workers' first.
    seats: Vec<CpuEntry>,
    /// CPUs that run vCPUs, if configured.
    vcpus: Option<BTreeSet<u16>>,
    /// Time of the last search for vCPUs.
    looked: Option<Nanos>,
    /// True if a vCPU is pinned to the CPU: by worker, and then by sibling.
    with_vcpus: Vec<bool>,
    /// CPUs that a policy excludes.
    excluded: BTreeSet<u16>,
}

impl Cpus {
    pub(super) fn new(workers: &[Option<u32>], vcpus: Option<&[u16]>) -> Self {
        Self::seated(workers, vcpus, topology::of_cpu)
    }

    fn seated(
        workers: &[Option<u32>],
        vcpus: Option<&[u16]>,
        seat: impl Fn(u16) -> CpuEntry,
    ) -> Self {
        let vcpus = vcpus.map(|cpus| cpus.iter().copied().collect());
        let workers: Vec<Option<u16>> =
            workers.iter().map(|cpu| cpu.and_then(|cpu| u16::try_from(cpu).ok())).collect();
        let mut seats: Vec<CpuEntry> =
            workers.iter().map(|cpu| cpu.map(&seat).unwrap_or_default()).collect();
        let siblings: BTreeSet<u16> =
            seats.iter().flat_map(|seat| &seat.siblings).copied().collect();
        let beside: Vec<u16> =
            siblings.into_iter().filter(|cpu| !workers.contains(&Some(*cpu))).collect();
        seats.extend(beside.iter().map(|cpu| seat(*cpu)));
        let with_vcpus = vec![false; seats.len()];
        let excluded = BTreeSet::new();
        Self { workers, beside, seats, vcpus, looked: None, with_vcpus, excluded }
    }

    /// Returns the cores of a placement: one for each worker, and then the siblings.
    pub(super) fn cores(&self) -> Vec<Core> {
        let core = |(at, seat): (usize, &CpuEntry)| Core {
            number: core_of(at).0,
            physical: seat.physical,
            node: seat.node,
            runs_vcpu: false,
            excluded: at >= self.workers.len(),
        };
        self.seats.iter().enumerate().map(core).collect()
    }

    /// Returns the CPU of a worker.
    pub(super) fn of(&self, worker: usize) -> Option<u32> {
        self.workers.get(worker).copied().flatten().map(u32::from)
    }

    /// Sets the CPUs that a policy excludes.
    pub(super) fn exclude(&mut self, cpus: BTreeSet<u16>) {
        self.excluded = cpus;
        self.tell_again();
    }

    /// Makes the next call of [`Self::look_at`] report all CPUs, since a new placement knows none.
    pub(super) const fn tell_again(&mut self) {
        self.looked = None;
    }

    fn names(&self, cpu: Option<u16>) -> bool {
        cpu.is_some_and(|cpu| self.excluded.contains(&cpu))
    }

    /// Returns true if a worker is left that may do the work.
    fn is_left(&self) -> bool {
        !self.workers.iter().all(|cpu| self.names(*cpu))
    }

    /// Returns the first worker whose CPU is not excluded and runs no vCPU; else the first one.
    pub(super) fn first_free(&self) -> usize {
        let is_left = self.is_left();
        let mut all = self.workers.iter().zip(&self.with_vcpus);
        let is_free = |(cpu, runs): (&Option<u16>, &bool)| !(*runs || is_left && self.names(*cpu));
        all.position(is_free).unwrap_or(0)
    }

    /// Searches for vCPUs that are pinned to workers' CPUs. Returns false if no search was due.
    fn look(&mut self, now: Nanos) -> bool {
        let is_due = match (&self.vcpus, self.looked) {
            (_, None) => true,
            (Some(_), Some(_)) => false,
            (None, Some(looked)) => now.since(looked) >= MACHINES_EVERY,
        };
        if !is_due || self.workers.iter().all(Option::is_none) {
            return false;
        }
        self.looked = Some(now);
        let vcpus = self.vcpus.clone().unwrap_or_else(machines::pinned_cores);
        let has = |cpu: Option<u16>| cpu.is_some_and(|cpu| vcpus.contains(&cpu));
        let beside = self.beside.iter().copied().map(Some);
        self.with_vcpus = self.workers.iter().copied().chain(beside).map(has).collect();
        true
    }

    /// Tells a placement which workers' CPUs run vCPUs and which are excluded, if a search is due.
    pub(super) fn look_at(&mut self, placement: &mut Placement, now: Nanos) {
        if !self.look(now) {
            return;
        }
        let count = self.workers.len();
        for (at, runs_vcpu) in self.with_vcpus.iter().enumerate().skip(count) {
            placement.set_core(core_of(at), *runs_vcpu, true);
        }
        let is_left = self.is_left();
        // A moment without any usable core is not allowed, so CPUs that are free again come first.
        for excluded in [false, true] {
            let all = self.workers.iter().zip(&self.with_vcpus).enumerate();
            for (worker, (cpu, runs_vcpu)) in all {
                if (is_left && self.names(*cpu)) == excluded {
                    let done = placement.set_core(core_of(worker), *runs_vcpu, excluded);
                    debug_assert!(done, "a worker is left");
                }
            }
        }
    }

    /// Returns the status of each worker's CPU.
    pub(super) fn status(&self) -> impl Iterator<Item = CpuStatus> {
        self.workers.iter().zip(&self.with_vcpus).zip(0..).map(|((cpu, runs_vcpu), worker)| {
            CpuStatus {
                cpu: *cpu,
                worker: Some(worker),
                excluded: self.is_left() && self.names(*cpu),
                runs_vcpu: *runs_vcpu,
                ..CpuStatus::default()
            }
        })
    }

    /// Returns notes on parts of the policy that do not hold.
    pub(super) fn notes(&self) -> Vec<String> {
        let said = if self.excluded.is_empty() {
            None
        } else if self.workers.iter().all(Option::is_none) {
            Some("no CPU is excluded: its workers are not pinned; set `worker_cpus`")
        } else if !self.is_left() {
            Some("no CPU is excluded: all of its workers' are")
        } else {
            None
        };
        said.map(str::to_owned).into_iter().collect()
    }
}

/// Returns the core that stands for a worker.
pub(super) fn core_of(worker: usize) -> CoreIndex {
    CoreIndex(u16::try_from(worker).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpu_pinned_to_cpu_marks_worker_there() {
        let later = MACHINES_EVERY;
        let mut cpus = Cpus::new(&[Some(1), Some(2), None], Some(&[2, 3]));
        assert!(cpus.look(Nanos::ZERO));
        assert_eq!(cpus.with_vcpus, [false, true, false]);
        assert!(!cpus.look(later), "what is configured stays");
        let mut free = Cpus::new(&[None, None], Some(&[0]));
        assert!(!free.look(Nanos::ZERO), "no worker is pinned");
        let mut looks = Cpus::new(&[Some(1)], None);
        assert!(looks.look(Nanos::ZERO));
        assert!(!looks.look(Nanos(later.0 - 1)) && looks.look(later));
    }

    #[test]
    fn another_cpu_can_be_excluded_instead() {
        use sluice_placement::{Config, CoreLoad, EntryId, EntryLoad, Mode, Share};
        let config = Config::new(Mode::Adaptive, 1);
        for (first, then) in [(1, 2), (2, 1)] {
            let mut cpus = Cpus::new(&[Some(1), Some(2)], Some(&[]));
            let mut placement = Placement::new(config.clone(), &cpus.cores()).unwrap();
            for cpu in [first, then] {
                cpus.exclude([cpu].into());
                cpus.look_at(&mut placement, Nanos::ZERO);
            }
            let (from, to) = (core_of(usize::from(then) - 1), core_of(usize::from(first) - 1));
            placement.adopt(EntryId(0), sluice_base::Priority::ZERO, from);
            let load = EntryLoad { decap: Share::percent(20), ..EntryLoad::default() };
            placement.period(&[CoreLoad::default(); 2], &[load], &mut Vec::new());
            assert_eq!(placement.entry(EntryId(0)).unwrap().core, to, "{first}, then {then}");
        }
    }

    /// CPUs 2 and 6 are one physical core, and so are 3 and 7.
    #[test]
    fn worker_beside_vcpu_on_sibling_cpu_is_avoided() {
        use sluice_placement::{Config, CoreLoad, EntryId, EntryLoad, Mode, Share};
        let seat = |cpu: u16| {
            let other = if cpu < 4 { cpu + 4 } else { cpu - 4 };
            CpuEntry { siblings: vec![other], physical: Some(cpu.min(other)), node: None }
        };
        let mut cpus = Cpus::seated(&[Some(2), Some(3)], Some(&[6]), seat);
        assert_eq!((cpus.beside.as_slice(), cpus.cores().len()), (&[6, 7][..], 4));
        let mut placement = Placement::new(Config::new(Mode::Adaptive, 1), &cpus.cores()).unwrap();
        cpus.look_at(&mut placement, Nanos::ZERO);
        placement.adopt(EntryId(0), sluice_base::Priority::ZERO, core_of(0));
        let load = EntryLoad { decap: Share::percent(20), ..EntryLoad::default() };
        placement.period(&[CoreLoad::default(); 2], &[load], &mut Vec::new());
        let state = placement.entry(EntryId(0)).unwrap();
        assert_eq!((state.core, cpus.status().count()), (core_of(1), 2), "{}", state.why);
    }

    #[test]
    fn what_cannot_be_excluded_is_said() {
        let mut cpus = Cpus::new(&[Some(1), Some(2)], Some(&[]));
        let excluded = |cpus: &Cpus| cpus.status().map(|cpu| cpu.excluded).collect::<Vec<_>>();
        cpus.exclude([1].into());
        assert!(cpus.look(Nanos::ZERO), "it is told at once");
        assert_eq!((excluded(&cpus), cpus.notes().len()), (vec![true, false], 0));
        cpus.exclude([1, 2].into());
        assert_eq!(excluded(&cpus), [false; 2]);
        assert!(cpus.notes()[0].contains("all of its workers"));
        let mut free = Cpus::new(&[None, None], Some(&[]));
        free.exclude([1].into());
        assert!(free.notes()[0].contains("set `worker_cpus`"));
    }
}
