//! The sender's host: endpoints that other hosts ask to be held here.
//!
//! ```text
//!              a state names it, its host may speak for it
//!   (none) ────────────────────────────────────────────────> KNOWN ──┐ it is installed,
//!     ^                                                       ^      │ and there is room
//!     │ a later state does not name it; nothing was heard     │      v
//!     │ for a lease; its host is dead; it is elsewhere      HELD <───┘
//!     └───────────────────────────────────────────────────────┘ command to data, again and again
//! ```
//!
//! No frame is sent to an endpoint that is not in the forwarding table (FDB), so that only
//! installed endpoints take one of the places that a switch has.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, PriorityMask, Vni};
use sluice_wire::fabric::HoldPart;

use super::{LEASE, RENEW_EVERY};
use crate::vport::Key;

/// Number of endpoints that are remembered, of all hosts.
const KNOWN_MAX: usize = 1024;
/// Number of endpoints that are held: as many places as a switch has.
const HELD_MAX: usize = 64;

/// An endpoint that is to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its host, which asked for the hold.
    pub host: HostId,
    /// Priorities to be held.
    pub held: PriorityMask,
    /// Held priorities whose hold contract is over.
    pub stuck: PriorityMask,
    /// Time at which the hold was asked for.
    pub since: Nanos,
    /// True if the data process has the command.
    pub is_held: bool,
    /// Number of the last state that named the endpoint.
    order: (u64, u64),
}

/// Command for the data process: hold an endpoint behind a host, or release it if there are no
/// priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldCommand {
    /// The endpoint.
    pub key: Key,
    /// Its host.
    pub host: HostId,
    /// Priorities to be held.
    pub held: PriorityMask,
    /// Held priorities whose frames are dropped.
    pub stuck: PriorityMask,
}

/// Beginning or end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A host asks for an endpoint to be held.
    Begun(Key, HostId),
    /// The endpoint is not to be held any more.
    Ended(Key, HostId),
}

/// Counters of messages and endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were not above the last one.
    pub old: u64,
    /// Endpoints that the host may not speak for.
    pub disbelieved: u64,
    /// Endpoints for which there was no room.
    pub refused: u64,
}

/// The last state of a host.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Incarnation and sequence. They outlive the session: an old message may come late.
    order: (u64, u64),
    parts: u8,
    /// Parts that came, a bit each.
    came: u8,
    until: Nanos,
}

/// Holds that other hosts ask of this host.
#[derive(Debug, Default)]
pub struct HoldResponder {
    said: BTreeMap<HostId, Said>,
    entries: BTreeMap<Key, Entry>,
    held: usize,
    /// Commands for the data process, the last for each endpoint.
    orders: BTreeMap<Key, HoldCommand>,
    turns: VecDeque<Turn>,
    renew_at: Nanos,
    counts: Counts,
}

impl HoldResponder {
    /// Takes one part of a host's state. `believes` returns true if the host may speak for an
    /// endpoint, `installed` if the endpoint is in the forwarding table as that host's.
    pub fn heard(
        &mut self,
        now: Nanos,
        host: HostId,
        part: &HoldPart<'_>,
        believes: impl Fn(Key) -> bool,
        installed: impl Fn(Key) -> bool,
    ) {
        let place = part.order();
        let order = (place.incarnation, place.sequence);
        let said = self.said.entry(host).or_default();
        let bit = 1 << place.part;
        if order < said.order || (order == said.order && said.came & bit != 0) {
            self.counts.old += 1;
            return;
        }
        if order > said.order {
            *said = Said { order, parts: place.parts, came: 0, until: now };
        }
        said.came |= bit;
        said.until = now.after(LEASE);
        let is_whole = said.came.count_ones() == u32::from(said.parts);
        for one in part.iter().filter(|one| !one.held.is_empty()) {
            let key = Key { vni: one.vni, mac: one.mac };
            if !believes(key) {
                self.counts.disbelieved += 1;
                continue;
            }
            self.put(now, key, host, (one.held, one.stuck), order);
            if installed(key) {
                self.hold(now, key);
            }
        }
        if is_whole {
            self.let_go(|_, entry| entry.host == host && entry.order != order);
        }
    }

    fn put(
        &mut self,
        now: Nanos,
        key: Key,
        host: HostId,
        (held, stuck): (PriorityMask, PriorityMask),
        order: (u64, u64),
    ) {
        if self.entries.get(&key).is_some_and(|entry| entry.host != host) {
            self.let_go(|one, _| one == key);
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            let changes = (entry.held, entry.stuck) != (held, stuck);
            (entry.held, entry.stuck, entry.order) = (held, stuck, order);
            if changes && entry.is_held {
                self.orders.insert(key, HoldCommand { key, host, held, stuck });
            }
        } else if self.entries.len() < KNOWN_MAX {
            let entry = Entry { host, held, stuck, since: now, is_held: false, order };
            self.entries.insert(key, entry);
            self.turns.push_back(Turn::Begun(key, host));
        } else {
            self.counts.refused += 1;
        }
    }

