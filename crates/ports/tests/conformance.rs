//! Requirements on every kind of port, checked on each by the same code.

mod support;

use sluice_base::{Batch, ByteCount, Mac, PriorityMask};
use sluice_ports::l2::{KernelShare, L2Config, L2Port, Trunk, Vlan};
use sluice_ports::memory::{self, MemoryConfig};
use sluice_ports::tap::{TapConfig, TapPort};
use sluice_ports::udp::{UdpConfig, UdpPort};
use sluice_ports::veth::{VethConfig, VethPort};
use sluice_ports::{Pool, Port};
use sluice_switch::{Sink as _, Taken, Window};
use support::{
    Cable, LEFT, OPEN, Peer, RIGHT, RawPeer, VXLAN, VtepPeer, Waiter, egress, eventually, frame,
    inside, pool, read_all, receive_all, test_frame,
};

/// A port, its other end, and the link between them.
struct Rig<'a> {
    port: Box<dyn Port>,
    peer: Box<dyn Peer + 'a>,
    /// Outer headers of each frame that is offered.
    header: Vec<u8>,
    /// Bytes in front of each frame that is read.
    strip: usize,
    /// Size of the largest frame.
    size_max: usize,
    /// Maximum of frames that the peer may send before a read.
    burst: usize,
}

impl Rig<'_> {
    fn frames(&self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|nth| test_frame(nth, self.size_max)).collect()
    }
}

fn check_all(rig: &mut Rig<'_>) {
    let mut pool = pool(256);
    frames_arrive_unchanged_and_in_order(rig, &mut pool);
    no_wake_up_is_missed(rig, &mut pool);
    no_window_no_frame(rig, &mut pool);
    the_window_is_kept(rig, &mut pool);
    frames_leave_unchanged_and_in_order(rig, &mut pool);
    offered_frames_are_taken_pending_or_refused(rig, &mut pool);
    nothing_was_lost(rig);
    a_closed_port_does_nothing(rig, &mut pool);
    assert_eq!(pool.used(), 0);
}

fn frames_arrive_unchanged_and_in_order(rig: &mut Rig<'_>, pool: &mut Pool) {
    let frames = rig.frames(4 * rig.burst);
    for part in frames.chunks(rig.burst) {
        part.iter().for_each(|frame| rig.peer.send(frame));
        let read = read_all(&mut *rig.port, pool, part.len(), rig.strip);
        assert_eq!(read.len(), part.len());
        for (nth, (read, sent)) in read.iter().zip(part).enumerate() {
            assert_eq!(read, sent, "frame {nth} of a part");
        }
    }
    let ring = rig.port.ring();
    assert!(ring.capacity_frames > 0);
    assert!(ring.waiting_frames_max.is_none_or(|most| most > 0 && most <= ring.capacity_frames));
}

/// After `more: false`, the next frame makes an edge; until then, the loop has to read on.
fn no_wake_up_is_missed(rig: &mut Rig<'_>, pool: &mut Pool) {
    let waiter = Waiter::new(&*rig.port);
    let mut batch = Batch::with_limit(8);
    for round in 0..200 {
        let count = 1 + round % 3;
        rig.frames(count).iter().for_each(|frame| rig.peer.send(frame));
        let mut came = 0;
        while came < count {
            assert!(waiter.wait(1000), "round {round}: {came} of {count} came, and no edge");
            loop {
                let read = rig.port.read(OPEN, 1 + round % 2, pool, &mut batch).unwrap();
                came += read.frames;
                batch.drain().for_each(|buf| pool.give_back(buf));
                if !read.more {
                    break;
                }
            }
        }
    }
}

