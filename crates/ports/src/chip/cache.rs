//! A chip as a cache of what the switch knows: it holds what was used last, within its capacity.
//!
//! Time is a number of rounds, which the caller counts: one for each time that it asks for hits.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;

use sluice_base::{Mac, PortId, TunnelId, VnetId};

use super::{Capacity, Chip, Entry, Hits, Network, Place, Refused};

type Key = (VnetId, Mac);

/// Figures of a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Addresses in the chip now.
    pub macs: usize,
    /// Those of them that lead to other hosts.
    pub flows: usize,
    /// Addresses written.
    pub put: u64,
    /// Addresses that went for want of a place.
    pub evicted: u64,
    /// Addresses that found no place, as all others were in use.
    pub full: u64,
    /// Writes that the chip refused: busy, or broken.
    pub refused: u64,
    /// Changes by others that were put right.
    pub mended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    entry: Entry,
    /// Round of its last use.
    used: u64,
}

/// A chip, and what it holds.
#[derive(Debug)]
pub struct Cache<C> {
    chip: C,
    held: HashMap<Key, Held>,
    /// The same by last use, for all and for flows.
    by_use: [BTreeSet<(u64, Key)>; 2],
    round: u64,
    figures: Figures,
}

const ALL: usize = 0;
const FLOWS: usize = 1;

impl<C: Chip> Cache<C> {
    /// Makes the cache of an empty chip.
    pub fn new(chip: C) -> Self {
        let (held, by_use) = (HashMap::new(), Default::default());
        Self { chip, held, by_use, round: 0, figures: Figures::default() }
    }

    /// The chip.
    pub const fn chip(&self) -> &C {
        &self.chip
    }

    /// The chip, for what does not change what it holds.
    pub const fn chip_mut(&mut self) -> &mut C {
        &mut self.chip
    }

