//! Checkers: one history everywhere, nothing applied against a veto, nothing lost that was
//! answered.

use std::collections::{BTreeMap, BTreeSet};

use sluice_base::Nanos;
use sluice_control::commit::{
    Done, Epoch, Outcome, Refused, Replica as _, Revision, Status, Timing, Transaction, TxnId,
};

use super::doc::Doc;

/// Counts, so that a test in which nothing happens is seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) committed: u64,
    pub(crate) vetoed: u64,
    pub(crate) no_quorum: u64,
    pub(crate) conflicts: u64,
    pub(crate) too_late: u64,
    pub(crate) in_doubt: u64,
    pub(crate) undone: u64,
    pub(crate) unfit: u64,
}

pub(crate) struct Checker {
    first: Doc<2>,
    /// Hash at each revision of each epoch.
    hashes: BTreeMap<(u32, Revision), (u64, u16)>,
    /// The one history.
    history: BTreeMap<Revision, Transaction>,
    /// Transactions that were answered as committed.
    promised: BTreeMap<Revision, TxnId>,
    begun: BTreeMap<TxnId, Nanos>,
    vetoed: BTreeSet<TxnId>,
    /// Hosts that an originator has lost sight of since the transaction began.
    unseen: BTreeSet<(TxnId, u16)>,
    /// Revision that each host had in force last, and the last that it has answered for.
    in_force: BTreeMap<u16, Revision>,
    answered: BTreeMap<u16, Revision>,
    pub(crate) counts: Counts,
}

impl Checker {
    pub(crate) fn new(first: Doc<2>) -> Self {
        Self {
            first,
            hashes: BTreeMap::new(),
            history: BTreeMap::new(),
            promised: BTreeMap::new(),
            begun: BTreeMap::new(),
            vetoed: BTreeSet::new(),
            unseen: BTreeSet::new(),
            in_force: BTreeMap::new(),
            answered: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// Compares what a host has applied with all others.
    pub(crate) fn look(&mut self, host: u16, status: &Status) {
        let Some(progress) = status.progress.filter(|_| !status.is_stale) else { return };
        let place = (status.epoch.number, progress.revision);
        let (hash, other) = *self.hashes.entry(place).or_insert((progress.hash, host));
        assert_eq!(hash, progress.hash, "hosts {other} and {host} differ at revision {}", place.1);
    }

    /// Returns the last revision that any host has applied.
    pub(crate) fn newest(&self) -> Revision {
        self.hashes.keys().next_back().map_or(0, |(_, revision)| *revision)
    }

    pub(crate) fn begun(&mut self, now: Nanos, id: TxnId) {
        self.begun.entry(id).or_insert(now);
    }

    /// The originator no longer counts a host as live.
    pub(crate) fn lost_sight(&mut self, viewer: u16, peer: u16) {
        let ids = self.begun.keys().filter(|id| id.host.0 == viewer);
        self.unseen.extend(ids.map(|id| (*id, peer)));
    }

    /// A host has forgotten its vetoes, which are not durable: its next vote counts.
    pub(crate) fn crashed(&mut self, host: u16) {
        self.unseen.extend(self.begun.keys().map(|id| (*id, host)));
    }

    /// The clock of an originator has jumped: its time for votes may be over.
    pub(crate) fn clock_jumped(&mut self, host: u16) {
        self.begun.retain(|id, _| id.host.0 != host);
    }

    /// A vote without a verdict has reached the originator, which waits for no other of this host.
    pub(crate) fn behind_arrived(&mut self, host: u16, id: TxnId) {
        self.unseen.insert((id, host));
    }

    /// A veto has reached the originator, while it waited for votes.
    pub(crate) fn veto_arrived(&mut self, now: Nanos, from: u16, id: TxnId) {
        let Some(begun) = self.begun.get(&id) else { return };
        let in_time = now < begun.after(Timing::default().reserve);
        if in_time && !self.unseen.contains(&(id, from)) {
            self.vetoed.insert(id);
        }
    }

    pub(crate) fn applied(&mut self, record: &Transaction) {
        let old = self.history.entry(record.revision).or_insert_with(|| record.clone());
        assert_eq!(old, record, "two histories");
        let is_applied = record.outcome == Outcome::Applied;
        assert!(
            !is_applied || record.undoes || !self.vetoed.contains(&record.id),
            "a veto counted"
        );
        self.counts.undone += u64::from(record.undoes);
    }

    /// A host has put a revision in force.
    pub(crate) fn in_force(&mut self, host: u16, revision: Revision) {
        self.in_force.insert(host, revision);
    }

    /// A host has put another state in force. That of a newer epoch may be of an earlier revision.
    pub(crate) fn installed(&mut self, host: u16, revision: Revision) {
        self.in_force.insert(host, revision);
        self.answered.entry(host).and_modify(|answered| *answered = revision.min(*answered));
    }

    /// A machine lost its power: nothing is in force there, and its answers count.
    pub(crate) fn lost_power(&mut self, host: u16) {
        let answered = self.answered.get(&host).copied();
        self.in_force.insert(host, answered.unwrap_or_default());
    }

    /// A host has another disk.
    pub(crate) fn forgets(&mut self, host: u16) {
        self.in_force.remove(&host);
        self.answered.remove(&host);
    }

    /// A host starts: never with less than it had in force, or has answered for.
    pub(crate) fn started(&mut self, host: u16, revision: Revision) {
        let before = self.in_force.get(&host).copied().unwrap_or_default();
        assert!(before <= revision, "host {host} had revision {before}, and starts at {revision}");
        self.in_force.insert(host, revision);
    }

    pub(crate) fn answered(&mut self, host: u16, has_disk: bool, result: &Result<Done, Refused>) {
        let count = match result {
            Ok(Done::Committed { revision, id }) => {
                if has_disk {
                    self.answered.insert(host, *revision);
                }
                self.promised.insert(*revision, *id);
                &mut self.counts.committed
            }
            Err(Refused::Vetoed(_)) => &mut self.counts.vetoed,
            Err(Refused::NoQuorum { .. }) => &mut self.counts.no_quorum,
            Err(Refused::Conflict(_)) => &mut self.counts.conflicts,
            Err(Refused::TooLate(_)) => &mut self.counts.too_late,
            Err(Refused::InDoubt(_)) => &mut self.counts.in_doubt,
            Err(Refused::Unfit(_)) => &mut self.counts.unfit,
            _ => return,
        };
        *count += 1;
    }

    /// A new epoch begins with the entries up to its base: later ones were given up.
    pub(crate) fn recovered(&mut self, epoch: Epoch) {
        self.history.retain(|revision, _| *revision <= epoch.base);
        self.promised.retain(|revision, _| *revision <= epoch.base);
    }

    /// Returns the document after the one history, from which everything that was promised must
    /// follow.
    pub(crate) fn document(&self) -> Doc<2> {
        for (revision, id) in &self.promised {
            let record = self.history.get(revision);
            let record = record.unwrap_or_else(|| panic!("{id} at {revision} is lost"));
            assert_eq!((record.id, &record.outcome), (*id, &Outcome::Applied), "{id} is lost");
        }
        let mut doc = self.first.clone();
        let applied = self.history.values().filter(|record| record.outcome == Outcome::Applied);
        let mut seen = BTreeSet::new();
        for record in applied {
            let inverse = doc.apply(&record.change).expect("it was applied before");
            assert_eq!(inverse, record.inverse, "another inverse");
            assert!(record.undoes || seen.insert(record.id), "{} is applied twice", record.id);
        }
        doc
    }
}
