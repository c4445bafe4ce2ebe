//! Port migration: another switch of the host reads and writes a port from now on.
//!
//! ```text
//!   the switch that had it           the switch that gets it          all others
//!   hold: its inputs are not read    hold: no frames go to it         hold: the same
//!   is_clear ─────────────────────── remote_refs_to is 0 ──────────── remote_refs_to is 0
//!   export_port ─── MigratedPort ──▶ import_port
//!   hands over to it                 reads and writes it              hand over to the new one
//! ```
//!
//! **No loss.** Frames go between switches by handoff ([`Switch::hand_over`]) only. Frames that
//! wait for the port in the switch that exports it stay there and are handed over from then on, as
//! remote references. Frames that wait for the port in the switch that imports it are offered to
//! its driver.
//!
//! **No reordering.** Take two frames of a pair, of which the first came in before the second.
//! *From the port:* the first frame has left the switch that had the port, and all switches that
//! held it remotely, before another switch reads the port; so it left before the second came in.
//! *To the port:* both came in at one switch, as their sender's port is another one, and stand
//! there in one queue. If both are handed off to the same switch, or neither is, the queue keeps
//! their order. If the first was handed off and the second is not, the switch is the one that gets
//! the port, and all its remote references are back: the first has left. If the first was not
//! handed off and the second is, the switch is the one that had the port, and it sent the first
//! itself, to the driver that takes the second. If both are handed off, to different switches, all
//! references of the one are back before the other gets any.
//!
//! A remote reference that was [revoked](Switch::revoke) is back, but its frame has not left: the
//! frame waits as a copy in the queue of the port, in the switch that has the port. So no port
//! migrates while frames from other switches wait for it; once all references are back, these are
//! just such copies. A copy of a frame *from* the port may stay behind: it waits in the queue of
//! another port, which does not migrate before the copy has left, and the second frame is queued
//! behind it.
//!
//! **Audits close.** When a port is exported, all frames that came in at its inputs have ended, so
//! its counters balance. They are added to those of the other switch, and the audit of each switch
//! closes before and after.

use alloc::vec::Vec;

use sluice_base::{Buf, PortId, Priority};

use crate::egress::PortEgress;
use crate::inspect::Marks;
use crate::ledger::PortCounters;
use crate::switch::Switch;
use crate::switch::sources::Watch;

/// State that migrates with a port: its counters, its rate, and the machines bound to it.
#[derive(Debug)]
#[must_use = "a port that is dropped here is nobody's"]
pub struct MigratedPort {
    egress: PortEgress,
    watch: Watch,
    inputs: Vec<InputState>,
}

/// Counters and high-water marks of an input.
#[derive(Debug)]
struct InputState {
    held: Marks,
    counters: PortCounters,
}

impl<B: Buf> Switch<B> {
    /// Returns true if all frames that came in at a port have ended, its driver has all its handles
    /// back, and no frame from another switch waits for the port.
    #[must_use]
    pub fn is_clear(&self, port: PortId) -> bool {
        let is_done = self.inputs_of(port).all(|input| {
            self.ingress.input(input).unreclaimed() == 0 && self.ledger.has_ended_all(input)
        });
        is_done && !self.awaits_handoff(port)
    }

    /// Returns true if a frame from another switch waits for a port.
    fn awaits_handoff(&self, port: PortId) -> bool {
        let at = port.index();
        let is_remote = |slot: u32| self.is_handoff(self.slots.get(slot).input());
        // Every queue of a movable port stands in a ring, as its queue group has no rate.
        let some = |priority: Priority| {
            let mut leaves = self.egress.leaves_of(self.egress.class_of(at, priority.index()));
            leaves.any(|leaf| self.slots.walk(self.egress.queue(leaf).list()).any(is_remote))
        };
        self.egress.group(self.egress.port(at).group()).queued().frames > 0
            && Priority::all().any(some)
    }

    fn inputs_of(&self, port: PortId) -> core::ops::Range<u16> {
        self.egress.port(port.index()).inputs()
    }

    /// Returns true if [`Self::export_port`] may be called: the port is here, and
    /// [clear](Self::is_clear).
    #[must_use]
    pub fn may_export_port(&self, port: PortId) -> bool {
        let p = self.egress.port(port.index());
        let is_movable = self.remote_refs.is_movable(port);
        is_movable && !p.is_elsewhere() && !p.is_detached() && self.is_clear(port)
    }

    /// Exports a port: another switch reads and writes it from now on. Frames that wait for it may
    /// be handed over.
    ///
    /// # Panics
    /// If it [may not be exported](Self::may_export_port).
    pub fn export_port(&mut self, port: PortId) -> MigratedPort {
        assert!(self.may_export_port(port), "frames of a port that moves are in the switch");
        self.resume_port(port);
        let at = port.index();
        let inputs = self.inputs_of(port).map(|input| self.take_input(input)).collect();
        let egress = self.egress.export_port(at);
        for (priority, sent) in egress.sent().iter().enumerate() {
            self.remote_refs.add_beside(self.egress.class_of(at, priority), sent.frames);
        }
        MigratedPort { egress, watch: self.sources.give(at), inputs }
    }

    fn take_input(&mut self, input: u16) -> InputState {
        let held = self.ingress.take_marks(input);
        InputState { held, counters: self.ledger.export(input) }
    }

    /// Imports a port that another switch exported: frames that wait for it are offered to its
    /// driver, and its inputs are read here.
    ///
    /// # Panics
    /// If it is here already, or frames for it have [remote references](Self::remote_refs_to).
    pub fn import_port(&mut self, port: PortId, its: MigratedPort) {
        let at = port.index();
        assert!(self.egress.port(at).is_elsewhere(), "the port is here already");
        assert!(self.remote_refs_to(port) == 0, "frames that were lent would be overtaken");
        let MigratedPort { egress, watch, inputs } = its;
        self.sources.take(at, watch);
        for (priority, sent) in egress.sent().iter().enumerate() {
            self.remote_refs.take_beside(self.egress.class_of(at, priority), sent.frames);
        }
        self.egress.import_port(at, egress);
        for (input, state) in self.inputs_of(port).zip(inputs) {
            self.add_input(input, state);
        }
        self.sources_changed();
    }

    fn add_input(&mut self, input: u16, state: InputState) {
        self.ingress.add_marks(input, state.held);
        self.ledger.import(input, state.counters);
    }
}

#[cfg(test)]
mod tests;
