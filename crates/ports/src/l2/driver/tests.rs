//! Super-frames through the ports of two devices that are joined, in namespaces of their own.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_base::{Buf as _, ByteCount, PriorityMask};
use sluice_netns::{Netns, veth_pair};
use sluice_testkit::unfinished::{Carries, Unfinished};
use sluice_wire::{checksum, ipv4, udp};

use super::*;
use crate::finish::tests::{egress, handle, outer_headers, pool};
use crate::pool::PoolConfig;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const OUTER: usize = 50;

const OPEN: Window = Window {
    frames: u32::MAX,
    bytes: ByteCount(u64::MAX),
    closed: PriorityMask::NONE,
    needs_copy: false,
};

/// Two namespaces, joined by a veth pair with the kernel's offloads.
struct Wire([Netns; 2]);

impl Wire {
    /// Returns nothing, and says so, where there can be no namespaces.
    fn new(test: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("sluice-u-{}-{number}{side}", std::process::id());
        let left = Netns::create(&name('l'));
        let left = left.inspect_err(|error| eprintln!("SKIPPED {test}: {error}")).ok()?;
        let wire = Self([left, Netns::create(&name('r')).unwrap()]);
        veth_pair((&wire.0[0], "up0"), (&wire.0[1], "up0")).unwrap();
        for (end, address) in wire.0.iter().zip(ENDS) {
            end.ip(&format!("addr add {address}/24 dev up0")).unwrap();
        }
        Some(wire)
    }

    fn ethtool(&self, end: usize, setting: &str) {
        self.0[end].run(&format!("ethtool -K up0 {setting}")).unwrap();
    }

    fn port(&self, end: usize, kernel: KernelShare, mtu: Option<u16>) -> L2Port {
        let config = L2Config { kernel, mtu, ring_bytes: 1 << 20, ..L2Config::new("up0") };
        self.0[end].inside(|| L2Port::open(&config).unwrap()).unwrap()
    }

    /// A host's underlay at one end.
    fn underlay(&self, end: usize) -> L2Port {
        self.port(end, KernelShare::NoVxlan(ENDS[end]), None)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for end in &self.0 {
            _ = end.delete();
        }
    }
}

fn frames() -> [Unfinished; 4] {
    let frame = |data, each| Unfinished::new(Carries::Tcp4, ADDRESSES, data, Some(each));
    // More than go together; another size; a last segment of full size; a single one.
    [frame(64_000, 1_000), frame(9_000, 900), frame(2_000, 1_000), frame(10, 1_000)]
}

/// Offers a super-frame as one through a tunnel, until all of it is taken.
fn send(from: &mut L2Port, to: Mac, frame: &Unfinished) {
    let mut pool = pool();
    let buf = handle(&mut pool, frame);
    let size = u16::try_from(buf.segment_size()).unwrap();
    let mut outer = outer_headers(ENDS.map(|end| end.octets()), 4789, size);
    outer[..6].copy_from_slice(&to.0);
    let mut first = 0;
    loop {
        match from.offer(&egress(&outer, &buf, first)) {
            Taken::All => break,
            Taken::Segments(count) => first += count,
            Taken::No | Taken::Later => from.flush().unwrap(),
        }
    }
    from.flush().unwrap();
    pool.give_back(buf);
}

/// Returns what one read of at most `limit` gives.
fn read(to: &mut L2Port, limit: usize) -> Vec<Vec<u8>> {
    let config = PoolConfig { slots: 64, slot_size: 2_048, populate: false };
    let mut pool = Pool::new(config).unwrap();
    let mut batch: Batch<FrameBuf> = Batch::with_limit(64);
    to.read(OPEN, limit, &mut pool, &mut batch).unwrap();
    let take = |buf: FrameBuf| {
        let bytes = buf.bytes().to_vec();
        pool.give_back(buf);
        bytes
    };
    batch.drain().map(take).collect()
}

fn read_all(to: &mut L2Port) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let some = read(to, 64);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

/// Checks outer headers, and returns the inner frames.
fn inner(frames: &[Vec<u8>], sums: Sums) -> Vec<Vec<u8>> {
    let inner = |frame: &Vec<u8>| {
        let packet = ipv4::Packet::new_checked(&frame[14..]).unwrap();
        assert!(packet.header_checksum_ok());
        assert_eq!(usize::from(packet.total_size()), frame.len() - 14);
        assert_eq!((packet.src(), packet.dst()), (ENDS[0], ENDS[1]));
        assert_eq!((packet.dscp(), packet.ecn()), (8, 2));
        let datagram = udp::Packet::new_checked(&frame[34..]).unwrap();
        assert_eq!(usize::from(datagram.size()), frame.len() - 34);
        let is_none = frame[40..42] == [0, 0];
        let sum = checksum::over_ipv4(ENDS[0], ENDS[1], ipv4::PROTOCOL_UDP, &frame[34..]);
        match sums {
            Sums::None => assert!(is_none),
            Sums::Right => assert!(!is_none && sum == 0, "a checksum was left open"),
            Sums::RightOrNone => assert!(is_none || sum == 0, "a checksum was left open"),
        }
        frame[OUTER..].to_vec()
    };
    frames.iter().map(inner).collect()
}

/// Content of the outer checksums.
#[derive(Clone, Copy)]
enum Sums {
    None,
    Right,
    RightOrNone,
}