fn no_window_no_frame(rig: &mut Rig<'_>, pool: &mut Pool) {
    let frames = rig.frames(4);
    frames.iter().for_each(|frame| rig.peer.send(frame));
    let mut batch = Batch::with_limit(8);
    let no_bytes = Window { bytes: ByteCount::ZERO, ..OPEN };
    for (window, limit) in [(Window { frames: 0, ..OPEN }, 8), (no_bytes, 8), (OPEN, 0)] {
        let read = rig.port.read(window, limit, pool, &mut batch).unwrap();
        assert_eq!((read.frames, batch.len()), (0, 0));
        assert!(read.more, "it did not look, so it cannot say that there is nothing");
    }
    let held: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let read = rig.port.read(OPEN, 8, pool, &mut batch).unwrap();
    assert_eq!((read.frames, read.more), (0, true), "no slot, no frame");
    held.into_iter().for_each(|slot| pool.cancel(slot));
    let mut full = Batch::with_limit(0);
    assert_eq!(rig.port.read(OPEN, 8, pool, &mut full).unwrap().frames, 0, "no room, no frame");
    assert_eq!(read_all(&mut *rig.port, pool, 4, rig.strip), frames);
}

fn the_window_is_kept(rig: &mut Rig<'_>, pool: &mut Pool) {
    let frames = rig.frames(12);
    frames.iter().for_each(|frame| rig.peer.send(frame));
    let mut batch = Batch::with_limit(64);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut read_frames: Vec<Vec<u8>> = Vec::new();
    let mut narrow = true;
    while read_frames.len() < frames.len() && std::time::Instant::now() < end {
        // Alternating windows: at most 3 frames, and at most 1000 bytes before the last one.
        let window = if narrow {
            Window { frames: 3, ..OPEN }
        } else {
            Window { bytes: ByteCount(1000), ..OPEN }
        };
        let read = rig.port.read(window, 64, pool, &mut batch).unwrap();
        let sizes: Vec<usize> = batch.as_slice().iter().map(|buf| buf.bytes().len()).collect();
        if narrow {
            assert!(read.frames <= 3);
        } else {
            let but_last = sizes.len().saturating_sub(1);
            assert!(sizes[..but_last].iter().sum::<usize>() < 1000, "{sizes:?}");
        }
        for buf in batch.drain() {
            read_frames.push(buf.bytes()[rig.strip..].to_vec());
            pool.give_back(buf);
        }
        narrow = !narrow;
    }
    assert_eq!(read_frames, frames);
}

fn frames_leave_unchanged_and_in_order(rig: &mut Rig<'_>, pool: &mut Pool) {
    let frames = rig.frames(4 * rig.burst);
    for part in frames.chunks(rig.burst) {
        for bytes in part {
            let buf = frame(pool, bytes);
            while rig.port.offer(&egress(&rig.header, Some(&buf))) == Taken::No {
                rig.port.flush().unwrap();
            }
            pool.give_back(buf);
        }
        rig.port.flush().unwrap();
        let received = receive_all(&mut *rig.peer, part.len());
        assert_eq!(received.len(), part.len());
        for (nth, (received, sent)) in received.iter().zip(part).enumerate() {
            assert_eq!(received, sent, "frame {nth} of a part");
        }
    }
    assert_eq!(rig.port.pending().frames, 0);
}

/// Offers until the port refuses (or has taken plenty), drains, and goes on: no frame is missing.
fn offered_frames_are_taken_pending_or_refused(rig: &mut Rig<'_>, pool: &mut Pool) {
    let frames = rig.frames(1000);
    let mut received: Vec<Vec<u8>> = Vec::new();
    let mut refused = 0;
    for (nth, bytes) in frames.iter().enumerate() {
        let buf = frame(pool, bytes);
        loop {
            let before = rig.port.pending();
            match rig.port.offer(&egress(&rig.header, Some(&buf))) {
                Taken::All => {
                    let after = rig.port.pending();
                    assert!(after.frames <= before.frames + 1);
                    break;
                }
                Taken::Segments(_) => panic!("it is one frame"),
                Taken::No | Taken::Later => {
                    refused += 1;
                    rig.port.flush().unwrap();
                    received.extend(std::iter::from_fn(|| rig.peer.receive()));
                }
            }
            assert!(refused < 100_000, "it never took the frame");
        }
        pool.give_back(buf);
        if nth % 32 == 0 {
            received.extend(std::iter::from_fn(|| rig.peer.receive()));
        }
    }
    rig.port.flush().unwrap();
    let missing = frames.len() - received.len();
    received.extend(receive_all(&mut *rig.peer, missing));
    assert_eq!(received.len(), frames.len());
    assert!(received == frames, "in order and unchanged");
    assert_eq!(rig.port.pending().frames, 0);
    assert!(!rig.port.wants_write() && rig.port.retry_after().is_none());
}

