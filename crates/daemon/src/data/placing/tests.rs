use super::*;

fn change((bucket, from, to): (u16, u8, u8)) -> Change {
    Change { bucket, from, to }
}

#[test]
fn in_a_round_nobody_gives_and_takes() {
    let wanted = [(0, 0, 1), (1, 2, 1), (2, 1, 0), (3, 1, 3), (4, 3, 2), (5, 3, 1), (6, 0, 2)];
    let round = one_round(wanted.into_iter().map(change));
    // 2 and 3 would take from a taker, 4 and 6 would give to a giver.
    assert_eq!(round, [(0, 0, 1), (1, 2, 1), (5, 3, 1)].map(change));
}

#[test]
fn a_round_is_bounded() {
    let round = one_round((0..BUCKETS).map(|bucket| change((bucket, 0, 1))));
    assert_eq!(round.len(), ROUND_MAX);
}

#[test]
fn a_vcpu_matters_to_the_worker_on_its_cpu() {
    let later = MACHINES_EVERY;
    let mut cpus = Cpus::new(vec![Some(1), Some(2), None], Some(&[2, 3]));
    assert_eq!(cpus.run_vcpus(Nanos::ZERO), Some(vec![false, true, false]));
    assert_eq!(cpus.run_vcpus(later), None, "what is configured stays");
    let mut free = Cpus::new(vec![None, None], Some(&[0]));
    assert_eq!(free.run_vcpus(Nanos::ZERO), None, "no worker is pinned");
    let mut looks = Cpus::new(vec![Some(1)], None);
    assert!(looks.run_vcpus(Nanos::ZERO).is_some());
    assert!(looks.run_vcpus(Nanos(later.0 - 1)).is_none() && looks.run_vcpus(later).is_some());
}
