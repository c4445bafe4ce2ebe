//! The ledger: counters of every (input, priority), from which the [audit](crate::audit) balances.
//!
//! Each frame is booked once on the way in (`received`, `injected`, `copied`) and once on the way
//! out (`delivered`, `consumed`, `dropped`). Nobody else changes these counters, and none of them
//! ever falls. Beside them stands the amount that waits at an input that pauses by priority.

use alloc::boxed::Box;
use alloc::vec;
use core::mem;

use sluice_base::{DropClass, DropReason, InputId, Priority, PriorityMask};

use crate::audit::{AuditRow, Balance};
use crate::inspect::Counter;
use crate::place::Held;

/// Frames that ended, by reason.
type Drops = [Counter; DropReason::COUNT];

/// Counters of one (input, priority) that every frame touches: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Row {
    /// Frames that wait at the input in this priority; counted for inputs that pause only.
    held: Held,
    received: Counter,
    delivered: Counter,
}

/// The other counters of one (input, priority).
#[derive(Clone, Copy, Debug, Default)]
struct RareRow {
    injected: Counter,
    copied: Counter,
    consumed: Counter,
}

/// The counters of a switch.
#[derive(Debug)]
pub(crate) struct Ledger {
    rows: Box<[Row]>,
    /// Apart, so that the tables that every frame touches stand close together in the switch.
    cold: Box<Cold>,
}

/// Counters that few frames touch.
#[derive(Debug)]
struct Cold {
    rare: Box<[RareRow]>,
    drops: Box<[Drops]>,
}

/// The counters of one input, on their way to another ledger.
#[derive(Debug)]
pub(crate) struct PortCounters([(Row, RareRow, Drops); Priority::COUNT]);

/// Returns the number of an (input, priority).
#[inline]
pub(crate) fn row(input: u16, priority: u8) -> usize {
    usize::from(input) * Priority::COUNT + usize::from(priority)
}

impl Ledger {
    /// Creates the counters of so many inputs.
    pub(crate) fn new(inputs: usize) -> Self {
        let count = inputs * Priority::COUNT;
        let rows = vec![Row::default(); count].into();
        let rare = vec![RareRow::default(); count].into();
        let drops = vec![[Counter::default(); DropReason::COUNT]; count].into();
        Self { rows, cold: Box::new(Cold { rare, drops }) }
    }

    /// Number of rows: inputs times priorities.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Books frames that came in.
    #[inline]
    pub(crate) fn receive(&mut self, input: u16, priority: u8, sum: Counter) {
        self.rows[row(input, priority)].received.add_all(sum);
    }

    /// Books frames that a driver took.
    #[inline]
    pub(crate) fn deliver(&mut self, input: u16, priority: u8, sum: Counter) {
        self.rows[row(input, priority)].delivered.add_all(sum);
    }

    /// Books frames that the switch or its control plane made.
    pub(crate) fn inject(&mut self, input: u16, priority: u8, sum: Counter) {
        self.cold.rare[row(input, priority)].injected.add_all(sum);
    }

    /// Books a copy of a frame.
    pub(crate) fn copy(&mut self, input: u16, priority: u8, sum: Counter) {
        self.cold.rare[row(input, priority)].copied.add_all(sum);
    }

    /// Books frames that were for the switch itself.
    pub(crate) fn consume(&mut self, input: u16, priority: u8, sum: Counter) {
        self.cold.rare[row(input, priority)].consumed.add_all(sum);
    }

    /// Books frames that ended under a reason.
    pub(crate) fn drop(&mut self, input: u16, priority: u8, reason: DropReason, sum: Counter) {
        self.cold.drops[row(input, priority)][reason.index()].add_all(sum);
    }

    /// Charges frames to an (input, priority), and returns the amount that waits there.
    #[inline]
    pub(crate) fn hold(&mut self, input: u16, priority: u8, sum: Held) -> Held {
        let held = &mut self.rows[row(input, priority)].held;
        held.frames += sum.frames;
        held.bytes += sum.bytes;
        *held
    }

    /// Takes a charge back, and returns the amount that still waits.
    #[inline]
    pub(crate) fn release(&mut self, input: u16, priority: u8, sum: Held) -> Held {
        let held = &mut self.rows[row(input, priority)].held;
        held.frames -= sum.frames;
        held.bytes -= sum.bytes;
        *held
    }

