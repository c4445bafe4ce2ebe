//! A small seeded generator (xoshiro256**, Blackman and Vigna 2018, seeded by SplitMix64).
//!
//! Integers only: a probability is a ratio, so that a run repeats to the bit on every machine.
//! It is not for secrets.

/// Increment of SplitMix64: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Permutes 64-bit words such that each bit of the input changes half of the output: the number
/// that SplitMix64 draws next when its state is `word` (Steele, Lea and Flood 2014). The function
/// never changes: hosts compare its results.
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers that depends on its seed and on nothing else.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// Returns the stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = |n: u64| mix(seed.wrapping_add(n.wrapping_mul(GOLDEN)));
        Self { state: [state(0), state(1), state(2), state(3)] }
    }

    /// Returns the stream of an entity, derived from a stable name, so that adding an entity does
    /// not shift what the others draw.
    #[must_use]
    pub fn stream(seed: u64, name: &str) -> Self {
        // Hashes the name with FNV-1a; the constants are those of the 64-bit variant.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::new(seed ^ hash)
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`, which must not be zero. The bias is below `bound / 2^64`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns true `numerator` times out of `denominator`.
    pub const fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

#[cfg(test)]
mod tests;
