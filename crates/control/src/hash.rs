//! Hashes of endpoints and addresses, for lookups. Their seeds make collisions hard to provoke; no
//! visible behaviour of the control plane depends on them.

use core::net::IpAddr;

use sluice_base::{Prng, Vni};

use crate::vport::Key;

/// Hash of 64 bits with a secret, so that collisions cannot be provoked from outside.
#[derive(Debug)]
pub(crate) struct Hasher {
    seeds: [u64; 3],
}

/// Multiplies and folds: every bit of the result depends on every bit of both.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "folding keeps 64 of 128 bits")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        Self { seeds: [prng.next_u64(), prng.next_u64(), prng.next_u64() | 1] }
    }

    #[inline]
    fn hash(&self, a: u64, b: u64, c: u64) -> u64 {
        let first = fold(a ^ self.seeds[0], b ^ self.seeds[1]);
        fold(first ^ c, self.seeds[2])
    }

    /// Returns the hash of an endpoint.
    #[inline]
    pub(crate) fn of_key(&self, key: Key) -> u64 {
        let vni = u64::from(key.vni.get());
        self.hash(key.mac.to_u64() | vni << 48, vni >> 16, 0)
    }

    /// Returns the hash of an address in a network.
    #[inline]
    pub(crate) fn of_ip(&self, vni: Vni, ip: IpAddr) -> u64 {
        let vni = u64::from(vni.get());
        match ip {
            IpAddr::V4(v4) => self.hash(u64::from(v4.to_bits()), 0, vni << 8 | 4),
            IpAddr::V6(v6) => {
                let [high, low] = halves(v6.to_bits());
                self.hash(high, low, vni << 8 | 6)
            }
        }
    }
}

/// Returns the high and the low 64 bits.
pub(crate) fn halves(bits: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves together are all of it")]
    let halves = [(bits >> 64) as u64, bits as u64];
    halves
}

#[cfg(test)]
mod tests;
