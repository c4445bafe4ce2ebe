//! Super-frames through two ports on the loopback device, which takes several datagrams as one.

use sluice_base::{Batch, Buf, ByteCount, Priority, PriorityMask, TunnelId};
use sluice_switch::{Egress, Sink as _, Taken, Window};
use sluice_testkit::unfinished::{Carries, Unfinished};
use sluice_wire::ipv4;

use super::*;
use crate::finish::tests::outer_headers;
use crate::frame::FrameBuf;
use crate::offload::{Kind, Offload, OffloadRequest};
use crate::pool::{Pool, PoolConfig};
use crate::port::{Port as _, ReadAhead as _};

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const OUTER: usize = 42;
const VXLAN: usize = 8;

const OPEN: Window = Window {
    frames: u32::MAX,
    bytes: ByteCount(u64::MAX),
    closed: PriorityMask::NONE,
    needs_copy: false,
};

struct Pair {
    from: UdpPort,
    to: UdpPort,
    port: u16,
    pool: Pool,
    /// Places of the frames that are offered: without large ones, those that come stay apart.
    offered: Pool,
}

impl Pair {
    fn new() -> Self {
        let open = |last, port| {
            let local = [127, 0, 0, last].into();
            let config = UdpConfig { port, ..UdpConfig::new(local, Mac([2; 6]), 1_500) };
            UdpPort::open(&config).unwrap()
        };
        let to = open(2, 0);
        let socket = std::net::UdpSocket::from(to.duplicate_socket().unwrap());
        let port = socket.local_addr().unwrap().port();
        let from = open(1, port);
        let pool = PoolConfig { slots: 256, slot_size: 2_048, populate: false };
        let offered = Pool::new(pool).unwrap().with_large(4).unwrap();
        let mut pair = Self { from, to, port, pool: Pool::new(pool).unwrap(), offered };
        // From its first read on a port takes what is joined.
        assert!(pair.read(1).is_empty());
        pair
    }

    fn offer(&mut self, frame: &Unfinished) {
        let cut = frame.each.map(|each| (Kind::Tcp4, each));
        let bytes = frame.frame();
        let ask = OffloadRequest { start: 34, offset: 16, cut, ecn: false };
        let left = Offload::check(ask, &bytes[..bytes.len().min(128)], bytes.len()).unwrap();
        let mut slot = self.offered.take_large().unwrap();
        slot.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        let buf = slot.freeze(&left);
        let size = u16::try_from(buf.segment_size()).unwrap();
        let header = outer_headers([[127, 0, 0, 1], [127, 0, 0, 2]], self.port, size);
        let mut first = 0;
        loop {
            let (tunnel, priority) = (Some(TunnelId(0)), Priority::ZERO);
            let buf = Some(&buf);
            let egress =
                Egress { header: &header, buf, strip: 0, size: 0, first, priority, tunnel };
            match self.from.offer(&egress) {
                Taken::All => break,
                Taken::Segments(count) => first += count,
                Taken::No | Taken::Later => self.from.flush().unwrap(),
            }
        }
        self.offered.give_back(buf);
    }

    /// Returns the inner frames that one read of at most `limit` gives.
    fn read(&mut self, limit: usize) -> Vec<Vec<u8>> {
        let mut batch: Batch<FrameBuf> = Batch::with_limit(256);
        self.to.read(OPEN, limit, &mut self.pool, &mut batch).unwrap();
        let mut all = Vec::new();
        for buf in batch.drain() {
            let frame = buf.bytes();
            let packet = ipv4::Packet::new_checked(&frame[14..]).unwrap();
            assert_eq!(usize::from(packet.total_size()), frame.len() - 14);
            assert_eq!(packet.src(), Ipv4Addr::new(127, 0, 0, 1));
            assert_eq!((packet.dscp(), packet.ecn()), (8, 2));
            all.push(frame[OUTER + VXLAN..].to_vec());
            self.pool.give_back(buf);
        }
        all
    }

    fn read_all(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let some = self.read(64);
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }
}

fn frame(data: usize, each: u16) -> Unfinished {
    Unfinished::new(Carries::Tcp4, ADDRESSES, data, Some(each))
}

#[test]
fn super_frames_segments_cross_together_come_apart() {
    let mut pair = Pair::new();
    // More than are staged at a time; another size; a last segment of full size; a single one.
    let frames = [frame(60_100, 1_000), frame(9_000, 900), frame(2_000, 1_000), frame(10, 1_000)];
    frames.iter().for_each(|frame| pair.offer(frame));
    pair.from.flush().unwrap();
    assert_eq!(pair.from.pending().frames, 0);
    let first = pair.read(3);
    assert_eq!(first.len(), 3);
    let aside = pair.to.aside().frames;
    assert!(aside > 20, "the rest of the first came together with these: {aside}");
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    assert!([first, pair.read_all()].concat() == expected, "all, whole and in order");
    assert_eq!((pair.to.aside().frames, pair.pool.used() + pair.offered.used()), (0, 0));
    assert_eq!(pair.from.lost().total().frames, 0);
}

