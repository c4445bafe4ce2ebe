//! Storage of a claim, and of an address of a claim, in as few bytes as possible.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};

use super::arena::{Arena, Item, NONE};
use crate::vport::{Claim, Ips, Key, Origin};

/// A claim. Its addresses are a list of [`IpSlot`]s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Time when the claim won, or came.
    pub(super) since: Nanos,
    /// Time of the last use.
    pub(super) used: Nanos,
    pub(super) frames: u64,
    pub(super) vni: Vni,
    pub(super) moves: u32,
    /// The snapshot of its owner in which the claim was named last.
    pub(super) epoch: u32,
    /// The next claim for the same endpoint.
    pub(super) chain_next: u32,
    pub(super) first_ip: u32,
    links: [Links; 2],
    pub(super) mac: Mac,
    pub(super) port: PortId,
    pub(super) owner: HostId,
    pub(super) origin: Origin,
    /// True if the claim is the first of its chain; only then are its addresses in the index.
    pub(super) winner: bool,
}

const _: () = assert!(size_of::<Slot>() == 72);

impl Slot {
    pub(super) fn new(now: Nanos, owner: HostId, claim: &Claim) -> Self {
        Self {
            since: now,
            used: now,
            frames: 0,
            vni: claim.key.vni,
            moves: claim.moves,
            epoch: 0,
            chain_next: NONE,
            first_ip: NONE,
            links: [Links { prev: NONE, next: NONE }; 2],
            mac: claim.key.mac,
            port: claim.port,
            owner,
            origin: claim.origin,
            winner: false,
        }
    }

    pub(super) const fn key(&self) -> Key {
        Key { vni: self.vni, mac: self.mac }
    }

    /// Returns the claim without its addresses.
    pub(super) fn bare_claim(&self) -> Claim {
        Claim {
            key: self.key(),
            port: self.port,
            ips: Ips::default(),
            origin: self.origin,
            moves: self.moves,
        }
    }
}

impl Item for Slot {
    fn free_link(&mut self) -> &mut u32 {
        &mut self.chain_next
    }
}

/// An address of a claim. Slots of winners with the same address and network form a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpSlot {
    bytes: [u8; 16],
    /// Number of times that the address went from one endpoint to another, in sum.
    pub(super) sequence: u32,
    is_v4: bool,
    /// The claim of the address.
    pub(super) slot: u32,
    /// The next address of the same claim.
    pub(super) next_of_claim: u32,
    /// The addresses of other claims that are the same.
    pub(super) prev_same: u32,
    pub(super) next_same: u32,
}

const _: () = assert!(size_of::<IpSlot>() == 40);

impl IpSlot {
    pub(super) const fn new((ip, sequence): (IpAddr, u32), slot: u32, next_of_claim: u32) -> Self {
        let (bytes, is_v4) = match ip {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                ([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], true)
            }
            IpAddr::V6(v6) => (v6.octets(), false),
        };
        Self { bytes, sequence, is_v4, slot, next_of_claim, prev_same: NONE, next_same: NONE }
    }

    pub(super) const fn ip(&self) -> IpAddr {
        let b = self.bytes;
        if self.is_v4 {
            IpAddr::V4(Ipv4Addr::new(b[0], b[1], b[2], b[3]))
        } else {
            IpAddr::V6(Ipv6Addr::from_octets(b))
        }
    }
}

impl Item for IpSlot {
    fn free_link(&mut self) -> &mut u32 {
        &mut self.next_of_claim
    }
}

#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

/// The two lists of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// The list of its owner.
    Owner = 0,
    /// The list of its network.
    Vnet = 1,
}

/// A list through slots, the newest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn push(&mut self, slots: &mut Arena<Slot>, of: Of, at: u32) {
        let next = self.head;
        slots[at].links[of as usize] = Links { prev: NONE, next };
        if next == NONE {
            self.tail = at;
        } else {
            slots[next].links[of as usize].prev = at;
        }
        self.head = at;
    }

    pub(super) fn remove(&mut self, slots: &mut Arena<Slot>, of: Of, at: u32) {
        let Links { prev, next } = slots[at].links[of as usize];
        if prev == NONE {
            self.head = next;
        } else {
            slots[prev].links[of as usize].next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            slots[next].links[of as usize].prev = prev;
        }
    }

    /// Iterates over the places of the list.
    pub(super) fn iter(self, slots: &Arena<Slot>, of: Of) -> impl Iterator<Item = u32> + '_ {
        let next = move |at: u32| (at != NONE).then_some(at);
        core::iter::successors(next(self.head), move |at| next(slots[*at].links[of as usize].next))
    }
}
