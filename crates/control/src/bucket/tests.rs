use std::vec::Vec;

use proptest::prelude::*;

use super::*;

#[test]
fn full_bucket_gives_burst_then_paced_tokens() {
    let (pace, mut bucket) = (Pace::new(Rate { per_second: 1000, burst: 3 }), Bucket::default());
    // (ms, true if a token is there)
    let rows = [
        (5, true),
        (5, true),
        (5, true),
        (5, false),
        (6, true),
        (6, false),
        (7, true),
        (100, true),
        (100, true),
        (100, true),
        (100, false),
    ];
    for (index, (ms, expected)) in rows.into_iter().enumerate() {
        let now = Nanos::from_millis(ms);
        assert_eq!(pace.has(now, bucket), expected, "row {index}");
        assert_eq!(pace.try_take(now, &mut bucket), expected, "row {index}");
    }
}

#[test]
fn bucket_zero_rate_or_burst_refuses_unlimited_passes() {
    for rate in [Rate::NEVER, Rate { per_second: 0, burst: 9 }, Rate { per_second: 9, burst: 0 }] {
        assert!(!Pace::new(rate).try_take(Nanos::MAX, &mut Bucket::default()));
    }
    let (pace, mut bucket) = (Pace::new(Rate::UNLIMITED), Bucket::default());
    assert!((0..10_000).all(|_| pace.try_take(Nanos(1), &mut bucket)));
}

#[test]
fn a_clock_that_goes_back_gives_nothing_away() {
    let (pace, mut bucket) = (Pace::new(Rate { per_second: 1000, burst: 1 }), Bucket::default());
    assert!(pace.try_take(Nanos::from_millis(50), &mut bucket));
    assert!(!pace.try_take(Nanos::from_millis(10), &mut bucket));
    assert!(pace.try_take(Nanos::from_millis(51), &mut bucket));
}

proptest! {
    #[test]
    fn never_more_than_rate_times_time_and_burst(
        per_second in 1..2_000_000_u32, burst in 1..100_u32,
        steps in prop::collection::vec(0..3_000_000_u64, 1..300),
    ) {
        let (pace, mut bucket) = (Pace::new(Rate { per_second, burst }), Bucket::default());
        let mut now = Nanos::ZERO;
        let mut taken: Vec<u64> = Vec::new();
        for step in steps {
            now = now.after(Nanos(step / 7 * u64::from(step % 3 == 0)));
            if pace.try_take(now, &mut bucket) {
                taken.push(now.0);
            }
        }
        // The span of every two of them, both included.
        for (first, &start) in taken.iter().enumerate() {
            for (last, &end) in taken.iter().enumerate().skip(first) {
                let count = u64::try_from(last - first + 1).unwrap();
                let refilled = (end - start) * u64::from(per_second) / 1_000_000_000;
                prop_assert!(count <= u64::from(burst) + refilled);
            }
        }
    }

    #[test]
    fn who_keeps_to_the_rate_is_never_refused(per_second in 1..2_000_000_u32, count in 1..500_u64) {
        let (pace, mut bucket) = (Pace::new(Rate { per_second, burst: 1 }), Bucket::default());
        let gap = 1_000_000_000_u64.div_ceil(u64::from(per_second));
        prop_assert!((0..count).all(|at| pace.try_take(Nanos(at * gap), &mut bucket)));
    }
}
