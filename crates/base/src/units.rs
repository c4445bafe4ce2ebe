//! Time, size and rate. Integers only: the same inputs give the same result on every machine.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A moment or a span in nanoseconds. As a moment it counts from an origin that the caller chose
/// (boot, start of a simulation); 64 bits last 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin, and the empty span.
    pub const ZERO: Self = Self(0);
    /// Later than everything.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a span of whole microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// Returns a span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Returns the span since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Returns `self + span`, staying at the end of time instead of wrapping.
    #[must_use]
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns `self - span`, staying at the origin instead of wrapping.
    #[must_use]
    pub const fn before(self, span: Self) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
        let fits = |&&(size, _): &&(u64, &str)| self.0 >= size;
        let &(size, unit) = UNITS.iter().find(fits).unwrap_or(&UNITS[3]);
        let (whole, mut rest) = (self.0 / size, self.0 % size);
        write!(f, "{whole}")?;
        if rest > 0 {
            // Prints every digit, so that two spans that differ look different.
            f.write_str(".")?;
            let mut place = size / 10;
            while rest > 0 {
                write!(f, "{}", rest / place)?;
                rest %= place;
                place = (place / 10).max(1);
            }
        }
        write!(f, " {unit}")
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);
}

impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for ByteCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for ByteCount {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

impl BitRate {
    /// Returns a rate of whole megabits (10^6) per second.
    #[must_use]
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps * 1_000_000)
    }

    /// Returns a rate of whole gigabits (10^9) per second.
    #[must_use]
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps * 1_000_000_000)
    }

    /// Returns the time that `bytes` take at this rate, rounded up. At a rate of zero they take for
    /// ever ([`Nanos::MAX`]).
    #[must_use]
    pub const fn time_for(self, bytes: ByteCount) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        let bits = bytes.0 as u128 * 8 * 1_000_000_000;
        let nanos = bits.div_ceil(self.0 as u128);
        #[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
        let nanos = if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 };
        Nanos(nanos)
    }

    /// Returns the number of bytes that fit into `span` at this rate, rounded down.
    #[must_use]
    pub const fn bytes_in(self, span: Nanos) -> ByteCount {
        let bytes = self.0 as u128 * span.0 as u128 / 8 / 1_000_000_000;
        #[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
        let bytes = if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 };
        ByteCount(bytes)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s", self.0)
    }
}

#[cfg(test)]
mod tests;