fn nothing_was_lost(ports: &[&L2Port]) {
    for port in ports {
        let rows = port.outside().into_counters().unwrap();
        assert_eq!(rows["ring.drops"] + rows["ring.truncated"] + rows["series.parted"], 0);
        assert_eq!((port.lost().total().frames, port.pending().frames), (0, 0));
    }
}

#[test]
fn super_frame_crosses_wire_as_one_datagram() {
    let Some(wire) = Wire::new("super_frame_crosses_wire_as_one_datagram") else { return };
    let (mut from, mut to) = (wire.underlay(0), wire.underlay(1));
    let frames = frames();
    frames.iter().for_each(|frame| send(&mut from, to.mac(), frame));
    let first = read(&mut to, 3);
    assert_eq!(first.len(), 3);
    let aside = to.read_ahead().unwrap().aside();
    assert!(aside.frames > 20 && aside.bytes > 20_000, "they came together: {aside:?}");
    // What came together is handed out also when nothing more is read.
    to.read_ahead().unwrap().stop_reading();
    let rest = read_all(&mut to);
    assert_eq!(rest.len() as u64, aside.frames);
    to.read_ahead().unwrap().resume_reading();
    let all = [first, rest, read_all(&mut to)].concat();
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    assert!(inner(&all, Sums::None) == expected, "all, whole and in order");
    assert_eq!(from.out.sent(), expected.len() as u64, "segments count, not super-frames");
    nothing_was_lost(&[&from, &to]);
}

#[test]
fn cable_finishes_checksums_of_joined_datagrams() {
    let Some(wire) = Wire::new("cable_finishes_checksums_of_joined_datagrams") else { return };
    let mut from = wire.underlay(0);
    let mut to = wire.port(1, KernelShare::Nothing, None);
    let frames = frames();
    frames.iter().for_each(|frame| send(&mut from, to.mac(), frame));
    let all = read_all(&mut to);
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    assert!(inner(&all, Sums::RightOrNone) == expected);
    // Of the first frame all but one segment went with others.
    inner(&all[..40], Sums::Right);
    nothing_was_lost(&[&from, &to]);
}

#[test]
fn kernel_cuts_series_for_device_without_offload() {
    let Some(wire) = Wire::new("kernel_cuts_series_for_device_without_offload") else { return };
    wire.ethtool(0, "tx-udp-segmentation off");
    let mut from = wire.underlay(0);
    let mut to = wire.port(1, KernelShare::Nothing, None);
    let frames = frames();
    frames.iter().for_each(|frame| send(&mut from, to.mac(), frame));
    assert!(to.waiting() > 60, "a place of the ring for each");
    let all = read_all(&mut to);
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    assert!(inner(&all, Sums::RightOrNone) == expected);
    inner(&all[..40], Sums::Right);
    nothing_was_lost(&[&from, &to]);
}

#[test]
fn device_without_checksums_gets_frames_one_by_one() {
    let Some(wire) = Wire::new("device_without_checksums_gets_frames_one_by_one") else { return };
    wire.ethtool(0, "tx off");
    let (mut from, mut to) = (wire.underlay(0), wire.underlay(1));
    let frames = frames();
    frames.iter().for_each(|frame| send(&mut from, to.mac(), frame));
    let all = read_all(&mut to);
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    assert!(inner(&all, Sums::None) == expected);
    nothing_was_lost(&[&from, &to]);
}

#[test]
fn segments_beyond_mtu_lost_each_none_sent() {
    let Some(wire) = Wire::new("segments_beyond_mtu_lost_each_none_sent") else { return };
    let mut from = wire.port(0, KernelShare::NoVxlan(ENDS[0]), Some(1_000));
    let mut to = wire.underlay(1);
    let frame = Unfinished::new(Carries::Tcp4, ADDRESSES, 7_000, Some(1_000));
    send(&mut from, to.mac(), &frame);
    let lost = from.lost().total();
    assert_eq!(lost.frames, 7, "segments count, not super-frames");
    assert_eq!(lost.bytes, 7 * (50 + 66 + 1_000));
    assert!(read_all(&mut to).is_empty(), "the kernel would have cut by any size");
    // What fits goes on.
    let frame = Unfinished::new(Carries::Tcp4, ADDRESSES, 2_400, Some(800));
    send(&mut from, to.mac(), &frame);
    assert!(inner(&read_all(&mut to), Sums::None) == frame.finished());
    assert_eq!(from.lost().total(), lost);
}

#[test]
fn packet_that_is_no_series_counts_as_truncated() {
    let Some(wire) = Wire::new("packet_that_is_no_series_counts_as_truncated") else { return };
    for end in &wire.0 {
        end.ip("link set up0 mtu 9000").unwrap();
    }
    let mut from = wire.port(0, KernelShare::NoVxlan(ENDS[0]), Some(9_000));
    let mut to = wire.port(1, KernelShare::NoVxlan(ENDS[1]), Some(1_500));
    let large = Unfinished::new(Carries::Tcp4, ADDRESSES, 8_000, Some(8_100));
    let small = Unfinished::new(Carries::Tcp4, ADDRESSES, 3_000, Some(1_000));
    for frame in [&small, &large, &small] {
        send(&mut from, to.mac(), frame);
    }
    let all = inner(&read_all(&mut to), Sums::None);
    assert!(all == [small.finished(), small.finished()].concat());
    assert_eq!(to.outside().into_counters().unwrap()["ring.truncated"], 1);
}
