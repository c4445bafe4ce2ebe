use sluice_base::Prng;

use super::*;

const FULL: u32 = 250;

/// Signs until the head is given up.
fn signs_of(patience: &mut StuckHead) -> u32 {
    (1..).find(|_| patience.is_over()).unwrap()
}

#[test]
fn hundred_refused_heads_cost_at_most_twice_first() {
    let mut patience = StuckHead::new(FULL);
    let signs: Vec<u32> = (0..100).map(|_| signs_of(&mut patience)).collect();
    assert_eq!(signs[..7], [250, 125, 62, 31, 16, 16, 16]);
    let waited: u32 = signs.iter().filter(|signs| **signs > AT_ONCE).sum();
    assert!(waited < 2 * FULL, "{waited}");
    assert!(patience.is_short());
}

#[test]
fn accepted_frames_between_refused_keep_cost_bounded() {
    let mut patience = StuckHead::new(FULL);
    let mut signs = 0;
    for _ in 0..100 {
        signs += signs_of(&mut patience);
        (0..50).for_each(|_| patience.passed());
    }
    assert!(signs < 2 * FULL + 100 * (SIGNS_MIN + 2), "{signs}");
}

#[test]
fn a_suspicion_that_was_wrong_asks_for_more() {
    let mut patience = StuckHead::new(FULL);
    while !patience.is_short() {
        signs_of(&mut patience);
    }
    (0..10).for_each(|_| assert!(!patience.is_over()));
    patience.passed();
    assert_eq!(signs_of(&mut patience), 10 * MARGIN);
}

#[test]
fn calm_brings_all_of_it_back() {
    let mut patience = StuckHead::new(FULL);
    (0..20).for_each(|_| _ = signs_of(&mut patience));
    (0..CALM * FULL).for_each(|_| patience.passed());
    assert_eq!(signs_of(&mut patience), FULL);
}

/// A full queue that has room now and then, and frames that are never taken, mixed: few of the
/// other frames are given up, and the time for each is bounded.
#[test]
fn full_queue_with_refused_heads_loses_few_frames() {
    for seed in 0..50 {
        let mut rng = Prng::new(seed);
        let mut patience = StuckHead::new(FULL);
        let (mut wrong, mut good, mut signs) = (0, 0, 0);
        for _ in 0..20_000 {
            let is_bad = rng.below(10) == 0;
            good += u32::from(!is_bad);
            loop {
                // Room for the head with probability one half, after another sender's frame left.
                if !is_bad && rng.below(2) == 0 {
                    patience.passed();
                    break;
                }
                signs += 1;
                if patience.is_over() {
                    wrong += u32::from(!is_bad);
                    break;
                }
            }
        }
        assert!(wrong * 1_000 < good, "seed {seed}: {wrong} of {good} ended wrongly");
        assert!(signs < 20_000 * 16, "seed {seed}: {signs}");
    }
}
