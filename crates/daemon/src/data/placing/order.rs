//! What of the placement policy concerns the buckets, and what was made of it.

use sluice_api::placement::{CpuStatus, PlaceStatus};
use sluice_base::Priority;
use sluice_placement::{EntryId, Mode, Placement};

use super::{Placing, settings};
use crate::data::cpus::{core_of, cores};

impl Placing {
    /// Does what the policy says, if it is another one than before.
    pub(super) fn obey(&mut self) {
        if let Some(order) = self.wanted.other_than(self.stamp) {
            self.set_mode(order.mode);
            self.cpus.exclude(order.in_force.excluded_cpus);
            self.stamp = order.stamp;
        }
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
        let new = settings(mode).and_then(|config| Ok(Placement::new(config, &cores(count))?));
        // As at start, where the same was possible.
        if let Ok(new) = new {
            self.placement = new;
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

    /// What was made of the policy.
    pub(super) fn place_status(&self, port: &str) -> PlaceStatus {
        let cpus = self.cpus.status().enumerate().map(|(worker, cpu)| {
            let (load, _) = self.placement.load_of(core_of(worker));
            let buckets = self.mover.table.iter().filter(|of| usize::from(**of) == worker).count();
            CpuStatus {
                buckets: u32::try_from(buckets).unwrap_or(u32::MAX),
                load_percent: f64::from(load.0) / 10_000.0,
                ..cpu
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
}
