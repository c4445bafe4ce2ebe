//! Super-frames: each segment goes once and in order, and all byte counters count bytes on the
//! wire.

mod harness;

use std::collections::BTreeMap;

use harness::config::{access, config, underlay, underlay_mac, vtep, with_tunnels};
use harness::frames::{Outer, Tenant, in_vxlan};
use sluice_base::{
    Batch, BitRate, Buf, DropReason, Mac, Nanos, PortId, Priority, Prng, TunnelId, VnetId,
};
use sluice_switch::{Command, Destination, Egress, PortConfig, RateLimit, Switch, Taken};

const NOW: Nanos = Nanos(1_000_000);
const HEADERS: u32 = 66;
/// Size of the outer headers of a tunnel.
const OUTER: u32 = 50;

/// A frame of `segments` segments, all of `each` bytes but the last one.
#[derive(Debug)]
struct Frame {
    head: Vec<u8>,
    number: u32,
    segments: u16,
    each: u32,
    last: u32,
}

impl Frame {
    fn new(from: u8, dst: u8, number: u32, segments: u16, each: u32, last: u32) -> Self {
        let head = Tenant::new(mac(dst), mac(from), 0, HEADERS).bytes();
        Self { head, number, segments, each, last }
    }

    /// Returns a frame out of the tunnel. Sizes are those of segments with their outer headers.
    fn out_of_tunnel(dst: u8, number: u32, sizes: (u16, u32, u32), inner_ecn: u8, ecn: u8) -> Self {
        let (segments, each, last) = sizes;
        let inner = Tenant { ecn: inner_ecn, ..Tenant::new(mac(dst), mac(4), 0, each - OUTER) };
        let (dst, remote, local) = (underlay_mac(1), vtep(2), vtep(1));
        let outer = Outer { dst, remote, local, vni: 100, dscp: 0, ecn, pcp: None };
        let mut head = in_vxlan(&outer, &inner.bytes());
        head.truncate(128);
        Self { head, number, segments, each, last }
    }

    /// Returns the bytes of some of its segments.
    fn bytes(&self, first: u16, count: u16) -> u32 {
        let has_last = first + count == self.segments;
        let full = u32::from(count) - u32::from(has_last);
        full * self.each + if has_last { self.last } else { 0 }
    }

    /// Returns a copy in the pool.
    fn copied(&self) -> Self {
        Self { head: self.head.clone(), ..*self }
    }
}

impl Buf for Frame {
    fn head(&self) -> &[u8] {
        &self.head
    }

    fn size(&self) -> u32 {
        self.bytes(0, self.segments)
    }

    fn truncate(&mut self, _size: u32) {
        unreachable!("these frames have no padding");
    }

    fn segments(&self) -> u16 {
        self.segments
    }

    fn segment_size(&self) -> u32 {
        if self.segments == 1 { self.last } else { self.each }
    }
}

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// Returns a switch whose ports 0 and 1 send; port 2 (MAC 3) and the tunnel behind port 3 (MAC 4)
/// receive.
fn switch(receiver: PortConfig) -> Switch<Frame> {
    let ports = vec![access(0), access(0), receiver, underlay(1)];
    let mut switch = Switch::new(&with_tunnels(config(ports), 3, &[2]), 1, NOW).unwrap();
    for (n, to) in [
        (1, Destination::Port(PortId(0))),
        (2, Destination::Port(PortId(1))),
        (3, Destination::Port(PortId(2))),
        (4, Destination::Tunnel(TunnelId(0))),
    ] {
        switch.command(NOW, Command::Install { vnet: VnetId(0), mac: mac(n), to }).unwrap();
    }
    switch
}

fn give(switch: &mut Switch<Frame>, port: u16, frames: Vec<Frame>) {
    let input = switch.input(PortId(port), 0);
    let mut batch = Batch::with_limit(64);
    frames.into_iter().for_each(|frame| batch.push(frame).unwrap());
    switch.receive(NOW, input, &mut batch);
}

fn reclaimed(switch: &mut Switch<Frame>, port: u16) -> Vec<u32> {
    let input = switch.input(PortId(port), 0);
    std::iter::from_fn(|| switch.reclaim_one(input)).map(|buf| buf.number).collect()
}

/// Segments that a driver took: (source, frame, first segment, count).
type Took = (u8, u32, u16, u16);

