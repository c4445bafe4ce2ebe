//! Random times and sizes, in integers, so that a run repeats to the bit on every machine.

use sluice_base::{Nanos, Prng};

/// Number of fractional bits of a logarithm.
const FRACTION_BITS: u32 = 32;
/// The natural logarithm of 2, with [`FRACTION_BITS`].
const LN_2: u128 = 2_977_044_472;

/// Draws a span from the exponential distribution: the time to the next event of a Poisson process.
#[must_use]
pub fn exponential(random: &mut Prng, mean: Nanos) -> Nanos {
    // -ln(u) = ln 2 * (64 - log2(n)) for u = n / 2^64, n >= 1.
    let n = random.next_u64().max(1);
    let log = (64 << FRACTION_BITS) - log2(n);
    let span = (u128::from(mean.0) * u128::from(log) * LN_2) >> (2 * FRACTION_BITS);
    Nanos(u64::try_from(span).unwrap_or(u64::MAX))
}

/// Returns the logarithm to base 2 of `n`, with [`FRACTION_BITS`] behind the point. It is computed
/// digit by digit: the square of a number between 1 and 2 tells if the next digit of its logarithm
/// is one.
fn log2(n: u64) -> u64 {
    let whole = n.ilog2();
    let mut x = u128::from(n) << (63 - whole);
    let mut fraction = 0_u64;
    for _ in 0..FRACTION_BITS {
        x = (x * x) >> 63;
        fraction <<= 1;
        if x >> 64 != 0 {
            x >>= 1;
            fraction |= 1;
        }
    }
    (u64::from(whole) << FRACTION_BITS) + fraction
}

/// A distribution of flow sizes: straight lines between points of the cumulative distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The name used in scenarios and results.
    pub name: &'static str,
    /// Its publication.
    pub source: &'static str,
    /// Points: (bytes, number of flows in a million that are not larger).
    pub points: &'static [(u64, u64)],
}

const MILLION: u64 = 1_000_000;

impl Sizes {
    /// Web search (Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010), as points of the
    /// traffic generators of HPCC and HKUST.
    pub const WEB_SEARCH: Self = Self {
        name: "web-search",
        source: "DCTCP, SIGCOMM 2010",
        points: &[
            (0, 0),
            (10_000, 150_000),
            (20_000, 200_000),
            (30_000, 300_000),
            (50_000, 400_000),
            (80_000, 530_000),
            (200_000, 600_000),
            (1_000_000, 700_000),
            (2_000_000, 800_000),
            (5_000_000, 900_000),
            (10_000_000, 970_000),
            (30_000_000, MILLION),
        ],
    };
    /// Data mining (Greenberg et al., "VL2", SIGCOMM 2009).
    pub const DATA_MINING: Self = Self {
        name: "data-mining",
        source: "VL2, SIGCOMM 2009",
        points: &[
            (0, 0),
            (180, 100_000),
            (216, 200_000),
            (560, 300_000),
            (900, 400_000),
            (1_100, 500_000),
            (1_870, 600_000),
            (3_160, 700_000),
            (10_000, 800_000),
            (400_000, 900_000),
            (3_160_000, 950_000),
            (100_000_000, 980_000),
            (1_000_000_000, MILLION),
        ],
    };
    /// Hadoop (Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM 2015).
    pub const HADOOP: Self = Self {
        name: "hadoop",
        source: "Roy et al., SIGCOMM 2015",
        points: &[
            (0, 0),
            (100, 10_000),
            (200, 20_000),
            (300, 50_000),
            (350, 150_000),
            (400, 200_000),
            (500, 300_000),
            (600, 400_000),
            (700, 500_000),
            (1_000, 600_000),
            (2_000, 670_000),
            (7_000, 700_000),
            (30_000, 720_000),
            (50_000, 820_000),
            (80_000, 870_000),
            (120_000, 900_000),
            (300_000, 950_000),
            (1_000_000, 975_000),
            (2_000_000, 990_000),
            (10_000_000, MILLION),
        ],
    };
    /// Block storage (Li et al., "HPCC", SIGCOMM 2019).
    pub const ALI_STORAGE: Self = Self {
        name: "ali-storage",
        source: "HPCC, SIGCOMM 2019",
        points: &[
            (0, 0),
            (4_000, 229_300),
            (8_000, 692_100),
            (16_000, 806_100),
            (32_000, 904_700),
            (64_000, 935_300),
            (128_000, 967_700),
            (256_000, 975_300),
            (2_000_000, MILLION),
        ],
    };
    /// All distributions.
    pub const ALL: [Self; 4] =
        [Self::WEB_SEARCH, Self::DATA_MINING, Self::HADOOP, Self::ALI_STORAGE];

    /// Returns the distribution of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sizes| sizes.name == name)
    }

    /// Returns the mean in bytes, rounded down.
    #[must_use]
    pub fn mean(&self) -> u64 {
        let areas = self.points.windows(2).map(|w| {
            let (low, high) = (w[0], w[1]);
            u128::from(low.0 + high.0) * u128::from(high.1 - low.1)
        });
        let sum: u128 = areas.sum();
        u64::try_from(sum / (2 * u128::from(MILLION))).expect("below the largest size")
    }

    /// Draws a size: at least one byte.
    pub fn draw(&self, random: &mut Prng) -> u64 {
        // A thousand steps between two parts of a million.
        let at = random.below(MILLION * 1000);
        let above = self.points.partition_point(|(_, part)| part * 1000 <= at);
        let (low, high) = (self.points[above - 1], self.points[above]);
        let span = u128::from(high.0 - low.0) * u128::from(at - low.1 * 1000)
            / u128::from((high.1 - low.1) * 1000);
        low.0 + u64::try_from(span).expect("below the largest size").max(1)
    }
}

#[cfg(test)]
mod tests;
