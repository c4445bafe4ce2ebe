use sluice_base::{Buf as _, Priority, TunnelId};
use sluice_testkit::unfinished::{Carries, Unfinished};
use sluice_wire::{ipv4, udp};

use super::*;
use crate::offload::{Kind, OffloadRequest};
use crate::pool::{Pool, PoolConfig};

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

pub(crate) fn pool() -> Pool {
    let config = PoolConfig { slots: 2, slot_size: 2048, populate: false };
    Pool::new(config).unwrap().with_large(2).unwrap()
}

fn frame() -> Unfinished {
    Unfinished::new(Carries::Tcp4, ADDRESSES, 7_200, Some(1_000))
}

pub(crate) fn handle(pool: &mut Pool, frame: &Unfinished) -> FrameBuf {
    let cut = frame.each.map(|each| (Kind::Tcp4, each));
    let ask = OffloadRequest { start: 34, offset: 16, cut, ecn: false };
    let bytes = frame.frame();
    let left = Offload::check(ask, &bytes[..bytes.len().min(128)], bytes.len()).unwrap();
    let mut slot = pool.take_large().unwrap();
    slot.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
    slot.freeze(&left)
}

/// A driver that takes `room` frames at a time.
fn offered(finisher: &mut Finisher, frame: &Egress<'_, FrameBuf>, room: usize) -> Vec<Vec<u8>> {
    let (mut all, mut first) = (Vec::new(), frame.first);
    loop {
        let mut now = Vec::new();
        let frame = Egress { first, ..*frame };
        let taken = finisher.offer(&frame, |finished| {
            assert!(finished.buf.is_none() && finished.size as usize == finished.header.len());
            if now.len() == room {
                return Taken::No;
            }
            now.push(finished.header.to_vec());
            Taken::All
        });
        let count = u16::try_from(now.len()).unwrap();
        all.append(&mut now);
        match taken {
            Taken::All => return all,
            Taken::Segments(said) => assert_eq!(said, count),
            Taken::No | Taken::Later => panic!("there was room"),
        }
        first += count;
    }
}

pub(crate) fn egress<'a>(header: &'a [u8], buf: &'a FrameBuf, first: u16) -> Egress<'a, FrameBuf> {
    let tunnel = (!header.is_empty()).then_some(TunnelId(0));
    let priority = Priority::ZERO;
    Egress { header, buf: Some(buf), strip: 0, size: 0, first, priority, tunnel }
}

#[test]
fn finisher_partial_room_each_segment_sent_once() {
    let (mut pool, frame) = (pool(), frame());
    let buf = handle(&mut pool, &frame);
    assert_eq!((buf.segments(), buf.segment_size()), (8, 1_066));
    assert_eq!(buf.size() as usize, frame.finished().iter().map(Vec::len).sum::<usize>());
    for room in 1..=8 {
        assert_eq!(offered(&mut Finisher::new(), &egress(&[], &buf, 0), room), frame.finished());
    }
    let rest = offered(&mut Finisher::new(), &egress(&[], &buf, 5), 2);
    assert_eq!(rest, frame.finished()[5..]);
    let none = Finisher::new().offer(&egress(&[], &buf, 3), |_| Taken::No);
    assert_eq!(none, Taken::No);
    pool.give_back(buf);
    assert_eq!(pool.used(), 0);
}

/// Outer headers of an inner frame of `inner` bytes, with DSCP 8 and ECN 2, for a UDP port.
pub(crate) fn outer_headers([src, dst]: [[u8; 4]; 2], port: u16, inner: u16) -> [u8; 50] {
    let mut outer = [0; 50];
    outer[12..14].copy_from_slice(&[8, 0]);
    ipv4::Repr {
        src: src.into(),
        dst: dst.into(),
        protocol: ipv4::PROTOCOL_UDP,
        dscp: 8,
        ecn: 2,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: inner + 16,
    }
    .emit(&mut outer[14..34]);
    let payload_size = inner + 8;
    udp::Repr { src_port: 50_000, dst_port: port, payload_size }.emit(&mut outer[34..42]);
    outer
}

#[test]
fn finisher_each_segment_gets_own_outer_header() {
    let (mut pool, frame) = (pool(), frame());
    let buf = handle(&mut pool, &frame);
    let size = u16::try_from(buf.segment_size()).unwrap();
    let outer = outer_headers([[10, 9, 0, 1], [10, 9, 0, 2]], 4789, size);
    let made = offered(&mut Finisher::new(), &egress(&outer, &buf, 0), 3);
    assert_eq!(made.len(), frame.finished().len());
    for (made, inner) in made.iter().zip(frame.finished()) {
        assert_eq!(made[50..], inner);
        let packet = ipv4::Packet::new_checked(&made[14..]).unwrap();
        assert_eq!(usize::from(packet.total_size()), made.len() - 14);
        assert!(packet.header_checksum_ok());
        let datagram = udp::Packet::new_checked(&made[34..]).unwrap();
        assert_eq!(usize::from(datagram.size()), made.len() - 34);
        assert_eq!(made[..14], outer[..14]);
    }
    pool.give_back(buf);
}

#[test]
fn pool_copy_keeps_super_frame_finishes_single_segment() {
    let (mut pool, frame) = (pool(), frame());
    let buf = handle(&mut pool, &frame);
    let copy = pool.copy_of(&buf).unwrap();
    assert!(pool.copy_of(&buf).is_none(), "there is room for two");
    pool.give_back(buf);
    assert_eq!(offered(&mut Finisher::new(), &egress(&[], &copy, 0), 8), frame.finished());
    pool.give_back(copy);

    let one = Unfinished::new(Carries::Tcp4, ADDRESSES, 700, None);
    let copy = handle(&mut pool, &one);
    assert_eq!(copy.bytes(), one.finished()[0], "no super-frame stays unfinished in a pool");
    assert!(copy.offload().is_none());
    pool.give_back(copy);
    assert_eq!(pool.used(), 0);
}