/// Lets a driver with room for `room` segments take frames.
fn drive(switch: &mut Switch<Frame>, port: u16, mut room: u16, took: &mut Vec<Took>) -> u32 {
    let mut sink = |egress: &Egress<'_, Frame>| {
        let Some(buf) = egress.buf else { return Taken::All };
        let left = buf.segments - egress.first;
        let outer = u32::try_from(egress.header.len()).unwrap();
        let strip = u32::from(egress.strip);
        let size = buf.bytes(egress.first, left) + u32::from(left) * outer;
        let size = size - u32::from(left) * strip;
        assert_eq!(egress.size, size, "what is left of it, on the wire");
        match strip {
            0 => assert_eq!(outer, if port == 3 { OUTER } else { 0 }),
            _ => assert_eq!(strip - outer, OUTER, "what is changed takes the place of the same"),
        }
        let count = left.min(room);
        room -= count;
        if count > 0 {
            took.push((buf.head[11], buf.number, egress.first, count));
        }
        match count {
            0 => Taken::No,
            _ if count == left => Taken::All,
            _ => Taken::Segments(count),
        }
    };
    switch.transmit(NOW, PortId(port), &mut sink)
}

#[test]
fn every_segment_is_taken_once_and_in_order() {
    for seed in 0..40 {
        let mut rng = Prng::new(seed);
        let mut switch = switch(access(0));
        let mut pick = |bound: u64| u32::try_from(rng.below(bound)).unwrap();
        let (mut given, mut took) = (BTreeMap::new(), [Vec::new(), Vec::new()]);
        let mut sent = [(0, 0); 2];
        for number in 0..600 {
            let (from, to) = (1 + u8::try_from(pick(2)).unwrap(), pick(2));
            let segments = [1, 1, 2, 3, 45][pick(5) as usize];
            let (each, dst) = (200 + pick(1_200), 3 + u8::try_from(to).unwrap());
            let last = 67 + pick(u64::from(each) - 67);
            let frame = Frame::new(from, dst, number, segments, each, last);
            let window = switch.window(switch.input(PortId((from - 1).into()), 0));
            if number < 500 && window.frames > 0 {
                let outer = if to == 1 { 50 * u32::from(segments) } else { 0 };
                sent[to as usize].0 += u64::from(segments);
                sent[to as usize].1 += u64::from(frame.size() + outer);
                given.entry((to, from)).or_insert_with(Vec::new).push((number, segments));
                give(&mut switch, (from - 1).into(), vec![frame]);
            }
            let room = if number < 500 { pick(60) } else { 300 };
            let (out, room) = (pick(2), u16::try_from(room).unwrap());
            drive(&mut switch, 2 + u16::try_from(out).unwrap(), room, &mut took[out as usize]);
            assert!(switch.audit().is_closed(), "seed {seed}, after {number}");
            reclaimed(&mut switch, 0);
            reclaimed(&mut switch, 1);
        }
        for to in 0..2 {
            for (&(_, from), frames) in given.iter().filter(|((at, _), _)| *at == to) {
                let of = took[to as usize].iter().filter(|took| took.0 == from);
                let seen = of
                    .flat_map(|&(_, n, first, count)| (first..first + count).map(move |s| (n, s)));
                let all = frames.iter().flat_map(|&(n, count)| (0..count).map(move |s| (n, s)));
                assert!(seen.eq(all), "seed {seed}: port {to}, source {from}");
            }
            let counter = switch.sent(PortId(2 + u16::try_from(to).unwrap()));
            let sent = sent[to as usize];
            assert_eq!((counter.frames, counter.bytes), sent, "seed {seed}: on the wire");
        }
    }
}

#[test]
fn super_frame_charges_input_its_wire_bytes() {
    let mut switch = switch(access(0));
    let input = switch.input(PortId(0), 0);
    let before = switch.window(input).bytes.0;
    give(&mut switch, 0, vec![Frame::new(1, 3, 0, 45, 1_514, 100)]);
    assert_eq!(switch.window(input).bytes.0, before - (44 * 1_514 + 100));
    let mut took = Vec::new();
    assert_eq!(drive(&mut switch, 2, 30, &mut took), 30);
    assert_eq!(reclaimed(&mut switch, 0), [], "it is still read from");
    assert_eq!(drive(&mut switch, 2, 30, &mut took), 15);
    assert_eq!(reclaimed(&mut switch, 0), [0]);
    assert_eq!(switch.window(input).bytes.0, before);
}

#[test]
fn a_rate_counts_every_segment_with_its_gap() {
    let rate = RateLimit { rate: BitRate::from_gbps(1), catch_up: Nanos(0), overhead: 24 };
    let mut switch = switch(PortConfig { rate: Some(rate), ..access(0) });
    give(
        &mut switch,
        0,
        vec![Frame::new(1, 3, 0, 10, 1_000, 1_000), Frame::new(1, 3, 1, 1, 0, 100)],
    );
    let mut took = Vec::new();
    assert_eq!(drive(&mut switch, 2, 99, &mut took), 10);
    // Eight nanoseconds a byte, and 24 bytes around each.
    assert_eq!(switch.deadline(), Some(Nanos(NOW.0 + 8 * 10 * 1_024)));
}

