//! A vport: one endpoint of a tenant's network, and the claim of a host on it.
//!
//! A host that has an endpoint at one of its ports publishes a [`Claim`]. Claims of several hosts
//! for one endpoint are ordered ([`Claim::beats`]) in the same way everywhere, so that hosts which
//! know the same claims agree on the host of the endpoint. The order is that of MAC mobility (RFC
//! 7432 clause 15): the higher sequence of moves wins, and of equals the lower host.
//!
//! An IP address moves between endpoints as a MAC moves between hosts, so each address of a claim
//! has a sequence of its own. An endpoint that announces an address of another one claims it with
//! the next higher sequence.
//!
//! A bound endpoint has the addresses that it is bound with, and may share others that its port
//! allows ([`Precedence`]). Shared addresses move by announcements, as the addresses of unbound
//! endpoints do. Their sequences begin at [`IP_SEQUENCE_SHARED`], which tells shared and bound
//! addresses apart on the wire.

use core::net::IpAddr;

use sluice_base::{HostId, Mac, PortId, Vni};

/// An endpoint: its network as it is numbered on the wire, and its address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The network. Numbers of networks on a host ([`sluice_base::VnetId`]) are local to that host.
    pub vni: Vni,
    /// The address.
    pub mac: Mac,
}

/// Largest number of known IP addresses of a vport.
pub const IPS_MAX: usize = 4;

/// Sequence of an address that no other endpoint has claimed before.
pub const IP_SEQUENCE_FIRST: u32 = 1;

/// Sequence of an address that is bound to an endpoint whose link is down: no other endpoint may
/// have it, and no host answers for it.
pub const IP_SEQUENCE_DOWN: u32 = 0;

/// Lowest sequence of an address that a bound endpoint shares. Lower sequences are left to the
/// addresses that it is bound with.
pub const IP_SEQUENCE_SHARED: u32 = 1 << 31;

/// The IP addresses of a vport, without order and without doubles, each with its sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ips {
    places: [Option<IpAddr>; IPS_MAX],
    sequences: [u32; IPS_MAX],
}

/// A vport has [`IPS_MAX`] addresses already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyIps;

impl Ips {
    /// Adds an address; nothing happens if it is there.
    ///
    /// # Errors
    /// There is no room.
    pub fn insert(&mut self, ip: IpAddr) -> Result<(), TooManyIps> {
        if self.contains(ip) { Ok(()) } else { self.set(ip, IP_SEQUENCE_FIRST) }
    }

    /// Adds an address with a sequence, or changes its sequence.
    ///
    /// # Errors
    /// There is no room.
    pub fn set(&mut self, ip: IpAddr, sequence: u32) -> Result<(), TooManyIps> {
        let at = |wanted: Option<IpAddr>| self.places.iter().position(|place| *place == wanted);
        let at = at(Some(ip)).or_else(|| at(None)).ok_or(TooManyIps)?;
        (self.places[at], self.sequences[at]) = (Some(ip), sequence);
        Ok(())
    }

    /// Returns the sequence of an address; `None` if the set does not have it.
    #[must_use]
    pub fn sequence(&self, ip: IpAddr) -> Option<u32> {
        self.with_sequences().find(|(there, _)| *there == ip).map(|(_, sequence)| sequence)
    }

    /// Returns the same addresses, all with one sequence.
    #[must_use]
    pub fn all_at(&self, sequence: u32) -> Self {
        Self { sequences: [sequence; IPS_MAX], ..*self }
    }

    /// Iterates over the addresses, each with its sequence.
    pub fn with_sequences(&self) -> impl Iterator<Item = (IpAddr, u32)> + '_ {
        let all = self.places.iter().zip(self.sequences);
        all.filter_map(|(place, sequence)| place.map(|ip| (ip, sequence)))
    }

    /// Removes an address; true if it was there.
    pub fn remove(&mut self, ip: IpAddr) -> bool {
        let place = self.places.iter_mut().find(|place| **place == Some(ip));
        place.is_some_and(|place| place.take().is_some())
    }

    /// Returns true if the set has an address.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.iter().any(|there| there == ip)
    }

    /// Iterates over the addresses.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.places.iter().flatten().copied()
    }

    /// Number of addresses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns true if there are no addresses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl PartialEq for Ips {
    fn eq(&self, other: &Self) -> bool {
        let same = |(ip, sequence)| other.sequence(ip) == Some(sequence);
        self.len() == other.len() && self.with_sequences().all(same)
    }
}

