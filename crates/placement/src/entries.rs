//! Entries: whose work is placed, and where it is.

use alloc::vec::Vec;

use sluice_base::Priority;

use crate::share::Share;
use crate::why::Why;
use crate::{CoreIndex, EntryId};

/// What an entry's work took in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryLoad {
    /// Receiving and decapsulation.
    pub decap: Share,
    /// Delivery: the copy, and waking the receiver.
    pub deliver: Share,
}

impl EntryLoad {
    /// Both stages.
    #[must_use]
    pub const fn sum(self) -> Share {
        self.decap.plus(self.deliver)
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryState {
    /// Where all of its work is done, or decapsulation if that is apart.
    pub core: CoreIndex,
    /// Where delivery is done, if apart.
    pub delivery: Option<CoreIndex>,
    /// Its load, averaged.
    pub load: EntryLoad,
    /// Its priority.
    pub priority: Priority,
    /// Why it is there.
    pub why: Why,
    /// Since which period.
    pub since: u32,
    /// The core to which the machine that receives it is pinned, if that is known.
    pub receiver: Option<CoreIndex>,
    /// On the core of its own machine it starved that, and there is a surplus since.
    pub(crate) starved_own: bool,
    /// The load is a guess: nothing was measured yet.
    pub(crate) is_guess: bool,
}

impl EntryState {
    /// What of its work is done on `core`, and whether any is.
    pub(crate) fn on(&self, core: CoreIndex) -> Option<Share> {
        match self.delivery {
            None => (core == self.core).then(|| self.load.sum()),
            Some(delivery) if delivery == core => Some(self.load.deliver),
            Some(_) => (core == self.core).then_some(self.load.decap),
        }
    }

    /// Each core with what is done there.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (CoreIndex, Share)> + use<> {
        let first = if self.delivery.is_some() { self.load.decap } else { self.load.sum() };
        let second = self.delivery.map(|core| (core, self.load.deliver));
        core::iter::once((self.core, first)).chain(second)
    }
}

/// All entries. Those without a core have not been seen yet.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    slots: Vec<Option<EntryState>>,
    /// Those that have a core, in the order in which they came.
    placed: Vec<EntryId>,
    /// Where each is received, placed or not.
    receivers: Vec<Option<CoreIndex>>,
}

impl Entries {
    pub(crate) fn new(count: u32) -> Self {
        let receivers = (0..count).map(|_| None).collect();
        Self { slots: (0..count).map(|_| None).collect(), placed: Vec::new(), receivers }
    }

    /// Where an entry is received.
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

    /// Forgets an entry, whose number may be used for another one.
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
