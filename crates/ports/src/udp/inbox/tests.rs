use std::net::Ipv4Addr;

use super::*;

fn arrival(size: usize, each: Option<u16>) -> Arrival {
    let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
    Arrival { size, from, said: Said { tos: 3, each }, truncated: false }
}

/// Fills the buffers with bytes that say where they stand.
fn inbox(arrivals: &[Arrival]) -> Inbox {
    let mut inbox = Inbox::new();
    for (nth, block) in inbox.blocks().enumerate() {
        for (at, byte) in block.iter_mut().enumerate() {
            *byte = u8::try_from((nth * 31 + at) % 251).unwrap();
        }
    }
    inbox.filled(arrivals.iter().copied());
    inbox
}

#[test]
fn joined_datagrams_taken_one_by_one_in_order() {
    let all = [arrival(1_000, Some(400)), arrival(0, None), arrival(70, None)];
    let mut inbox = inbox(&[&all[..], &[arrival(800, Some(400))]].concat());
    assert_eq!((inbox.left().frames, inbox.left().bytes), (7, 1_870));
    let mut seen = Vec::new();
    while let Some(datagram) = inbox.next() {
        assert_eq!((datagram.tos, datagram.truncated), (3, false));
        seen.push((datagram.bytes.len(), datagram.bytes.first().copied()));
    }
    let at = |block: usize, at: usize| Some(u8::try_from((block * 31 + at) % 251).unwrap());
    let first = [(400, at(0, 0)), (400, at(0, 400)), (200, at(0, 800))];
    let rest = [(0, None), (70, at(2, 0)), (400, at(3, 0)), (400, at(3, 400))];
    assert_eq!(seen, [&first[..], &rest].concat());
    assert!(inbox.is_empty());
    assert_eq!((inbox.left().bytes, inbox.left().frames_max), (0, 7));
}

#[test]
fn buffers_asked_for_follow_what_was_joined() {
    let mut inbox = inbox(&[]);
    assert_eq!((inbox.blocks_for(64), inbox.blocks_for(0)), (BLOCKS, 1));
    inbox.filled([arrival(40_000, Some(1_000)), arrival(10, None)].into_iter());
    assert_eq!((inbox.blocks_for(64), inbox.blocks_for(10)), (1, 1));
    while inbox.next().is_some() {}
    // A call that brings nothing says nothing about it.
    inbox.filled(std::iter::empty());
    assert_eq!(inbox.blocks_for(80), 2);
    inbox.filled([arrival(10, None)].into_iter());
    assert_eq!(inbox.blocks_for(64), BLOCKS);
}