fn nothing_was_lost(rig: &mut Rig<'_>) {
    assert_eq!(rig.port.lost().total().frames, 0, "{:?}", rig.port.lost());
    for (name, count) in rig.port.outside().into_counters().unwrap() {
        // No handler in the test's namespace takes the frames' EtherType, and the kernel counts
        // frames without a handler here; softnet counts for the whole machine.
        if name != "device.rx_dropped" && name != "softnet.dropped" {
            assert_eq!(count, 0, "{name}");
        }
    }
    // One frame larger than any that can be sent: counted, and it blocks no other.
    let mut pool = Pool::new(sluice_ports::PoolConfig::for_mtu(1, 60_000)).unwrap();
    let buf = frame(&mut pool, &test_frame(0, 60)[..].repeat(600));
    assert_eq!(rig.port.offer(&egress(&rig.header, Some(&buf))), Taken::All);
    rig.port.flush().unwrap();
    pool.give_back(buf);
    if rig.port.kind() != "tap" {
        let expected = vec![(libc::EMSGSIZE, 1)];
        let lost: Vec<_> = rig.port.lost().iter().map(|(e, amount)| (e, amount.frames)).collect();
        assert_eq!((lost, rig.port.pending().frames), (expected, 0));
    }
}

fn a_closed_port_does_nothing(rig: &mut Rig<'_>, pool: &mut Pool) {
    rig.port.close().unwrap();
    let buf = frame(pool, &test_frame(0, 100));
    assert_eq!(rig.port.offer(&egress(&rig.header, Some(&buf))), Taken::No);
    pool.give_back(buf);
    let mut batch = Batch::with_limit(8);
    let read = rig.port.read(OPEN, 8, pool, &mut batch).unwrap();
    assert_eq!((read.frames, read.more), (0, false));
    assert_eq!(rig.port.pending().frames, 0);
    rig.port.close().unwrap();
}

#[test]
fn memory_conforms() {
    let (port, probe) = memory::port(&MemoryConfig { ring_frames: 64, mtu: 1500 }).unwrap();
    check_all(&mut Rig {
        port: Box::new(port),
        peer: Box::new(probe),
        header: Vec::new(),
        strip: 0,
        size_max: 1514,
        burst: 50,
    });
}

#[test]
fn tap_conforms() {
    if !support::can_have_namespaces("tap_conforms") {
        return;
    }
    let cable = Cable::new();
    let netns = Some(support::path(&cable.left));
    let config = TapConfig { netns, ring_frames: 500, ..TapConfig::new("t0", 1500) };
    // Opened from outside the container's namespace, as the daemon does.
    let port = TapPort::open(&config).unwrap();
    inside(&cable.left, || {
        check_all(&mut Rig {
            port: Box::new(port),
            peer: Box::new(RawPeer::new("t0")),
            header: Vec::new(),
            strip: 0,
            size_max: 1514,
            burst: 100,
        });
        let gone = || sluice_ports::device::device("t0").is_err_and(|e| support::is_gone(&e));
        assert!(eventually(gone), "the device that the port made goes away with it");
    });
}

#[test]
fn veth_conforms() {
    if !support::can_have_namespaces("veth_conforms") {
        return;
    }
    let cable = Cable::new();
    let netns = Some(support::path(&cable.left));
    let port = VethPort::open(&VethConfig { netns, ..VethConfig::new("v0", 1500) }).unwrap();
    inside(&cable.left, || {
        check_all(&mut Rig {
            port: Box::new(port),
            peer: Box::new(RawPeer::new("v0")),
            header: Vec::new(),
            strip: 0,
            size_max: 1514,
            burst: 100,
        });
        let gone = || sluice_ports::device::device("v0").is_err_and(|e| support::is_gone(&e));
        assert!(eventually(gone), "the device that the port made goes away with it");
    });
}

