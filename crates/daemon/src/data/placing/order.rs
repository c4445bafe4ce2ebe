//! Application of the placement policy to the buckets, and its state.

use sluice_api::placement::{CpuStatus, PlaceStatus};
use sluice_base::Nanos;
use sluice_placement::{Mode, Placement};
use sluice_ports::udp::{HighFlows, LOW_BUCKETS};

use super::Placing;
use super::high::Progress;
use crate::data::cpus::core_of;
use crate::sys::clock;

impl Placing {
    /// Applies the policy if it has changed.
    pub(super) fn apply_policy(&mut self) {
        if let Some(policy) = self.wanted.changed_since(self.stamp) {
            // A policy with too many matches was refused when it was received.
            self.wanted_high = HighFlows::new(&policy.in_force.high).unwrap_or_default();
            // Buckets were gathered for another selection: the kernel may not accept this one.
            self.progress = Progress::Done;
            self.cpus.exclude(policy.in_force.excluded_cpus);
            self.set_mode(policy.mode);
            self.stamp = policy.stamp;
            // The refused moves may not be wanted any more.
            for refused in [&mut self.refused, &mut self.refused_high] {
                *refused = refused.take().map(|(why, _)| (why, Nanos::ZERO));
            }
        }
    }

    /// Sets another rule. The old rule's decisions are forgotten, and buckets stay where they are
    /// until the new one moves them. A rule that goes by hash alone assigns each bucket anew, also
    /// if it was the same before: buckets that had left an excluded CPU come back.
    fn set_mode(&mut self, mode: Mode) {
        let is_same = mode == self.mode;
        self.mode = mode;
        if is_same && !self.is_by_number() {
            return;
        }
        self.decide_anew();
    }

    /// Forgets all decisions. If a mode reserves a worker for flows of high priority, it is the
    /// first one that may do the work.
    pub(super) fn decide_anew(&mut self) {
        let reserves = self.mode == Mode::Predetermined && !self.mover.high.is_empty();
        let reserved = reserves.then(|| core_of(self.cpus.first_free()));
        let config = super::high::config(self.mode, reserved);
        // This cannot fail: the same call succeeded at the start.
        if let Ok(placement) = Placement::new(config, &self.cpus.cores()) {
            self.placement = placement;
        }
        self.cpus.tell_again();
    }

    /// Searches for CPUs that run vCPUs. The reserved worker for high priority depends on it.
    pub(super) fn look_at_cpus(&mut self) {
        let before = self.cpus.first_free();
        self.cpus.look_at(&mut self.placement, clock::now());
        let reserves = self.mode == Mode::Predetermined && !self.mover.high.is_empty();
        if reserves && self.cpus.first_free() != before {
            self.decide_anew();
            self.cpus.look_at(&mut self.placement, clock::now());
        }
    }

    /// Returns true if buckets are assigned by their number alone.
    pub(super) const fn is_by_number(&self) -> bool {
        matches!(self.mode, Mode::Rss | Mode::Predetermined)
    }

    /// Returns the state of the policy.
    pub(super) fn place_status(&self, port: &str) -> PlaceStatus {
        let cpus = self.cpus.status().enumerate().map(|(worker, cpu)| {
            let (load, _) = self.placement.load_of(core_of(worker));
            let (low, high) = self.mover.table.split_at(LOW_BUCKETS.into());
            let of_it = |part: &[u8]| {
                let count = part.iter().filter(|of| usize::from(**of) == worker).count();
                u32::try_from(count).unwrap_or(u32::MAX)
            };
            // Without flows of high priority their buckets do not count.
            let high = if self.mover.high.is_empty() { 0 } else { of_it(high) };
            CpuStatus {
                buckets: of_it(low) + high,
                high,
                load_percent: f64::from(load.0) / 10_000.0,
                ..cpu
            }
        });
        PlaceStatus {
            name: port.to_owned(),
            kind: "workers".to_owned(),
            stamp: self.settled,
            mode: self.mode.name().to_owned(),
            high: u32::try_from(self.mover.high.len()).unwrap_or(u32::MAX),
            moves: self.moves,
            cpus: cpus.collect(),
        }
    }
}
