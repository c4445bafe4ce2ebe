//! Entries: their load and their cores.

use alloc::vec::Vec;

use sluice_base::Priority;

use crate::share::Share;
use crate::why::Why;
use crate::{CoreIndex, EntryId};

/// Load of an entry in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryLoad {
    /// Receiving and decapsulation.
    pub decap: Share,
    /// Delivery: the copy, and the wake-up of the receiver.
    pub deliver: Share,
}

impl EntryLoad {
    /// Both stages.
    #[must_use]
    pub const fn sum(self) -> Share {
        self.decap.plus(self.deliver)
    }
}

/// State of a placed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryState {
    /// Core of all of its work, or of decapsulation if delivery is apart.
    pub core: CoreIndex,
    /// Core of its delivery, if apart.
    pub delivery: Option<CoreIndex>,
    /// Its load, averaged.
    pub load: EntryLoad,
    /// Its priority.
    pub priority: Priority,
    /// Reason of its place.
    pub why: Why,
    /// Period in which it came there.
    pub since: u32,
    /// Core to which the machine that receives it is pinned, if known.
    pub receiver: Option<CoreIndex>,
    /// True if it starved its own machine on the machine's core, and there has been an overflow
    /// since.
    pub(crate) starved_own: bool,
    /// True if the load is a guess: nothing was measured yet.
    pub(crate) is_guess: bool,
}

impl EntryState {
    /// Returns the part of its work on `core`; `None` if there is none.
    pub(crate) fn on(&self, core: CoreIndex) -> Option<Share> {
        match self.delivery {
            None => (core == self.core).then(|| self.load.sum()),
            Some(delivery) if delivery == core => Some(self.load.deliver),
            Some(_) => (core == self.core).then_some(self.load.decap),
        }
    }

    /// Each core with its part of the work.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (CoreIndex, Share)> + use<> {
        let first = if self.delivery.is_some() { self.load.decap } else { self.load.sum() };
        let second = self.delivery.map(|core| (core, self.load.deliver));
        core::iter::once((self.core, first)).chain(second)
    }
}

/// All entries. Entries without a core have not been seen yet.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    slots: Vec<Option<EntryState>>,
    /// Entries that have a core, in order of arrival.
    placed: Vec<EntryId>,
    /// Core of the receiving machine of each entry, placed or not.
    receivers: Vec<Option<CoreIndex>>,
}

impl Entries {
    pub(crate) fn new(count: u32) -> Self {
        let receivers = (0..count).map(|_| None).collect();
        Self { slots: (0..count).map(|_| None).collect(), placed: Vec::new(), receivers }
    }

    /// Core of the machine that receives an entry.
    pub(crate) fn receiver(&self, entry: EntryId) -> Option<CoreIndex> {
        self.receivers[entry.index()]
    }

    pub(crate) fn set_receiver(&mut self, entry: EntryId, receiver: Option<CoreIndex>) {
        self.receivers[entry.index()] = receiver;
        if let Some(state) = self.get_mut(entry) {
            state.receiver = receiver;
        }
    }

    #[inline]
    pub(crate) fn get(&self, entry: EntryId) -> Option<&EntryState> {
        self.slots.get(entry.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, entry: EntryId) -> Option<&mut EntryState> {
        self.slots.get_mut(entry.index())?.as_mut()
    }

    pub(crate) fn put(&mut self, entry: EntryId, state: EntryState) {
        if self.slots[entry.index()].replace(state).is_none() {
            self.placed.push(entry);
        }
    }

    /// Forgets an entry; its number may be used for another one.
    pub(crate) fn take(&mut self, entry: EntryId) -> Option<EntryState> {
        let state = self.slots.get_mut(entry.index())?.take()?;
        self.receivers[entry.index()] = None;
        self.placed.retain(|other| *other != entry);
        Some(state)
    }

    pub(crate) fn forget_starved(&mut self) {
        self.slots.iter_mut().flatten().for_each(|state| state.starved_own = false);
    }

    pub(crate) fn placed(&self) -> &[EntryId] {
        &self.placed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, &EntryState)> {
        self.placed.iter().filter_map(|&entry| Some((entry, self.get(entry)?)))
    }
}
