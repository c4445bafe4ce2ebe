//! Connections of a listener that anybody may reach, limited in number and by address.
//!
//! Where there is no room, the oldest connection that has not said what it wants yet makes room: of
//! the same address if that has as many as it may have, otherwise of the address with the most.
//! A host that joins says it within milliseconds. One that is slow on purpose holds its place only
//! while nobody else needs it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most connections.
pub(super) const SLOTS_MAX: usize = 32;
/// Most connections of an address.
pub(super) const SLOTS_PER_ADDRESS: usize = 8;

/// The connections of a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Open<TcpStream>>>);

/// Connections in the order of their numbers, the oldest first.
#[derive(Debug)]
struct Open<S> {
    next: u64,
    slots: BTreeMap<u64, Slot<S>>,
}

#[derive(Debug)]
struct Slot<S> {
    from: IpAddr,
    /// Handle with which the connection is ended.
    stream: S,
    /// True until its request has been read.
    is_waiting: bool,
}

impl<S> Default for Open<S> {
    fn default() -> Self {
        Self { next: 0, slots: BTreeMap::new() }
    }
}

impl<S> Open<S> {
    /// Adds a connection, and returns its number and the connection that makes room for it; `None`
    /// if there is no room and nobody to make it.
    fn add(&mut self, from: IpAddr, stream: S) -> Option<(u64, Option<Slot<S>>)> {
        let of = |from: IpAddr| self.slots.values().filter(|slot| slot.from == from).count();
        let from_whom = if of(from) >= SLOTS_PER_ADDRESS {
            Some(from)
        } else if self.slots.len() >= SLOTS_MAX {
            let waiting = self.slots.values().filter(|slot| slot.is_waiting);
            Some(waiting.map(|slot| slot.from).max_by_key(|from| of(*from))?)
        } else {
            None
        };
        let ended = match from_whom {
            Some(whom) => {
                let is_oldest = |(_, slot): &(&u64, &Slot<S>)| slot.is_waiting && slot.from == whom;
                let number = *self.slots.iter().find(is_oldest)?.0;
                self.slots.remove(&number)
            }
            None => None,
        };
        let number = self.next;
        self.next += 1;
        self.slots.insert(number, Slot { from, stream, is_waiting: true });
        Some((number, ended))
    }
}

/// Place of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    slots: Slots,
    number: u64,
}

impl Slots {
    fn open(&self) -> MutexGuard<'_, Open<TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; another one may be ended for it. `None`: there is no room.
    pub(super) fn take(&self, from: IpAddr, stream: &TcpStream) -> Option<Ticket> {
        let handle = stream.try_clone().ok()?;
        let (number, ended) = self.open().add(from, handle)?;
        if let Some(slot) = ended {
            // It may be gone by itself.
            _ = slot.stream.shutdown(Shutdown::Both);
        }
        Some(Ticket { slots: self.clone(), number })
    }
}

impl Ticket {
    /// Notes that the request is complete: nobody takes the place from now on. Returns false if
    /// somebody has.
    pub(super) fn keep(&self) -> bool {
        let mut open = self.slots.open();
        let slot = open.slots.get_mut(&self.number);
        slot.map(|slot| slot.is_waiting = false).is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.slots.open().slots.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn slot_oldest_of_same_address_makes_room() {
        let mut open = Open::default();
        assert!(open.add(host(9), 99).is_some());
        for stream in 0..SLOTS_PER_ADDRESS {
            let (_, ended) = open.add(host(1), stream).unwrap();
            assert!(ended.is_none());
        }
        let ended = open.add(host(1), 50).unwrap().1.unwrap();
        assert_eq!((ended.from, ended.stream), (host(1), 0));
        assert_eq!(open.slots.len(), 1 + SLOTS_PER_ADDRESS);
    }

    #[test]
    fn slots_full_greediest_address_makes_room() {
        let mut open = Open::default();
        for n in 0..SLOTS_MAX - 2 {
            // Two of each but one, which has four.
            let n = u8::try_from(n / 2).unwrap();
            open.add(host(n), n).unwrap();
        }
        open.add(host(7), 77).unwrap();
        open.add(host(7), 78).unwrap();
        assert_eq!(open.slots.len(), SLOTS_MAX);
        let ended = open.add(host(200), 0).unwrap().1.unwrap();
        assert_eq!((ended.from, ended.stream), (host(7), 7));
        assert_eq!(open.slots.len(), SLOTS_MAX);
    }

    #[test]
    fn slot_with_request_not_taken_away() {
        let mut open = Open::default();
        for stream in 0..SLOTS_PER_ADDRESS {
            open.add(host(1), stream).unwrap();
        }
        for slot in open.slots.values_mut() {
            slot.is_waiting = false;
        }
        assert!(open.add(host(1), 50).is_none());
        assert!(open.add(host(2), 51).is_some());
    }
}