    /// Returns the amount that waits at an input in one priority.
    #[inline]
    pub(crate) fn held(&self, input: usize, priority: usize) -> Held {
        self.rows[input * Priority::COUNT + priority].held
    }

    /// Returns the frames of an input that pauses some priorities, in all others.
    #[cold]
    pub(crate) fn held_unpaused(&self, input: u16, paused: PriorityMask) -> Held {
        let mut sum = Held::default();
        for priority in Priority::all().filter(|p| !paused.contains(*p)) {
            let held = self.held(input.into(), priority.index());
            sum.frames += held.frames;
            sum.bytes += held.bytes;
        }
        sum
    }

    /// Returns the frames that came in.
    pub(crate) fn received(&self, input: u16, priority: u8) -> Counter {
        self.rows[row(input, priority)].received
    }

    /// Returns the frames that ended under a reason.
    pub(crate) fn dropped(&self, input: u16, priority: u8, reason: DropReason) -> Counter {
        self.cold.drops[row(input, priority)][reason.index()]
    }

    /// Returns the number of frames that ended under a reason, at any input.
    pub(crate) fn dropped_as(&self, reason: DropReason) -> u64 {
        self.cold.drops.iter().map(|row| row[reason.index()].frames).sum()
    }

    /// Returns true if as many frames of an input ended as came in.
    pub(crate) fn has_ended_all(&self, input: u16) -> bool {
        Priority::all().all(|priority| {
            let row = row(input, priority.get());
            let (one, rare) = (&self.rows[row], &self.cold.rare[row]);
            let dropped: u64 = self.cold.drops[row].iter().map(|drop| drop.frames).sum();
            one.received.frames + rare.injected.frames + rare.copied.frames
                == one.delivered.frames + rare.consumed.frames + dropped
        })
    }

    /// Takes the counters of an input out; they are zero afterwards.
    pub(crate) fn export(&mut self, input: u16) -> PortCounters {
        PortCounters(core::array::from_fn(|priority| {
            let at = usize::from(input) * Priority::COUNT + priority;
            let none = [Counter::default(); DropReason::COUNT];
            (
                mem::take(&mut self.rows[at]),
                mem::take(&mut self.cold.rare[at]),
                mem::replace(&mut self.cold.drops[at], none),
            )
        }))
    }

    /// Adds counters to those of an input. No frame waits under counters that move.
    pub(crate) fn import(&mut self, input: u16, counters: PortCounters) {
        for (priority, (one, rare, drops)) in counters.0.into_iter().enumerate() {
            debug_assert!(one.held.frames == 0, "frames that wait stay at their input");
            let at = usize::from(input) * Priority::COUNT + priority;
            self.rows[at].received.add_all(one.received);
            self.rows[at].delivered.add_all(one.delivered);
            let sum = &mut self.cold.rare[at];
            sum.injected.add_all(rare.injected);
            sum.copied.add_all(rare.copied);
            sum.consumed.add_all(rare.consumed);
            for (sum, drop) in self.cold.drops[at].iter_mut().zip(drops) {
                sum.add_all(drop);
            }
        }
    }

    /// Balances a row, of which `resident` is in the switch.
    pub(crate) fn balance(&self, at: usize, resident: Counter) -> AuditRow {
        let (input, priority) = (at / Priority::COUNT, at % Priority::COUNT);
        let (c, rare) = (&self.rows[at], &self.cold.rare[at]);
        let (mut dropped, mut congestion) = (Counter::default(), Counter::default());
        for reason in DropReason::ALL {
            let counter = self.cold.drops[at][reason.index()];
            dropped.add_all(counter);
            if reason.class() == DropClass::Congestion {
                congestion.add_all(counter);
            }
        }
        let balance = |unit: fn(Counter) -> u64| Balance {
            received: unit(c.received),
            injected: unit(rare.injected),
            copied: unit(rare.copied),
            delivered: unit(c.delivered),
            consumed: unit(rare.consumed),
            resident: unit(resident),
            dropped: unit(dropped),
            dropped_congestion: unit(congestion),
        };
        AuditRow {
            input: InputId::from_index(input),
            priority: Priority::all().nth(priority).expect("below eight"),
            frames: balance(|c| c.frames),
            bytes: balance(|c| c.bytes),
        }
    }
}
