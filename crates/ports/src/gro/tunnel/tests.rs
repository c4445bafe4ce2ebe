use sluice_base::Buf as _;
use sluice_switch::{Egress, Taken};
use sluice_testkit::unfinished::{Carries, Unfinished};

use super::*;
use crate::finish::Finisher;
use crate::finish::tests::pool;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

fn sent(carries: Carries, data: usize) -> Unfinished {
    Unfinished::new(carries, ADDRESSES, data, Some(1_000))
}

/// The frames, each in VXLAN, one behind the other; the size of the first one.
fn run_of(frames: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let in_vxlan = |frame: &Vec<u8>| [&VXLAN[..], frame].concat();
    let all: Vec<_> = frames.iter().map(in_vxlan).collect();
    (all.concat(), all[0].len())
}

fn joined(pool: &mut Pool, run: &(Vec<u8>, usize), most: usize) -> Option<(FrameBuf, usize)> {
    let run = Run { bytes: &run.0, each: run.1 };
    join(run, most, pool, |outer, size| {
        outer.fill(7);
        outer[..2].copy_from_slice(&u16::try_from(size).unwrap().to_be_bytes());
    })
}

fn egress<'a>(header: &'a [u8], buf: &'a FrameBuf, strip: u16) -> Egress<'a, FrameBuf> {
    let priority = Priority::ZERO;
    Egress { header, buf: Some(buf), strip, size: 0, first: 0, priority, tunnel: None }
}

/// The segments of a frame for a driver whose peer takes none whole.
fn cut(frame: &Egress<'_, FrameBuf>) -> Vec<Vec<u8>> {
    struct Driver(Finisher, Vec<Vec<u8>>);
    let mut driver = Driver(Finisher::new(), Vec::new());
    let taken = crate::finish::finish(
        &mut driver,
        |own| &mut own.0,
        frame,
        |own, one| {
            assert!(one.tunnel.is_none() && one.buf.is_none());
            own.1.push(one.header.to_vec());
            Taken::All
        },
    );
    assert_eq!(taken, Taken::All);
    driver.1
}

#[test]
fn joined_segments_cut_again_are_what_came() {
    for (carries, data) in [(Carries::Tcp4, 7_200), (Carries::Tcp6, 3_000), (Carries::Tcp4, 1_001)]
    {
        let mut pool = pool();
        let frames = sent(carries, data).finished();
        let (buf, count) = joined(&mut pool, &run_of(&frames), 64).unwrap();
        assert_eq!(count, frames.len());
        assert_eq!(usize::from(buf.segments()), frames.len());
        let on_wire: usize = frames.iter().map(|frame| frame.len() + 50).sum();
        assert_eq!(buf.size() as usize, on_wire);
        assert_eq!(buf.segment_size() as usize, frames[0].len() + 50);
        assert_eq!(buf.head()[..2], u16::try_from(frames[0].len() + 8).unwrap().to_be_bytes());
        assert_eq!((buf.head()[2..42].to_vec(), &buf.head()[42..50]), (vec![7; 40], &VXLAN[..]));
        assert!(cut(&egress(&[], &buf, 50)) == frames, "as they came");
        pool.give_back(buf);
        assert_eq!(pool.used(), 0);
    }
}

#[test]
fn changed_ecn_of_joined_segments_is_in_each() {
    let mut pool = pool();
    let frames = sent(Carries::Tcp4, 3_500).finished();
    let (buf, _) = joined(&mut pool, &run_of(&frames), 64).unwrap();
    // As the switch changes it: Ethernet and IPv4 anew, with CE.
    let mut header = buf.head()[50..84].to_vec();
    header[15] |= 3;
    let whole = cut(&egress(&header, &buf, 84));
    assert_eq!(whole.len(), frames.len());
    for (cut, frame) in whole.iter().zip(&frames) {
        assert_eq!(cut[15], frame[15] | 3);
        assert!(sluice_wire::ipv4::Packet::new_checked(&cut[14..]).unwrap().header_checksum_ok());
        assert_eq!((&cut[16..24], &cut[26..]), (&frame[16..24], &frame[26..]));
    }
    pool.give_back(buf);
}

#[test]
fn segments_that_do_not_follow_are_not_joined() {
    let mut pool = pool();
    let frames = sent(Carries::Tcp4, 5_000).finished();
    let count = |frames: &[Vec<u8>], most, pool: &mut Pool| {
        let (buf, count) = joined(pool, &run_of(frames), most)?;
        pool.give_back(buf);
        Some(count)
    };
    assert_eq!(count(&frames, 3, &mut pool), Some(3), "no more than there is room for");
    assert_eq!(count(&frames, 1, &mut pool), None);
    assert_eq!(count(&frames[..1], 64, &mut pool), None, "a single one");
    assert_eq!(count(&[frames[0].clone(), frames[2].clone()], 64, &mut pool), None, "a gap");
    let mut broken = frames.clone();
    broken[2][80] ^= 1;
    assert_eq!(count(&broken, 64, &mut pool), Some(2), "a wrong checksum");
    let udp = sent(Carries::Udp4, 5_000).finished();
    assert_eq!(count(&udp, 64, &mut pool), None);
    // Of another network.
    let mut run = run_of(&frames);
    run.0[run.1 + 6] ^= 1;
    assert!(joined(&mut pool, &run, 64).is_none());
    assert_eq!(pool.used(), 0);
}

#[test]
fn joined_segments_leave_half_of_places_to_others() {
    let mut pool = pool();
    let run = run_of(&sent(Carries::Tcp4, 5_000).finished());
    let (buf, _) = joined(&mut pool, &run, 64).unwrap();
    assert!(joined(&mut pool, &run, 64).is_none(), "one of two places is left");
    pool.give_back(buf);
    assert_eq!(pool.used(), 0);
}