#[test]
fn partly_sent_super_frame_after_migration_sends_rest() {
    let mut switch = switch(access(0));
    let input = switch.input(PortId(0), 0);
    give(&mut switch, 0, (0..2).map(|n| Frame::new(1, 3, n, 10, 1_000, 500)).collect());
    let mut took = Vec::new();
    drive(&mut switch, 2, 4, &mut took);
    let mut gone = Vec::new();
    let ended = switch.migrate_buffers(input, |buf| {
        let copy = buf.copied();
        gone.push(buf.number);
        Ok(copy)
    });
    assert_eq!((ended, gone.len()), (0, 2));
    drive(&mut switch, 2, 99, &mut took);
    assert_eq!(took, [(1, 0, 0, 4), (1, 0, 4, 6), (1, 1, 0, 10)]);
    assert!(switch.audit().is_closed());
}

#[test]
fn super_frame_copies_progress_independently_per_port() {
    let mut switch = switch(access(0));
    let input = switch.input(PortId(0), 0);
    let mut frame = Frame::new(1, 3, 7, 6, 1_000, 500);
    frame.head[..6].fill(0xff);
    give(&mut switch, 0, vec![frame]);
    switch.copy_to_shared(input, Ok);
    let (mut to_1, mut to_2, mut to_tunnel) = (Vec::new(), Vec::new(), Vec::new());
    drive(&mut switch, 1, 99, &mut to_1);
    drive(&mut switch, 2, 2, &mut to_2);
    drive(&mut switch, 3, 5, &mut to_tunnel);
    drive(&mut switch, 2, 99, &mut to_2);
    drive(&mut switch, 3, 99, &mut to_tunnel);
    assert_eq!(to_1, [(1, 7, 0, 6)]);
    assert_eq!(to_2, [(1, 7, 0, 2), (1, 7, 2, 4)]);
    assert_eq!(to_tunnel, [(1, 7, 0, 5), (1, 7, 5, 1)]);
    assert!(switch.audit().is_closed());
}

#[test]
fn what_must_fit_is_one_segment() {
    let mut switch = switch(access(0));
    let input = switch.input(PortId(0), 0);
    give(
        &mut switch,
        0,
        vec![
            Frame::new(1, 3, 0, 40, 1_514, 100),
            Frame::new(1, 3, 1, 2, 1_515, 100),
            // Small as a whole, and yet two.
            Frame::new(1, 3, 2, 2, 100, 90),
        ],
    );
    let mut took = Vec::new();
    drive(&mut switch, 2, 99, &mut took);
    assert_eq!(took, [(1, 0, 0, 40), (1, 2, 0, 2)]);
    assert_eq!(switch.dropped(input, Priority::ZERO, DropReason::Oversize).frames, 1);
}

#[test]
fn super_frame_from_tunnel_counts_outer_headers_once() {
    for (inner_ecn, ecn) in [(0, 0), (1, 1), (1, 3)] {
        let mut switch = switch(access(0));
        let sizes = (45, 1_500, 150);
        give(&mut switch, 3, vec![Frame::out_of_tunnel(3, 0, sizes, inner_ecn, ecn)]);
        let came = 44 * 1_500 + 150;
        let flow = switch.decap_flows().next().unwrap();
        assert_eq!(flow.received.bytes, came, "all that was on the wire");
        let mut took = Vec::new();
        assert_eq!(drive(&mut switch, 2, 30, &mut took), 30);
        assert!(switch.audit().is_closed());
        assert_eq!(drive(&mut switch, 2, 30, &mut took), 15);
        // From the tunnel's host: the address in front is that of its device.
        let (_, number, ..) = took[0];
        assert_eq!((number, took.len()), (0, 2));
        let sent = switch.sent(PortId(2));
        assert_eq!((sent.frames, sent.bytes), (45, came - 45 * u64::from(OUTER)));
        assert_eq!(reclaimed(&mut switch, 3), [0]);
        assert!(switch.audit().is_closed());
    }
}

#[test]
fn segment_from_tunnel_fits_without_outer_headers() {
    let mut switch = switch(PortConfig { mtu: 1_400, ..access(0) });
    let input = switch.input(PortId(3), 0);
    let sizes = [(2, 1_464, 1_464), (2, 1_465, 100), (3, 300, 100)];
    let of = |(number, sizes)| Frame::out_of_tunnel(3, number, sizes, 0, 0);
    give(&mut switch, 3, (0..).zip(sizes).map(of).collect());
    let mut took = Vec::new();
    drive(&mut switch, 2, 99, &mut took);
    assert_eq!(took.iter().map(|took| (took.1, took.3)).collect::<Vec<_>>(), [(0, 2), (2, 3)]);
    assert_eq!(switch.dropped(input, Priority::ZERO, DropReason::Oversize).frames, 1);
    let dropped = switch.dropped(input, Priority::ZERO, DropReason::Oversize);
    assert_eq!(dropped.bytes, 1_565);
    assert!(switch.audit().is_closed());
}
