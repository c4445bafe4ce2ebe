use super::*;

#[test]
fn prng_same_seed_same_stream_other_seed_differs() {
    let (mut a, mut b, mut c) = (Prng::new(7), Prng::new(7), Prng::new(8));
    let first = a.next_u64();
    assert_eq!(first, b.next_u64());
    assert_ne!(first, c.next_u64());
}

#[test]
fn streams_are_found_by_name() {
    assert_ne!(Prng::stream(1, "a").next_u64(), Prng::stream(1, "b").next_u64());
    assert_eq!(Prng::stream(1, "a").next_u64(), Prng::stream(1, "a").next_u64());
}

#[test]
fn prng_below_bound_reaches_every_value() {
    let mut prng = Prng::new(1);
    let mut seen = [false; 7];
    for _ in 0..1000 {
        seen[usize::try_from(prng.below(7)).unwrap()] = true;
    }
    assert!(seen.iter().all(|&s| s));
}