#[test]
fn l2_conforms() {
    if !support::can_have_namespaces("l2_conforms") {
        return;
    }
    let cable = Cable::new();
    let peer = inside(&cable.right, || RawPeer::new("r0"));
    inside(&cable.left, move || {
        let config = L2Config { kernel: KernelShare::NoVxlan(LEFT), ..L2Config::new("l0") };
        check_all(&mut Rig {
            port: Box::new(L2Port::open(&config).unwrap()),
            peer: Box::new(peer),
            header: Vec::new(),
            strip: 0,
            size_max: 1514,
            burst: 100,
        });
        assert!(eventually(|| packet_sockets() == 0));
    });
}

/// A neighbour with frames of a VLAN.
struct TaggedPeer(L2Port, Pool);

impl Peer for TaggedPeer {
    fn send(&mut self, frame: &[u8]) {
        let tagged = [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
        assert_eq!(self.0.offer(&egress(&tagged, None)), Taken::All);
        self.0.flush().unwrap();
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut batch = Batch::with_limit(1);
        self.0.read(OPEN, 1, &mut self.1, &mut batch).unwrap();
        let buf = batch.pop()?;
        let mut bytes = buf.bytes().to_vec();
        self.1.give_back(buf);
        assert_eq!(bytes.splice(12..16, []).collect::<Vec<_>>(), [0x81, 0, 0, 10]);
        Some(bytes)
    }
}

#[test]
fn ports_of_a_shared_device_conform() {
    if !support::can_have_namespaces("ports_of_a_shared_device_conform") {
        return;
    }
    for vlan in [Vlan::Access, Vlan::Tagged(10), Vlan::Native(10)] {
        let cable = Cable::new();
        let peer: Box<dyn Peer> = if let Vlan::Tagged(_) = vlan {
            let far = inside(&cable.right, || L2Port::open(&L2Config::new("r0")).unwrap());
            Box::new(TaggedPeer(far, pool(8)))
        } else {
            Box::new(inside(&cable.right, || RawPeer::new("r0")))
        };
        let port = inside(&cable.left, || {
            let config = L2Config { kernel: KernelShare::Nothing, ..L2Config::new("l0") };
            Trunk::open(&config, PriorityMask::ALL).unwrap().port(vlan).unwrap()
        });
        check_all(&mut Rig {
            port: Box::new(port),
            peer,
            header: Vec::new(),
            strip: 0,
            size_max: 1514,
            burst: 100,
        });
    }
}

/// Number of packet sockets in the caller's namespace.
fn packet_sockets() -> usize {
    std::fs::read_to_string("/proc/thread-self/net/packet").unwrap().lines().skip(1).count()
}

/// Outer headers that a switch makes for a frame from `LEFT` to `RIGHT`, VXLAN included.
fn outer() -> Vec<u8> {
    let mut header = vec![0; 14];
    header[12] = 8;
    header.extend([0x45, 0xb8 | 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    header.extend(LEFT.octets());
    header.extend(RIGHT.octets());
    header.extend([0xc0, 0x07, 0x12, 0xb5, 0, 0, 0, 0]);
    header.extend(VXLAN);
    header
}

#[test]
fn udp_conforms() {
    if !support::can_have_namespaces("udp_conforms") {
        return;
    }
    let cable = Cable::new();
    let peer = inside(&cable.right, || VtepPeer::new(RIGHT, LEFT));
    inside(&cable.left, move || {
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        let port = UdpPort::open(&UdpConfig::new(LEFT, mac, 1500)).unwrap();
        check_all(&mut Rig {
            port: Box::new(port),
            peer: Box::new(peer),
            header: outer(),
            strip: 50,
            size_max: 1450 + 14,
            burst: 50,
        });
        let free = || std::net::UdpSocket::bind((LEFT, 4789)).is_ok();
        assert!(eventually(free), "the address is free again");
    });
}
