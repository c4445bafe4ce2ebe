//! Parts of a core.

use core::fmt;
use core::iter::Sum;

/// Share of a core's time, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub u32);

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// A whole core.
    pub const WHOLE: Self = Self(1_000_000);

    /// A share in hundredths of a core.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// Share of a period that was used. More than the period is kept as measured: two cores may
    /// have worked at it.
    #[must_use]
    pub fn of_period(used_ns: u64, period_ns: u64) -> Self {
        if period_ns == 0 {
            return Self::ZERO;
        }
        let share = u128::from(used_ns) * 1_000_000 / u128::from(period_ns);
        Self(u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// Sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Difference; zero if the other one is larger.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the value a quarter of the way from here to `new`: an average over about four
    /// periods, in which a single one counts little.
    #[must_use]
    pub(crate) const fn towards(self, new: Self) -> Self {
        let (old, new) = (self.0 as u64, new.0 as u64);
        // Rounded towards the new value, so that it is reached.
        let sum = old * 3 + new + if new > old { 3 } else { 0 };
        #[expect(clippy::cast_possible_truncation, reason = "between two numbers of 32 bits")]
        Self((sum / 4) as u32)
    }
}

impl Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::ZERO, Self::plus)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} %", self.0 / 10_000, self.0 / 1_000 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_gets_to_what_stays() {
        for (from, to) in [(0, 1), (0, 7), (1, 0), (1_000_000, 0), (0, 1_000_000), (5, 5)] {
            let mut share = Share(from);
            for _ in 0..80 {
                let next = share.towards(Share(to));
                assert!(next.0.abs_diff(to) <= share.0.abs_diff(to));
                share = next;
            }
            assert_eq!(share, Share(to), "from {from}");
        }
    }

    #[test]
    fn a_share_of_a_period() {
        assert_eq!(Share::of_period(50, 100), Share::percent(50));
        assert_eq!(Share::of_period(1, 0), Share::ZERO);
        assert_eq!(Share::of_period(u64::MAX, 1), Share(u32::MAX));
        assert_eq!(Share::of_period(300, 100), Share::percent(300));
    }
}