    /// Returns what the chip can hold.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.chip.capacity()
    }

    /// Frames that the chip forwarded.
    ///
    /// # Errors
    /// As the chip.
    pub fn forwarded(&self) -> Result<u64, Refused> {
        self.chip.forwarded()
    }

    /// Returns what it did.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let [macs, flows] = [ALL, FLOWS].map(|of| self.by_use[of].len());
        Figures { macs, flows, ..self.figures }
    }

    /// Iterates over what it holds.
    pub fn entries(&self) -> impl Iterator<Item = (VnetId, Mac, Entry)> + '_ {
        self.held.iter().map(|(&(vnet, mac), held)| (vnet, mac, held.entry))
    }

    /// Adds a network.
    ///
    /// # Errors
    /// As the chip.
    pub fn add_network(&mut self, network: Network) -> Result<(), Refused> {
        self.chip.add_network(network)
    }

    /// Removes a network with its addresses.
    ///
    /// # Errors
    /// As the chip.
    pub fn remove_network(&mut self, vnet: VnetId) -> Result<(), Refused> {
        self.drop_where(|(of, _), _| *of == vnet);
        self.chip.remove_network(vnet)
    }

    /// Adds a port.
    ///
    /// # Errors
    /// As the chip.
    pub fn add_port(&mut self, port: PortId, vnet: VnetId, device: &str) -> Result<(), Refused> {
        self.chip.add_port(port, vnet, device)
    }

    /// Removes a port with its addresses.
    ///
    /// # Errors
    /// As the chip.
    pub fn remove_port(&mut self, port: PortId) -> Result<(), Refused> {
        self.drop_where(|_, entry| entry.to == Place::Port(port));
        self.chip.remove_port(port)
    }

    /// Takes frames of a network from another host, or no more.
    ///
    /// # Errors
    /// As the chip.
    pub fn set_decap(
        &mut self,
        vnet: VnetId,
        tunnel: (TunnelId, Ipv4Addr),
        is_on: bool,
    ) -> Result<(), Refused> {
        self.chip.set_decap(vnet, tunnel, is_on)
    }

    /// Writes an address that was just used. One that is held stays where it is in the order of
    /// use. Of equal kinds the address that was not used for longest makes room, and none that was
    /// used in this round or the last one does: an address that would throw out such a one stays
    /// with the switch.
    ///
    /// # Errors
    /// [`Refused::Full`] in that case, or as the chip.
    pub fn put(&mut self, vnet: VnetId, mac: Mac, entry: Entry) -> Result<(), Refused> {
        let key = (vnet, mac);
        if self.held.get(&key).is_some_and(|held| held.entry == entry) {
            return Ok(());
        }
        // Out first, so that an address that moves does not take two places.
        self.take_out(key)?;
        let room = self.chip.capacity();
        if entry.to.is_flow() && self.by_use[FLOWS].len() >= room.flows {
            self.evict(FLOWS)?;
        }
        if self.by_use[ALL].len() >= room.macs {
            self.evict(ALL)?;
        }
        loop {
            match self.chip.put(vnet, mac, entry) {
                Ok(()) => break,
                // It holds less than it said.
                Err(Refused::Full) => self.evict(ALL)?,
                Err(other) => {
                    self.figures.refused += 1;
                    return Err(other);
                }
            }
        }
        self.hold(key, entry);
        Ok(())
    }

    /// Writes addresses as [`Self::put`] does, those for which there is room by few calls of the
    /// chip.
    ///
    /// # Errors
    /// The first one, but for want of a place, or of the network or port: the switch forwards
    /// these.
    pub fn put_all(
        &mut self,
        entries: impl IntoIterator<Item = (VnetId, Mac, Entry)>,
    ) -> Result<(), Refused> {
        let mut first = Ok(());
        let (mut together, mut keys) = (Vec::new(), HashSet::new());
        for (vnet, mac, entry) in entries {
            let key = (vnet, mac);
            let held = self.held.get(&key);
            if held.is_some_and(|held| held.entry == entry) && !keys.contains(&key) {
                continue;
            }
            if held.is_none() && self.has_room(&together, entry) && keys.insert(key) {
                together.push((vnet, mac, entry));
                continue;
            }
            first = first.and(self.put_new(&std::mem::take(&mut together)));
            keys.clear();
            first = first.and(without_want(self.put(vnet, mac, entry)));
        }
        first.and(self.put_new(&together))
    }

    /// True if there is room for an address beside those that are about to be written.
    fn has_room(&self, together: &[(VnetId, Mac, Entry)], entry: Entry) -> bool {
        let room = self.chip.capacity();
        let flows = together.iter().filter(|(.., entry)| entry.to.is_flow()).count();
        self.by_use[ALL].len() + together.len() < room.macs
            && (!entry.to.is_flow() || self.by_use[FLOWS].len() + flows < room.flows)
    }

    /// Writes addresses that are not held, and for which there is room.
    fn put_new(&mut self, entries: &[(VnetId, Mac, Entry)]) -> Result<(), Refused> {
        let mut refused = self.chip.put_all(entries).into_iter().peekable();
        let (mut first, mut again) = (Ok(()), Vec::new());
        for (at, &(vnet, mac, entry)) in entries.iter().enumerate() {
            match refused.next_if(|(of, _)| *of == at) {
                None => self.hold((vnet, mac), entry),
                // It holds less than it said.
                Some((_, Refused::Full)) => again.push((vnet, mac, entry)),
                Some((_, other)) => {
                    self.figures.refused += 1;
                    first = first.and(without_want(Err(other)));
                }
            }
        }
        for (vnet, mac, entry) in again {
            first = first.and(without_want(self.put(vnet, mac, entry)));
        }
        first
    }

    fn hold(&mut self, key: Key, entry: Entry) {
        self.figures.put += 1;
        let held = Held { entry, used: self.round };
        self.held.insert(key, held);
        self.list(key, held);
    }

    /// Removes an address, if it is held.
    ///
    /// # Errors
    /// As the chip; then it is still held.
    pub fn remove(&mut self, vnet: VnetId, mac: Mac) -> Result<(), Refused> {
        self.take_out((vnet, mac))
    }

    /// Begins a round: reports the addresses that were used since the last one.
    ///
    /// # Errors
    /// As the chip.
    pub fn hits(&mut self, mut each: impl FnMut(VnetId, Mac, Hits)) -> Result<(), Refused> {
        self.round += 1;
        let round = self.round;
        let (held, by_use) = (&mut self.held, &mut self.by_use);
        self.chip.hits(&mut |vnet, mac, hits| {
            let key = (vnet, mac);
            let Some(known) = held.get_mut(&key) else { return };
            for of in lists(known.entry) {
                by_use[of].remove(&(known.used, key));
                by_use[of].insert((round, key));
            }
            known.used = round;
            each(vnet, mac, hits);
        })
    }

    /// Puts right what others changed.
    ///
    /// # Errors
    /// As the chip.
    pub fn mend(&mut self) -> Result<(), Refused> {
        self.figures.mended += self.chip.mend()?;
        Ok(())
    }

    fn evict(&mut self, of: usize) -> Result<(), Refused> {
        let oldest = self.by_use[of].first().copied();
        match oldest {
            Some((used, key)) if used + 1 < self.round || self.round == 0 => {
                self.take_out(key)?;
                self.figures.evicted += 1;
                Ok(())
            }
            _ => {
                self.figures.full += 1;
                Err(Refused::Full)
            }
        }
    }

    fn take_out(&mut self, key: Key) -> Result<(), Refused> {
        let Some(held) = self.held.get(&key).copied() else { return Ok(()) };
        if let Err(refused) = self.chip.remove(key.0, key.1) {
            self.figures.refused += 1;
            return Err(refused);
        }
        self.unlist(key, held);
        self.held.remove(&key);
        Ok(())
    }

    /// Forgets addresses that the chip removes by itself.
    fn drop_where(&mut self, goes: impl Fn(&Key, &Entry) -> bool) {
        let gone: Vec<Key> = self
            .held
            .iter()
            .filter(|(key, held)| goes(key, &held.entry))
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            if let Some(held) = self.held.remove(&key) {
                self.unlist(key, held);
            }
        }
    }

    fn list(&mut self, key: Key, held: Held) {
        for of in lists(held.entry) {
            self.by_use[of].insert((held.used, key));
        }
    }

    fn unlist(&mut self, key: Key, held: Held) {
        for of in lists(held.entry) {
            self.by_use[of].remove(&(held.used, key));
        }
    }
}

/// Want of a place, or of the network or port, is no error of the chip.
fn without_want(done: Result<(), Refused>) -> Result<(), Refused> {
    match done {
        Err(Refused::Full | Refused::Unknown) => Ok(()),
        done => done,
    }
}

/// Returns the orders in which an entry stands.
fn lists(entry: Entry) -> impl Iterator<Item = usize> {
    std::iter::once(ALL).chain(entry.to.is_flow().then_some(FLOWS))
}

#[cfg(test)]
mod tests;
