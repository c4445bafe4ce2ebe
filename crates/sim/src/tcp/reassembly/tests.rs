use super::*;

/// RFC 2018 clause 4: the left window edge is 5000 and eight segments of 500 bytes are sent.
/// Given: the segments that arrive, by number; the acknowledgement and the blocks that answer
/// each.
#[test]
fn rfc2018_examples() {
    type Answer<'a> = (u64, u64, &'a [(u64, u64)]);
    // Case 1: the first four arrive, the last four are lost. Nothing is held: no block.
    // Case 2: the first is lost, the other seven arrive.
    let case_2: [Answer<'_>; 7] = [
        (5_500, 5_000, &[(5_500, 6_000)]),
        (6_000, 5_000, &[(5_500, 6_500)]),
        (6_500, 5_000, &[(5_500, 7_000)]),
        (7_000, 5_000, &[(5_500, 7_500)]),
        (7_500, 5_000, &[(5_500, 8_000)]),
        (8_000, 5_000, &[(5_500, 8_500)]),
        (8_500, 5_000, &[(5_500, 9_000)]),
    ];
    // Case 3: the second, fourth, sixth and eighth are lost; then the fourth and the second arrive.
    let case_3: [Answer<'_>; 6] = [
        (5_000, 5_500, &[]),
        (6_000, 5_500, &[(6_000, 6_500)]),
        (7_000, 5_500, &[(7_000, 7_500), (6_000, 6_500)]),
        (8_000, 5_500, &[(8_000, 8_500), (7_000, 7_500), (6_000, 6_500)]),
        (6_500, 5_500, &[(6_000, 7_500), (8_000, 8_500)]),
        (5_500, 7_500, &[(8_000, 8_500)]),
    ];
    let case_1: [Answer<'_>; 4] =
        [(5_000, 5_500, &[]), (5_500, 6_000, &[]), (6_000, 6_500, &[]), (6_500, 7_000, &[])];
    for case in [&case_1[..], &case_2, &case_3] {
        let (mut next, mut held) = (5_000, Reassembly::default());
        for &(segment, ack, blocks) in case {
            if segment == next {
                next = held.advance(next + 500);
            } else {
                assert!(held.insert(segment, segment + 500));
            }
            assert_eq!(next, ack);
            let sent: Vec<(u64, u64)> = held
                .blocks(next)
                .as_slice()
                .iter()
                .map(|&(start, end)| (ack + u64::from(start), ack + u64::from(end)))
                .collect();
            assert_eq!(sent, blocks, "after the segment of byte {segment}");
        }
    }
}

#[test]
fn reassembly_duplicate_not_new_but_first_sack_block() {
    let mut held = Reassembly::default();
    assert!(held.insert(10, 20));
    assert!(held.insert(30, 40));
    assert!(!held.insert(12, 18));
    assert_eq!(held.blocks(0).as_slice(), [(10, 20), (30, 40)]);
    assert!(held.insert(15, 35), "bridges both");
    assert_eq!(held.blocks(0).as_slice(), [(10, 40)]);
}

#[test]
fn a_retransmission_can_reach_into_a_range() {
    let mut held = Reassembly::default();
    held.insert(10, 20);
    held.insert(25, 30);
    assert_eq!(held.advance(15), 20);
    assert_eq!(held.advance(22), 22);
    assert_eq!(held.advance(31), 31);
    assert!(held.is_empty());
}
