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