#[test]
fn stopped_port_hands_out_what_came_together() {
    let mut pair = Pair::new();
    let frames = [frame(20_000, 1_000), frame(500, 100)];
    pair.offer(&frames[0]);
    pair.from.flush().unwrap();
    let first = pair.read(4);
    pair.to.stop_reading();
    pair.offer(&frames[1]);
    pair.from.flush().unwrap();
    let rest = pair.read_all();
    assert!([first, rest].concat() == frames[0].finished());
    assert_eq!(pair.to.aside().frames, 0, "the rest stays in the socket");
    pair.to.resume_reading();
    assert!(pair.read_all() == frames[1].finished());
}

#[test]
fn kernel_that_takes_no_series_gets_single_datagrams() {
    let mut pair = Pair::new();
    pair.from.refuse_series();
    let frames = [frame(30_000, 1_000), frame(3_000, 700)];
    frames.iter().for_each(|frame| pair.offer(frame));
    pair.from.flush().unwrap();
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    let first = pair.read(2);
    assert_eq!(pair.to.aside().frames, 0, "each came alone");
    assert!([first, pair.read_all()].concat() == expected);
    assert_eq!(pair.from.lost().total().frames, 0);
}

/// As a worker reads: until a read takes nothing.
#[test]
fn read_that_only_loses_is_followed_by_another() {
    let mut pair = Pair::new();
    let to = (Ipv4Addr::new(127, 0, 0, 2), pair.port);
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Larger than a slot, and more than one call takes.
    for _ in 0..100 {
        stranger.send_to(&[0; 3_000], to).unwrap();
    }
    pair.offer(&frame(10, 1_000));
    pair.from.flush().unwrap();
    let mut batch: Batch<FrameBuf> = Batch::with_limit(256);
    let mut lost = 0;
    loop {
        let read = pair.to.read(OPEN, 64, &mut pair.pool, &mut batch).unwrap();
        lost += read.others;
        if read.frames + read.others == 0 {
            assert!(!read.more, "it may sleep");
            break;
        }
    }
    assert_eq!((lost, batch.len()), (100, 1));
    batch.drain().for_each(|buf| pair.pool.give_back(buf));
}

#[test]
fn closed_port_counts_what_came_together_as_lost() {
    let mut pair = Pair::new();
    pair.offer(&frame(20_000, 1_000));
    pair.from.flush().unwrap();
    assert_eq!(pair.read(4).len(), 4);
    let aside = pair.to.aside().frames;
    assert!(aside > 0, "the rest waits in the port");
    pair.to.close().unwrap();
    assert_eq!((pair.to.aside().frames, pair.to.lost().total().frames), (0, aside));
}

#[test]
fn segments_that_come_together_become_one_frame() {
    let mut pair = Pair::new();
    pair.pool = Pool::new(PoolConfig { slots: 64, slot_size: 2_048, populate: false })
        .and_then(|pool| pool.with_large(8))
        .unwrap();
    let frames = [frame(30_000, 1_000), frame(2_500, 1_000), frame(10, 1_000)];
    frames.iter().for_each(|frame| pair.offer(frame));
    pair.from.flush().unwrap();
    let mut batch: Batch<FrameBuf> = Batch::with_limit(64);
    // No more than the window promises: the last one may exceed it by a frame.
    let small = Window { bytes: ByteCount(10_000), ..OPEN };
    pair.to.read(small, 64, &mut pair.pool, &mut batch).unwrap();
    let bytes: u32 = batch.as_slice().iter().map(Buf::size).sum();
    assert!(bytes < 10_000 + 1_514, "{bytes}");
    while pair.to.read(OPEN, 64, &mut pair.pool, &mut batch).unwrap().frames > 0 {}
    let (mut segments, mut size) = (0, 0);
    let count = batch.len();
    for buf in batch.drain() {
        segments += usize::from(buf.segments());
        size += buf.size() as usize;
        pair.pool.give_back(buf);
    }
    let expected: Vec<_> = frames.iter().flat_map(Unfinished::finished).collect();
    assert_eq!(segments, expected.len());
    assert_eq!(size, expected.iter().map(|frame| OUTER + VXLAN + frame.len()).sum::<usize>());
    assert!(count <= 5, "{count}");
    assert_eq!((pair.pool.used(), pair.to.aside().frames), (0, 0));
}
