use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MSS: u64 = 1_000;

fn board(segments: &[(u64, u64)]) -> Scoreboard {
    let mut board = Scoreboard::default();
    for &(start, end) in segments {
        assert!(board.insert(start * MSS, end * MSS));
    }
    board
}

fn outstanding(una: u64, nxt: u64, high_rxt: u64) -> Outstanding {
    Outstanding {
        una: una * MSS,
        nxt: nxt * MSS,
        high_rxt: high_rxt * MSS,
        lost_floor: 0,
        mss: MSS,
    }
}

/// Constructed from the text of RFC 6675 clause 4: ten segments are outstanding; held, as
/// segments; sent again up to; then the first segment that is not lost, and pipe in segments.
#[test]
fn rfc6675_is_lost_and_pipe() {
    type Row<'a> = (&'a [(u64, u64)], u64, u64, u64);
    let table: [Row<'_>; 9] = [
        (&[], 0, 0, 10),
        // One and two segments held are no loss: "more than (DupThresh - 1) * SMSS bytes".
        (&[(1, 2)], 0, 0, 9),
        (&[(1, 3)], 0, 0, 8),
        (&[(1, 4)], 0, 1, 6),
        // Three ranges that are apart, of any size.
        (&[(1, 2), (3, 4), (5, 6)], 0, 1, 6),
        (&[(1, 2), (3, 4), (5, 6), (7, 8)], 0, 3, 4),
        // Bytes that were sent again count; lost bytes that were not do not.
        (&[(1, 4)], 1, 1, 7),
        (&[(2, 5), (6, 7)], 1, 2, 5),
        // Bytes that are not lost and were sent again (rule 3) count twice.
        (&[(1, 2)], 1, 0, 10),
    ];
    for (held, high_rxt, lost_edge, pipe) in table {
        let assessment = board(held).assess(&outstanding(0, 10, high_rxt));
        assert_eq!(
            assessment,
            Assessment { lost_edge: lost_edge * MSS, pipe: pipe * MSS },
            "{held:?}"
        );
    }
}

/// RFC 6675 clause 4: three ranges mean a loss even if they are small.
#[test]
fn three_small_ranges_are_a_loss() {
    let mut board = Scoreboard::default();
    for (start, edge) in [(7_000, 0), (5_000, 0), (3_000, 3_000)] {
        board.insert(start, start + 10);
        assert_eq!(board.assess(&outstanding(0, 10, 0)).lost_edge, edge);
    }
}

/// After a time-out everything that is not held is lost.
#[test]
fn a_floor_makes_all_lost() {
    let o = Outstanding { lost_floor: 8 * MSS, ..outstanding(0, 10, 2) };
    let expected = Assessment { lost_edge: 8 * MSS, pipe: 3 * MSS };
    // Two segments sent again, one of which is held by now, and two new ones.
    assert_eq!(board(&[(1, 2), (4, 6)]).assess(&o), expected);
    let o = Outstanding { lost_floor: 8 * MSS, ..outstanding(0, 10, 0) };
    assert_eq!(o.assess(), Assessment { lost_edge: 8 * MSS, pipe: 2 * MSS });
}

#[test]
fn holes_are_found_in_order() {
    let board = board(&[(1, 2), (4, 6)]);
    let hole = |from: u64, limit: u64| {
        board.hole(from * MSS, limit * MSS).map(|(start, end)| (start / MSS, end / MSS))
    };
    assert_eq!(hole(0, 9), Some((0, 1)));
    assert_eq!(hole(1, 9), Some((2, 4)));
    assert_eq!(hole(2, 3), Some((2, 3)));
    assert_eq!(hole(4, 6), None);
    assert_eq!(hole(5, 9), Some((6, 9)));
    assert_eq!(hole(9, 9), None);
}

#[test]
fn a_range_in_front_is_trimmed() {
    let mut board = board(&[(1, 2), (4, 6)]);
    board.trim(5 * MSS);
    assert_eq!(board.ranges, [(5 * MSS, 6 * MSS)]);
    board.trim(6 * MSS);
    assert_eq!((board.held(), board.highest()), (0, 0));
}

proptest! {
    /// Compares with a set of bytes: held bytes, news, `IsLost` and `SetPipe` byte by byte as RFC
    /// 6675 clause 4 puts them.
    #[test]
    fn as_the_text_says(
        blocks in prop::collection::vec((0..60_u64, 1..6_u64), 0..8),
        una in 0..30_u64,
        again in 0..30_u64,
        floor in prop_oneof![Just(0), 0..70_u64],
    ) {
        let mss = 4;
        let (nxt, mut board, mut set) = (75, Scoreboard::default(), BTreeSet::new());
        for (start, len) in blocks {
            let mut news = false;
            for byte in start..start + len {
                news |= set.insert(byte);
            }
            prop_assert_eq!(board.insert(start, start + len), news);
        }
        set.retain(|byte| *byte >= una);
        board.trim(una);
        prop_assert_eq!(board.held(), set.len() as u64);
        let high_rxt = una + again;
        let is_lost = |byte: u64| {
            let above: Vec<u64> = set.range(byte + 1..).copied().collect();
            let ranges = above.iter().filter(|b| !set.contains(&(**b - 1))).count();
            byte < floor || ranges >= 3 || above.len() as u64 > 2 * mss
        };
        let mut pipe = 0;
        for byte in (una..nxt).filter(|byte| !set.contains(byte)) {
            pipe += u64::from(!is_lost(byte)) + u64::from(byte < high_rxt);
        }
        let o = Outstanding { una, nxt, high_rxt, lost_floor: floor, mss };
        let assessment = board.assess(&o);
        prop_assert_eq!(assessment.pipe, pipe);
        for byte in (una..nxt).filter(|byte| !set.contains(byte)) {
            prop_assert_eq!(byte < assessment.lost_edge, is_lost(byte));
        }
    }
}
