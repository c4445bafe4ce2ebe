use sluice_testkit::unfinished::{Carries, Unfinished};

use super::*;
use crate::finish::tests::{egress, handle, outer_headers, pool};

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// The outer headers that a kernel writes itself: Ethernet, IPv4, UDP.
const SKIP: usize = 42;

fn frame(data: usize, each: u16) -> Unfinished {
    Unfinished::new(Carries::Tcp4, ADDRESSES, data, Some(each))
}

/// The datagrams of all series of a frame, and the number of segments that are left.
fn datagrams(frame: &Unfinished, outer: &[u8]) -> (Vec<Vec<u8>>, u16) {
    let mut pool = pool();
    let buf = handle(&mut pool, frame);
    let (mut headers, mut all, mut next) = (SeriesHeaders::new(), Vec::new(), 0);
    while let Some(series) = headers.make(&egress(outer, &buf, next), next, SKIP) {
        assert!(usize::from(series.count) <= SEGMENTS_TOGETHER_MAX);
        let parts: Vec<&[u8]> = series.parts().collect();
        let made: Vec<Vec<u8>> = parts.chunks(2).map(<[_]>::concat).collect();
        assert_eq!(made.len(), usize::from(series.count));
        assert_eq!(made.concat().len(), usize::from(series.size));
        let (last, others) = made.split_last().unwrap();
        assert!(others.iter().all(|one| one.len() == usize::from(series.each)));
        assert!(last.len() <= usize::from(series.each));
        let mut list = [part_of(&[]); PARTS_MAX];
        assert_eq!(series.list(&mut list), parts.len());
        assert!(list.iter().zip(&parts).all(|(one, part)| one.iov_len == part.len()));
        next += series.count;
        all.extend(made);
    }
    let left = buf.segments() - next;
    pool.give_back(buf);
    (all, left)
}

#[test]
fn series_datagrams_are_finished_segments() {
    let outer = outer_headers([[10, 9, 0, 1], [10, 9, 0, 2]], 4789, 1_066);
    // A last one that is short, one of a byte, one of full size; the least that can go together.
    for (data, each) in [(7_200, 1_000), (7_001, 1_000), (7_000, 1_000), (1_001, 1_000)] {
        let frame = frame(data, each);
        let (made, left) = datagrams(&frame, &outer);
        let expected = frame.finished();
        let expected = expected.iter().map(|inner| [&outer[SKIP..], inner].concat());
        assert!(made == expected.collect::<Vec<_>>() && left == 0, "{data} by {each}");
    }
}

#[test]
fn series_within_largest_datagram_and_number() {
    let outer = outer_headers([[10, 9, 0, 1], [10, 9, 0, 2]], 4789, 1_066);
    for (data, each) in [(64_900, 1_398), (65_000, 100), (65_000, 8_900)] {
        let frame = frame(data, each);
        let (made, left) = datagrams(&frame, &outer);
        assert!(left < 2, "what is left goes by itself: {left}");
        assert_eq!(made.len() + usize::from(left), frame.finished().len());
        let whole: Vec<_> = made.iter().map(|made| &made[8..]).collect();
        assert!(whole.iter().zip(frame.finished()).all(|(made, inner)| *made == inner));
    }
}

#[test]
fn frame_without_two_segments_makes_no_series() {
    let outer = outer_headers([[10, 9, 0, 1], [10, 9, 0, 2]], 4789, 1_066);
    let mut pool = pool();
    let buf = handle(&mut pool, &frame(2_500, 1_000));
    let mut headers = SeriesHeaders::new();
    assert!(headers.make(&egress(&outer, &buf, 1), 1, SKIP).is_some());
    assert!(headers.make(&egress(&outer, &buf, 2), 2, SKIP).is_none(), "one is left");
    assert!(headers.make(&egress(&[], &buf, 0), 0, 0).is_none(), "not through a tunnel");
    let stripped = Egress { strip: 50, ..egress(&outer, &buf, 0) };
    assert!(headers.make(&stripped, 0, SKIP).is_none());
    pool.give_back(buf);
    let whole = handle(&mut pool, &frame(900, 1_000));
    assert!(headers.make(&egress(&outer, &whole, 0), 0, SKIP).is_none(), "a single one");
    pool.give_back(whole);
    assert_eq!(pool.used(), 0);
}