impl Eq for Ips {}

impl FromIterator<IpAddr> for Ips {
    /// Takes the first [`IPS_MAX`] different addresses.
    fn from_iter<I: IntoIterator<Item = IpAddr>>(ips: I) -> Self {
        let mut all = Self::default();
        for ip in ips {
            if all.insert(ip).is_err() {
                break;
            }
        }
        all
    }
}

/// Source of the knowledge of a host on its vport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Origin {
    /// Frames of the endpoint. It moves when frames come from elsewhere, and ages.
    Learned = 0,
    /// Frames of the endpoint, which shall stay: frames from elsewhere do not move it.
    Sticky = 1,
    /// Configuration or orchestration: addresses and port belong together.
    Bound = 2,
}

/// The right of an endpoint to an address that it claims, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// The endpoint was heard to use the address.
    Learned,
    /// The endpoint is bound and was heard to use the address, and its port allows it. Other ports
    /// that allow the address may take it, and no others.
    Shared,
    /// The endpoint is bound with the address.
    Bound,
}

impl Precedence {
    /// Returns the standing of an address with this sequence in a claim of this origin.
    #[must_use]
    pub const fn of(origin: Origin, sequence: u32) -> Self {
        match origin {
            Origin::Bound if sequence < IP_SEQUENCE_SHARED => Self::Bound,
            Origin::Bound => Self::Shared,
            Origin::Learned | Origin::Sticky => Self::Learned,
        }
    }
}

/// Statement of a host on an endpoint at one of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The endpoint.
    pub key: Key,
    /// The port, as its owner numbers it. Other hosts only show it to people.
    pub port: PortId,
    /// Its known addresses.
    pub ips: Ips,
    /// Source of the knowledge.
    pub origin: Origin,
    /// Number of moves of the endpoint between hosts (RFC 7432 clause 15).
    pub moves: u32,
}

impl Claim {
    /// Returns the right to an address; `None` if the address is not claimed.
    #[must_use]
    pub fn standing(&self, ip: IpAddr) -> Option<Precedence> {
        self.ips.sequence(ip).map(|sequence| Precedence::of(self.origin, sequence))
    }

    /// Returns true if the endpoint is bound with an address.
    #[must_use]
    pub fn is_bound_with(&self, ip: IpAddr) -> bool {
        self.standing(ip) == Some(Precedence::Bound)
    }

    /// Returns the addresses with this standing.
    #[must_use]
    pub fn ips_of(&self, standing: Precedence) -> Ips {
        let mut ips = self.ips;
        for ip in self.ips.iter().filter(|ip| self.standing(*ip) != Some(standing)) {
            ips.remove(ip);
        }
        ips
    }

    /// Returns true if the endpoint has an address by configuration, and its link is down.
    #[must_use]
    pub fn is_down(&self, ip: IpAddr) -> bool {
        self.origin == Origin::Bound && self.ips.sequence(ip) == Some(IP_SEQUENCE_DOWN)
    }

    /// Returns true if this claim of `owner` comes before `other`'s for the same endpoint: bound
    /// before sticky before learned, then the later move, then the lower host.
    #[must_use]
    pub fn beats(&self, owner: HostId, other: &Self, others: HostId) -> bool {
        debug_assert_eq!(self.key, other.key, "claims for different endpoints have no order");
        let rank = |claim: &Self, host: HostId| (claim.origin, claim.moves, u16::MAX - host.0);
        rank(self, owner) > rank(other, others)
    }
}

#[cfg(test)]
mod tests;