    /// Tells the data process to hold an endpoint, if there is room.
    fn hold(&mut self, now: Nanos, key: Key) {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.is_held) else { return };
        if self.held == HELD_MAX {
            self.counts.refused += 1;
            return;
        }
        if self.held == 0 {
            self.renew_at = now.after(RENEW_EVERY);
        }
        entry.is_held = true;
        self.held += 1;
        let Entry { host, held, stuck, .. } = *entry;
        self.orders.insert(key, HoldCommand { key, host, held, stuck });
    }

    /// Tells the data process to release an endpoint.
    fn release(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.is_held) else { return };
        entry.is_held = false;
        self.held -= 1;
        let (held, stuck, host) = (PriorityMask::NONE, PriorityMask::NONE, entry.host);
        self.orders.insert(key, HoldCommand { key, host, held, stuck });
    }

    fn let_go(&mut self, which: impl Fn(Key, &Entry) -> bool) {
        let found = self.entries.iter().filter(|(key, entry)| which(**key, entry));
        let found: Vec<_> = found.map(|(key, entry)| (*key, entry.host)).collect();
        for (key, host) in found {
            self.release(key);
            self.entries.remove(&key);
            self.turns.push_back(Turn::Ended(key, host));
        }
    }

    /// Releases the holds of a host that is dead.
    pub fn end_host(&mut self, host: HostId) {
        self.let_go(|_, entry| entry.host == host);
    }

    /// Forgets a host that is no member any more, and its last state.
    pub fn remove_host(&mut self, host: HostId) {
        self.end_host(host);
        self.said.remove(&host);
    }

    /// Notes that an endpoint has moved to host `to`, or is gone.
    pub fn moved(&mut self, key: Key, to: Option<HostId>) {
        if self.entries.get(&key).is_some_and(|entry| Some(entry.host) != to) {
            self.let_go(|one, _| one == key);
        }
    }

    /// Releases all endpoints of a network that this host has no more.
    pub fn end_vnis(&mut self, vnis: &BTreeSet<Vni>) {
        self.let_go(|key, _| vnis.contains(&key.vni));
    }

    /// Notes that an endpoint was put into the forwarding table, as behind this host.
    pub fn installed(&mut self, now: Nanos, key: Key, host: HostId) {
        if self.entries.get(&key).is_some_and(|entry| entry.host == host) {
            self.hold(now, key);
        }
    }

    /// Notes that an endpoint was taken out of the forwarding table.
    pub fn uninstalled(&mut self, key: Key) {
        self.release(key);
    }

    /// Notes that the switch has restarted: it holds nothing and its forwarding table is empty.
    pub fn fdb_lost(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.is_held = false);
        self.held = 0;
        self.orders.clear();
    }

    /// Releases endpoints whose lease is over, and renews the other holds at the data process.
    pub fn advance(&mut self, now: Nanos, installed: impl Fn(Key, HostId) -> bool) {
        let over = |said: &Said| said.until <= now;
        let silent = self.said.iter().filter(|(_, said)| over(said)).map(|(host, _)| *host);
        for host in silent.collect::<Vec<_>>() {
            self.end_host(host);
        }
        if self.entries.is_empty() || now < self.renew_at {
            return;
        }
        self.renew_at = now.after(RENEW_EVERY);
        let known = self.entries.iter().map(|(key, entry)| (*key, *entry)).collect::<Vec<_>>();
        for (key, entry) in known {
            let Entry { host, held, stuck, is_held, .. } = entry;
            if is_held {
                self.orders.insert(key, HoldCommand { key, host, held, stuck });
            } else if self.held < HELD_MAX && installed(key, host) {
                self.hold(now, key);
            }
        }
    }

    /// Returns the time at which [`Self::advance`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.entries.is_empty() {
            return None;
        }
        let speaks = |host: &HostId| self.entries.values().any(|entry| entry.host == *host);
        let leases = self.said.iter().filter(|(host, _)| speaks(host)).map(|(_, said)| said.until);
        leases.chain([self.renew_at]).min()
    }

    /// Returns the next command for the data process. Take all.
    pub fn order(&mut self) -> Option<HoldCommand> {
        self.orders.pop_first().map(|(_, command)| command)
    }

    /// Returns the next beginning or end of a hold. Take all.
    pub fn turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    /// Number of commands that wait to be taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.orders.len()
    }

    /// Iterates over the endpoints that are to be held, in order.
    pub fn entries(&self) -> impl Iterator<Item = (Key, &Entry)> + '_ {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    /// Returns the hold of an endpoint.
    #[must_use]
    pub fn entry(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}
