use super::*;

#[test]
fn percentiles_lie_between_neighbours() {
    let values = [40.0, 10.0, 30.0, 20.0];
    assert_eq!(percentile(&values, 0.0), 10.0);
    assert_eq!(percentile(&values, 0.5), 25.0);
    assert_eq!(percentile(&values, 1.0), 40.0);
    assert!((percentile(&values, 0.95) - 38.5).abs() < 1e-9);
    assert_eq!(percentile(&[7.0], 0.95), 7.0);
    assert_eq!(percentile(&[], 0.5), 0.0);
    assert_eq!(mean(&[]), 0.0);
}

#[test]
fn the_same_seed_gives_the_same_interval() {
    let above: Vec<f64> = (1..50).map(f64::from).collect();
    let below: Vec<f64> = (1..20).map(f64::from).collect();
    let once = ratio_of_means(&above, &below, 1, "x").unwrap();
    assert_eq!(ratio_of_means(&above, &below, 1, "x").unwrap(), once);
    assert_ne!(ratio_of_means(&above, &below, 1, "y").unwrap(), once);
    assert!((once.value - 2.5).abs() < 1e-9);
    assert!(once.low < once.value && once.value < once.high);
}

#[test]
fn constant_values_have_no_width() {
    let ratio = ratio_of_means(&[250.0; 30], &[10.0; 40], 1, "x").unwrap();
    assert_eq!((ratio.low, ratio.value, ratio.high), (25.0, 25.0, 25.0));
    assert!(ratio_of_means(&[], &[1.0], 1, "x").is_none());
    assert!(ratio_of_means(&[1.0], &[0.0], 1, "x").is_none());
}

/// Draws of one distribution on both sides: the interval must hold 1 about 95 times of 100.
#[test]
fn ratio_interval_coverage_matches_nominal_95_percent() {
    let mut random = Prng::new(7);
    let mut draw = |n: usize| -> Vec<f64> {
        (0..n).map(|_| f64::from(u32::try_from(10 + random.below(90)).unwrap())).collect()
    };
    let held = (0..200)
        .filter(|round| {
            let (above, below) = (draw(60), draw(60));
            let ratio = ratio_of_means(&above, &below, 1, &round.to_string()).unwrap();
            ratio.low <= 1.0 && 1.0 <= ratio.high
        })
        .count();
    assert!((180..=199).contains(&held), "{held} of 200");
}

#[test]
fn share_of_time_outs() {
    assert_eq!(share_above(&[1e6, 200e6, 250e6, 3e6], TIMED_OUT_NS), 0.5);
    assert_eq!(share_above(&[], TIMED_OUT_NS), 0.0);
}
