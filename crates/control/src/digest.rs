//! Digest of a set of claims, with which two hosts compare their sets in 16 bytes.
//!
//! Each claim is hashed with every one of its fields, and the hashes are added. A sum does not
//! depend on order, and subtraction removes a claim from it: insertion, change and withdrawal cost
//! one or two hashes. The hash is fixed, because all hosts must get the same result. It finds
//! drift; it does not withstand an attacker who wants two sets to look alike.

use core::net::IpAddr;

use sluice_base::mix;

use crate::hash::halves;
use crate::vport::{Claim, IP_SEQUENCE_FIRST};

/// Count and sum of a set of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Number of claims.
    pub count: u64,
    /// The sum of their hashes, modulo 2^64.
    pub sum: u64,
}

impl Digest {
    /// Adds a claim.
    pub fn add(&mut self, claim: &Claim) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash::<true>(claim));
    }

    /// Removes a claim that was added.
    pub fn remove(&mut self, claim: &Claim) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(hash::<true>(claim));
    }

    /// Adds a claim as seen by hosts whose version has no sequences of addresses.
    pub fn add_plain(&mut self, claim: &Claim) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash::<false>(claim));
    }

    /// Removes a claim that was added by [`Self::add_plain`].
    pub fn remove_plain(&mut self, claim: &Claim) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(hash::<false>(claim));
    }
}

impl<'a> FromIterator<&'a Claim> for Digest {
    fn from_iter<I: IntoIterator<Item = &'a Claim>>(claims: I) -> Self {
        let mut digest = Self::default();
        for claim in claims {
            digest.add(claim);
        }
        digest
    }
}

/// Returns the hash of a claim. Its addresses are a set, so their hashes are added.
fn hash<const WITH_SEQUENCES: bool>(claim: &Claim) -> u64 {
    let addresses = claim.ips.with_sequences().fold(0, |sum: u64, (ip, sequence)| {
        let sequence = if WITH_SEQUENCES { sequence } else { IP_SEQUENCE_FIRST };
        sum.wrapping_add(hash_of_ip(ip, sequence))
    });
    let words = [
        claim.key.mac.to_u64() << 16 | u64::from(claim.port.0),
        u64::from(claim.key.vni.get()) << 32 | u64::from(claim.moves),
        addresses,
        claim.origin as u64,
    ];
    words.into_iter().fold(0, |so_far, word| mix(so_far ^ word))
}

/// Returns the contribution of a sequence. A first sequence adds nothing: a claim without sequences
/// has first ones.
fn hash_of_ip(ip: IpAddr, sequence: u32) -> u64 {
    let (family, bits) = match ip {
        IpAddr::V4(ip) => (4, u128::from(ip.to_bits())),
        IpAddr::V6(ip) => (6, ip.to_bits()),
    };
    let [high, low] = halves(bits);
    let hash = mix(mix(mix(family) ^ high) ^ low);
    if sequence == IP_SEQUENCE_FIRST { hash } else { mix(hash ^ u64::from(sequence)) }
}

#[cfg(test)]
mod tests;
