use sluice_base::{Nanos, Prng};

use super::{Sizes, exponential, log2};

#[test]
fn the_logarithm_is_right_to_nine_digits() {
    for (n, expected) in [(1_u64, 0.0), (2, 1.0), (3, 1.584_962_500_7), (1 << 63, 63.0)] {
        #[expect(clippy::cast_precision_loss, reason = "a test of nine digits")]
        let value = log2(n) as f64 / 2_f64.powi(32);
        assert!((value - expected).abs() < 1e-9, "log2({n}) = {value}");
    }
}

#[test]
fn exponential_spans_have_their_mean_and_their_tail() {
    let mut random = Prng::new(1);
    let mean = 1_000_000;
    let count = 200_000;
    let spans: Vec<u64> = (0..count).map(|_| exponential(&mut random, Nanos(mean)).0).collect();
    let sum: u64 = spans.iter().sum();
    let measured = sum / count;
    assert!(measured.abs_diff(mean) < mean / 100, "mean {measured}");
    // One of e^3 = 20.1 is longer than three means.
    let long = spans.iter().filter(|s| **s > 3 * mean).count();
    assert!((9_600..10_400).contains(&long), "{long}");
}

#[test]
fn workload_size_means_match_published_values() {
    for (sizes, mean) in [
        (Sizes::WEB_SEARCH, 1_711_250),
        (Sizes::DATA_MINING, 12_659_000),
        (Sizes::HADOOP, 120_400),
        (Sizes::ALI_STORAGE, 40_900),
    ] {
        assert!(sizes.mean().abs_diff(mean) <= mean / 100, "{}: {}", sizes.name, sizes.mean());
    }
}

#[test]
fn drawn_sizes_follow_the_points() {
    for sizes in Sizes::ALL {
        let mut random = Prng::new(3);
        let drawn: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
        for (bytes, part) in sizes.points {
            let below = drawn.iter().filter(|size| *size <= bytes).count() as u64 * 10;
            assert!(below.abs_diff(*part) < 6_000, "{} {bytes}: {below}", sizes.name);
        }
        assert!(drawn.iter().all(|size| *size > 0));
    }
}
