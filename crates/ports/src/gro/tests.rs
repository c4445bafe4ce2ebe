use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_base::Buf as _;
use sluice_wire::{checksum, ipv4, tcp};

use super::*;
use crate::pool::{Pool, PoolConfig};

const HEADER: usize = 14 + 20 + 32;

/// One TCP segment of a flow.
#[derive(Clone, Debug)]
struct Of {
    is_ipv6: bool,
    ident: u16,
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    stamp: u8,
    tos: u8,
    payload: Vec<u8>,
}

impl Of {
    /// The `nth` segment of a flow, of which all before have `each` bytes.
    fn nth(nth: u32, each: u32, size: usize) -> Self {
        let seq = nth * each;
        let payload = (0..size).map(|at| (seq as usize + at).to_le_bytes()[0]).collect();
        Self {
            is_ipv6: false,
            // It wraps around.
            ident: 65_530_u16.wrapping_add(u16::try_from(nth).unwrap()),
            port: 80,
            seq,
            ack: 7,
            flags: tcp::flags::ACK,
            window: 500,
            stamp: 1,
            tos: 0,
            payload,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The frame: Ethernet, IP, TCP with a timestamp option.
    fn frame(&self) -> Vec<u8> {
        let mut message = vec![0; 32];
        message[..2].copy_from_slice(&5000_u16.to_be_bytes());
        message[2..4].copy_from_slice(&self.port.to_be_bytes());
        message[4..8].copy_from_slice(&self.seq.to_be_bytes());
        message[8..12].copy_from_slice(&self.ack.to_be_bytes());
        (message[12], message[13]) = (8 << 4, self.flags);
        message[14..16].copy_from_slice(&self.window.to_be_bytes());
        message[20..].fill(self.stamp);
        message.extend(&self.payload);
        let mut frame = vec![2; 12];
        if self.is_ipv6 {
            let (src, dst) = (Ipv6Addr::from([1; 16]), Ipv6Addr::from([2; 16]));
            let sum = checksum::over_ipv6(src, dst, ipv4::PROTOCOL_TCP, &message);
            message[16..18].copy_from_slice(&sum.to_be_bytes());
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
            frame.extend([ipv4::PROTOCOL_TCP, 64]);
            frame.extend([src.octets(), dst.octets()].concat());
        } else {
            let (src, dst) = (Ipv4Addr::from([1; 4]), Ipv4Addr::from([2; 4]));
            let sum = checksum::over_ipv4(src, dst, ipv4::PROTOCOL_TCP, &message);
            message[16..18].copy_from_slice(&sum.to_be_bytes());
            let mut header = [0; 20];
            (header[0], header[1]) = (0x45, self.tos);
            let size = u16::try_from(20 + message.len()).unwrap();
            header[2..4].copy_from_slice(&size.to_be_bytes());
            header[4..6].copy_from_slice(&self.ident.to_be_bytes());
            header[6] = 0x40;
            (header[8], header[9]) = (64, ipv4::PROTOCOL_TCP);
            header[12..16].copy_from_slice(&src.octets());
            header[16..].copy_from_slice(&dst.octets());
            let sum = checksum::internet(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(header);
        }
        frame.extend(message);
        frame
    }
}

fn pool() -> Pool {
    Pool::new(PoolConfig { slots: 4, slot_size: 2048, populate: false }).unwrap()
}

/// Offers a frame.
fn join(gro: &mut Gro, pool: &mut Pool, bytes: &[u8]) -> Joined {
    let mut slot = pool.take().unwrap();
    slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    let buf = slot.freeze(0, bytes.len());
    let frame = Egress {
        header: &[],
        buf: Some(&buf),
        strip: 0,
        size: buf.size(),
        first: 0,
        priority: Priority::ZERO,
        tunnel: None,
    };
    let joined = gro.join(&frame);
    pool.give_back(buf);
    joined
}

/// Takes out all frames, cut into segments again.
fn cut(gro: &mut Gro) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(merged) = gro.first() {
        match &merged.left {
            None => frames.push(merged.bytes.to_vec()),
            Some(left) => {
                for nth in 0..left.segments() {
                    let (at, size) = left.part(nth);
                    let headers = &merged.bytes[..usize::from(left.header_size())];
                    let mut segment = [headers, &merged.bytes[at..at + size]].concat();
                    left.make(nth, &mut segment);
                    frames.push(segment);
                }
            }
        }
        gro.remove_first();
    }
    frames
}

#[test]
fn joined_segments_cut_again_are_what_came() {
    for is_ipv6 in [false, true] {
        let (mut gro, mut pool) = (Gro::default(), pool());
        let segments: Vec<_> = (0..20_u32)
            .map(|nth| {
                let size = if nth == 19 { 300 } else { 1000 };
                Of::nth(nth, 1000, size).with(|of| of.is_ipv6 = is_ipv6).frame()
            })
            .collect();
        for frame in &segments {
            assert_eq!(join(&mut gro, &mut pool, frame), Joined::Taken);
        }
        assert_eq!(gro.waiting().frames, 20);
        let bytes: usize = segments.iter().map(Vec::len).sum();
        assert_eq!(gro.waiting().bytes, bytes as u64);
        let merged = gro.first().unwrap();
        assert_eq!(merged.bytes.len(), segments[0].len() - 1000 + 19_300);
        assert_eq!(merged.sizes().sum::<usize>(), bytes);
        assert_eq!(cut(&mut gro), segments, "IPv6: {is_ipv6}");
    }
}

#[test]
fn different_segment_waits_until_first_ones_sent() {
    let ended = [
        ("a gap", Of::nth(2, 1000, 1000)),
        ("a repetition", Of::nth(0, 1000, 1000)),
        ("a larger one", Of::nth(1, 1000, 1001)),
        ("another acknowledgment", Of::nth(1, 1000, 1000).with(|of| of.ack = 8)),
        ("another window", Of::nth(1, 1000, 1000).with(|of| of.window = 501)),
        ("another timestamp", Of::nth(1, 1000, 1000).with(|of| of.stamp = 2)),
        ("another ECN field", Of::nth(1, 1000, 1000).with(|of| of.tos = 3)),
        ("an end", Of::nth(1, 1000, 1000).with(|of| of.flags |= tcp::flags::FIN)),
        ("an urgent one", Of::nth(1, 1000, 1000).with(|of| of.flags |= tcp::flags::URG)),
        ("another identification", Of::nth(1, 1000, 1000).with(|of| of.ident = 65_530)),
        ("an acknowledgment", Of::nth(1, 1000, 0)),
    ];
    for (name, segment) in ended {
        let (mut gro, mut pool) = (Gro::default(), pool());
        assert_eq!(join(&mut gro, &mut pool, &Of::nth(0, 1000, 1000).frame()), Joined::Taken);
        assert_eq!(join(&mut gro, &mut pool, &segment.frame()), Joined::Behind, "{name}");
        assert_eq!(cut(&mut gro), [Of::nth(0, 1000, 1000).frame()], "{name}");
        assert_ne!(join(&mut gro, &mut pool, &segment.frame()), Joined::Behind, "{name}");
    }
}

#[test]
fn short_or_pushed_segment_is_the_last() {
    let pushed = Of::nth(1, 1000, 1000).with(|of| of.flags |= tcp::flags::PSH);
    for last in [Of::nth(1, 1000, 999), pushed] {
        let (mut gro, mut pool) = (Gro::default(), pool());
        let seq = 1000 + u32::try_from(last.payload.len()).unwrap();
        let next = Of::nth(2, 1000, 900).with(|of| of.seq = seq);
        assert_eq!(join(&mut gro, &mut pool, &Of::nth(0, 1000, 1000).frame()), Joined::Taken);
        assert_eq!(join(&mut gro, &mut pool, &last.frame()), Joined::Taken);
        assert_eq!(join(&mut gro, &mut pool, &next.frame()), Joined::Behind);
        let has_push = |frame: &[u8]| frame[14 + 20 + 13] & tcp::flags::PSH != 0;
        let frames = cut(&mut gro);
        let wanted = [false, last.flags & tcp::flags::PSH != 0];
        assert_eq!(frames.iter().map(|frame| has_push(frame)).collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn frames_the_stack_must_see_not_joined() {
    let mut wrong_sum = Of::nth(1, 1000, 1000).frame();
    *wrong_sum.last_mut().unwrap() ^= 1;
    let mut wrong_ip_sum = Of::nth(1, 1000, 1000).frame();
    wrong_ip_sum[24] ^= 1;
    let mut may_fragment = Of::nth(1, 1000, 1000).frame();
    may_fragment[20] = 0;
    let padded = [Of::nth(1, 1000, 4).frame(), vec![0; 10]].concat();
    let udp = {
        let mut frame = Of::nth(1, 1000, 1000).frame();
        frame[23] = ipv4::PROTOCOL_UDP;
        frame
    };
    let arp = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
    for frame in [&wrong_sum, &wrong_ip_sum, &may_fragment, &padded, &udp, &arp, &vec![1; 10]] {
        let (mut gro, mut pool) = (Gro::default(), pool());
        assert_eq!(join(&mut gro, &mut pool, frame), Joined::Apart);
        assert_eq!(join(&mut gro, &mut pool, &Of::nth(0, 1000, 1000).frame()), Joined::Taken);
        assert_eq!(join(&mut gro, &mut pool, frame), Joined::Behind);
        assert_eq!(cut(&mut gro).len(), 1);
    }
}

#[test]
fn flows_joined_side_by_side_up_to_maximum() {
    let (mut gro, mut pool) = (Gro::default(), pool());
    let flows = u16::try_from(FLOWS).unwrap();
    let segment = |port, nth| Of::nth(nth, 500, 500).with(|of| of.port = port).frame();
    for nth in 0..3 {
        for port in 0..flows {
            assert_eq!(join(&mut gro, &mut pool, &segment(port, nth)), Joined::Taken);
        }
    }
    let ack = Of::nth(0, 1000, 0).with(|of| of.port = flows).frame();
    assert_eq!(join(&mut gro, &mut pool, &ack), Joined::Apart, "it belongs to none of them");
    assert_eq!(join(&mut gro, &mut pool, &segment(flows, 0)), Joined::Behind);
    let merged = gro.first().unwrap();
    assert_eq!(merged.bytes.len(), HEADER + 1500);
    assert_eq!(cut(&mut gro).len(), 3 * FLOWS);
}

#[test]
fn super_frame_size_limited_to_ip_packet() {
    let (mut gro, mut pool) = (Gro::default(), pool());
    let mut nth = 0;
    while join(&mut gro, &mut pool, &Of::nth(nth, 1448, 1448).frame()) == Joined::Taken {
        nth += 1;
    }
    let size = gro.first().unwrap().bytes.len();
    assert!(size <= 14 + 65_535 && size + 1448 > 14 + 65_535, "{size} bytes");
    assert_eq!(gro.waiting().frames, u64::from(nth));
}

#[test]
fn super_frame_segments_limited() {
    let (mut gro, mut pool) = (Gro::default(), pool());
    let mut nth = 0;
    while join(&mut gro, &mut pool, &Of::nth(nth, 1, 1).frame()) == Joined::Taken {
        nth += 1;
    }
    assert_eq!(nth, SEGMENTS_MAX);
    assert_eq!(gro.first().unwrap().left.unwrap().segments(), 2_048);
}

#[test]
fn invalid_tcp_header_size_not_joined() {
    for words in (0..5).chain([15]) {
        let (mut gro, mut pool) = (Gro::default(), pool());
        for nth in 0..2 {
            let mut frame = Of::nth(nth, 10, 10).frame();
            frame[14 + 20 + 12] = words << 4;
            frame[14 + 20 + 16..][..2].fill(0);
            let (src, dst) = (Ipv4Addr::from([1; 4]), Ipv4Addr::from([2; 4]));
            let sum = checksum::over_ipv4(src, dst, ipv4::PROTOCOL_TCP, &frame[34..]);
            frame[14 + 20 + 16..][..2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(join(&mut gro, &mut pool, &frame), Joined::Apart, "{words} words");
        }
    }
}

proptest::proptest! {
    #[test]
    fn joined_segments_of_any_headers_give_frames(
        changes in proptest::collection::vec((0_usize..80, proptest::num::u8::ANY), 0..3),
        sums in proptest::bool::ANY,
        count in 1_u32..6,
    ) {
        let (mut gro, mut pool) = (Gro::default(), pool());
        for nth in 0..count {
            let mut frame = Of::nth(nth, 40, 40).frame();
            for (at, value) in &changes {
                frame[*at] = *value;
            }
            if sums {
                frame[24..26].fill(0);
                let sum = checksum::internet(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
                let addresses = |at: usize| -> [u8; 4] { *frame[at..].first_chunk().unwrap() };
                let (src, dst) = (Ipv4Addr::from(addresses(26)), Ipv4Addr::from(addresses(30)));
                frame[50..52].fill(0);
                let sum = checksum::over_ipv4(src, dst, ipv4::PROTOCOL_TCP, &frame[34..]);
                frame[50..52].copy_from_slice(&sum.to_be_bytes());
            }
            if join(&mut gro, &mut pool, &frame) == Joined::Behind {
                proptest::prop_assert!(!cut(&mut gro).is_empty());
                proptest::prop_assert_ne!(join(&mut gro, &mut pool, &frame), Joined::Behind);
            }
        }
        cut(&mut gro);
        proptest::prop_assert_eq!(gro.waiting().frames, 0);
    }
}
