//! The placement policy that holds: what of it concerns this host's workers, and what they have
//! made of it.

use std::sync::PoisonError;

use sluice_api::config::PlacementMode;
use sluice_api::placement::{CpuStatus, Followed, InForce, PlaceStatus, Stamped};
use sluice_base::Priority;
use sluice_placement::{EntryId, Mode, Placement};

use super::{Placing, Shown, core_of, settings};

/// What a policy calls a rule.
pub(super) const fn mode_of(mode: PlacementMode) -> Mode {
    match mode {
        PlacementMode::Rss => Mode::Rss,
        PlacementMode::RssPlusPlus => Mode::RssPlusPlus,
        PlacementMode::Predetermined => Mode::Predetermined,
        PlacementMode::OnTheFly => Mode::OnTheFly,
        PlacementMode::Adaptive => Mode::Adaptive,
    }
}

/// This policy holds from now on. What was made of the one before, or of this one.
pub(in crate::data) fn follow(shown: &Shown, stamped: Stamped) -> Followed {
    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    shown.wanted = stamped;
    let mut notes = shown.notes.clone();
    if shown.place.is_none() {
        notes.push("its data workers share no underlay: nothing here follows a policy".to_owned());
    }
    Followed { place: shown.place.clone(), notes }
}

impl Placing {
    /// Does what the policy says, if it is another one than before.
    pub(super) fn obey(&mut self) {
        let wanted = {
            let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if shown.wanted.stamp == self.stamp {
                return;
            }
            shown.wanted.clone()
        };
        let InForce { mode, excluded_cpus, high: _ } = wanted.policy.on(&self.host);
        self.set_mode(mode.map_or(self.own_mode, mode_of));
        self.cpus.exclude(excluded_cpus);
        self.stamp = wanted.stamp;
    }

    /// Another rule: the old one's decisions are forgotten, and buckets stay where they are until
    /// the new one moves them. One that goes by hash alone says for each where it belongs, also if
    /// it was the same before: what had left an excluded CPU comes back.
    fn set_mode(&mut self, mode: Mode) {
        let is_same = mode == self.mode;
        self.mode = mode;
        if is_same && !self.is_by_number() {
            return;
        }
        let count = self.placement.core_count();
        let new =
            settings(mode).and_then(|config| Ok(Placement::new(config, &super::cores(count))?));
        // As at start, where the same was possible.
        if let Ok(new) = new {
            self.placement = new;
            self.cpus.look_again();
        }
    }

    /// Whether buckets go by their number alone.
    pub(super) const fn is_by_number(&self) -> bool {
        matches!(self.mode, Mode::Rss | Mode::Predetermined)
    }

    /// A bucket of which something came is placed, as its rule has it.
    pub(super) fn know(&mut self, bucket: u8, worker: u8) {
        let entry = EntryId(bucket.into());
        if self.is_by_number() {
            self.placement.place(entry, Priority::ZERO);
        } else {
            self.placement.adopt(entry, Priority::ZERO, core_of(worker.into()));
        }
    }

    /// What the workers have made of the policy.
    pub(super) fn place_status(&self, port: &str) -> PlaceStatus {
        let cpus = self.cpus.workers.iter().enumerate().map(|(worker, cpu)| {
            let (load, _) = self.placement.load_of(core_of(worker));
            let buckets = self.mover.table.iter().filter(|of| usize::from(**of) == worker).count();
            let cpu = cpu.and_then(|cpu| u16::try_from(cpu).ok());
            CpuStatus {
                cpu,
                worker: u16::try_from(worker).ok(),
                excluded: cpu.is_some_and(|cpu| self.cpus.excluded.contains(&cpu)),
                runs_vcpu: self.cpus.with_vcpus.get(worker).copied().unwrap_or(false),
                buckets: u32::try_from(buckets).unwrap_or(u32::MAX),
                high: 0,
                load_percent: f64::from(load.0) / 10_000.0,
            }
        });
        PlaceStatus {
            name: port.to_owned(),
            kind: "workers".to_owned(),
            stamp: self.stamp,
            mode: self.mode.name().to_owned(),
            high: 0,
            moves: self.moves,
            cpus: cpus.collect(),
        }
    }

    /// What is not as the policy says.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let excluded = &self.cpus.excluded;
        if excluded.is_empty() {
            return notes;
        }
        if self.cpus.workers.iter().all(Option::is_none) {
            notes.push(
                "no CPU is excluded: its workers are not pinned; set `worker_cpus`".to_owned(),
            );
        } else if !self.is_left() {
            notes.push("no CPU is excluded: all of its workers' are".to_owned());
        }
        notes
    }

    /// Whether a worker is left that may do the work.
    fn is_left(&self) -> bool {
        let is_excluded = |cpu: &Option<u32>| {
            cpu.and_then(|cpu| u16::try_from(cpu).ok())
                .is_some_and(|cpu| self.cpus.excluded.contains(&cpu))
        };
        !self.cpus.workers.iter().all(is_excluded)
    }

    /// Which cores run vCPUs and which are excluded, where that has changed.
    pub(super) fn look_at_cpus(&mut self) {
        if !self.cpus.look(crate::clock::now()) {
            return;
        }
        let is_left = self.is_left();
        for (worker, runs_vcpu) in self.cpus.with_vcpus.clone().into_iter().enumerate() {
            let excluded = is_left && self.cpus.is_excluded(worker);
            self.placement.set_core(core_of(worker), runs_vcpu, excluded);
        }
    }
}
