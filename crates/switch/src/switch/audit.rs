//! The walk over all frames of a switch, which [the audit](crate::audit) is made of.

use alloc::vec;
use alloc::vec::Vec;

use sluice_base::Priority;

use crate::audit::{Audit, Balance};
use crate::inspect::Counter;
use crate::ledger::row;
use crate::slots::List;
use crate::switch::Switch;

impl<B> Switch<B> {
    /// Walks the switch and balances its counters. Allocates; not for the data path.
    #[must_use]
    pub fn audit(&self) -> Audit {
        let mut resident = vec![Counter::default(); self.ledger.row_count()];
        for (priority, tag) in self.egress.all_tags() {
            let row = usize::from(tag.input()) * Priority::COUNT + priority;
            resident[row].add(tag.bytes().into());
        }
        let mut count = |list: List| {
            for index in self.slots.walk(list) {
                let slot = self.slots.get(index);
                resident[row(slot.input(), slot.priority())].add(slot.bytes());
            }
        };
        for leaf in self.egress.leaves() {
            count(self.egress.queue(leaf).list());
        }
        for input in self.ingress.inputs() {
            count(input.awaiting());
            count(input.deferred());
        }
        for slot in self.slots.remote() {
            resident[row(slot.input(), slot.priority())].add(slot.bytes());
        }
        let mut rows = Vec::new();
        for (at, resident) in resident.into_iter().enumerate() {
            let row = self.ledger.balance(at, resident);
            if row.frames != Balance::default() {
                rows.push(row);
            }
        }
        Audit { rows }
    }
}
