//! Numbers drawn from a working set.

use std::time::Duration;

use sluice_base::Prng;

/// Seed of all draws: each point sees the same ones in each run.
const SEED: u64 = 24;
/// Time in which a set that moves is replaced.
const REPLACED: Duration = Duration::from_secs(10);

/// Draws numbers below the size of a set.
#[derive(Debug)]
pub(super) struct Draw {
    prng: Prng,
    size: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Uniform,
    /// Weights of the ranks up to each, in parts of 2^32.
    Zipf(Vec<u64>),
    /// The set begins where `passed` has brought it, and goes round in so many numbers.
    Moving {
        passed: Duration,
        all: u32,
    },
}

impl Draw {
    fn new(size: u32, kind: Kind) -> Self {
        Self { prng: Prng::new(SEED), size, kind }
    }

    /// Draws each number as often.
    pub(super) fn uniform(size: u32) -> Self {
        Self::new(size, Kind::Uniform)
    }

    /// Draws the number of rank r, from 1, with the weight 1/r.
    pub(super) fn zipf(size: u32) -> Self {
        let mut sum = 0;
        let below = (1..=u64::from(size)).map(|rank| {
            sum += (1 << 32) / rank;
            sum
        });
        Self::new(size, Kind::Zipf(below.collect()))
    }

    /// Draws from a set that moves through the numbers below `all`.
    pub(super) fn moving(size: u32, all: u32) -> Self {
        Self::new(size, Kind::Moving { passed: Duration::ZERO, all })
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) {
        if let Kind::Moving { passed, .. } = &mut self.kind {
            *passed += time;
        }
    }

    /// Returns the next number.
    pub(super) fn next(&mut self) -> u32 {
        let number = match &self.kind {
            Kind::Uniform => self.prng.below(self.size.into()),
            Kind::Zipf(below) => {
                let drawn = self.prng.below(*below.last().expect("a set is not empty"));
                below.partition_point(|until| *until <= drawn) as u64
            }
            Kind::Moving { passed, all } => {
                let begin = u128::from(self.size) * passed.as_nanos() / REPLACED.as_nanos();
                let begin = u64::try_from(begin).expect("some numbers a second");
                (begin + self.prng.below(self.size.into())) % u64::from(*all)
            }
        };
        u32::try_from(number).expect("below the size")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(mut draw: Draw, all: usize) -> Vec<u32> {
        let mut counts = vec![0; all];
        (0..100_000).for_each(|_| counts[draw.next() as usize] += 1);
        counts
    }

    #[test]
    fn ranks_of_zipf_fall_by_their_number() {
        // 100,000 by 1 + 1/2 + 1/3 + 1/4.
        for (rank, seen) in (1..).zip(counts(Draw::zipf(4), 4)) {
            let expected = 48_000 / rank;
            assert!(seen.abs_diff(expected) < expected / 20, "{rank}: {seen} of {expected}");
        }
    }

    #[test]
    fn uniform_draws_are_even_and_repeat() {
        let seen = counts(Draw::uniform(4), 4);
        assert!(seen.iter().all(|seen| seen.abs_diff(25_000) < 1_000), "{seen:?}");
        assert_eq!(seen, counts(Draw::uniform(4), 4));
    }

    #[test]
    fn moving_set_is_replaced_in_ten_seconds() {
        let set_after = |seconds| {
            let mut draw = Draw::moving(10, 20);
            draw.pass(Duration::from_secs(seconds));
            let seen = counts(draw, 20);
            (0..20).filter(|at| seen[*at] > 0).collect::<Vec<usize>>()
        };
        assert_eq!(set_after(0), (0..10).collect::<Vec<_>>());
        assert_eq!(set_after(1), (1..11).collect::<Vec<_>>());
        assert_eq!(set_after(10), (10..20).collect::<Vec<_>>());
        assert_eq!(set_after(19), (0..9).chain([19]).collect::<Vec<_>>());
    }
}
