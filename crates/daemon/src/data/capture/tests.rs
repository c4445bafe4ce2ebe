use rtrb::{Consumer, RingBuffer};

use super::*;
use crate::ipc::capture::{Record, first};

fn filter(snaplen: usize) -> Filter {
    Filter {
        ports: (0..PORTS_MAX).map(|_| AtomicU8::new(0)).collect(),
        counts: (0..PORTS_MAX).map(|_| Counts::default()).collect(),
        vnis: Vec::new(),
        vteps: Vec::new(),
        frames: true,
        drops: true,
        reason: None,
        snaplen,
        drops_missed: AtomicU64::new(0),
    }
}

fn capture(room: usize, filter: Filter) -> (Captures, Consumer<u8>, Arc<Filter>) {
    let (producer, consumer) = RingBuffer::new(room);
    let filter = Arc::new(filter);
    let mut captures = Captures::default();
    captures.begin(Capture::new(1, producer, Arc::clone(&filter)));
    (captures, consumer, filter)
}

fn counts(filter: &Filter, port: usize) -> (u64, u64) {
    let of_port = &filter.counts[port];
    (of_port.seen.load(Ordering::Relaxed), of_port.missed.load(Ordering::Relaxed))
}

/// Outer headers of a frame in a tunnel.
fn outer(from: [u8; 4], to: [u8; 4], vni: u8) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[23] = 17;
    bytes[26..30].copy_from_slice(&from);
    bytes[30..34].copy_from_slice(&to);
    bytes[36..38].copy_from_slice(&4789_u16.to_be_bytes());
    bytes[48] = vni;
    bytes
}

#[test]
fn ring_without_room_counts_and_stays_whole() {
    let filter = filter(16);
    filter.set(PortId(3), Wanted::All);
    let (mut captures, mut ring, filter) = capture(2 * (HEAD_SIZE + 16) + HEAD_SIZE + 5, filter);
    for frame in 0..5_u8 {
        captures.heard(PortId(3), &[frame; 60]);
    }
    assert_eq!(counts(&filter, 3), (5, 3));
    let chunk = ring.read_chunk(ring.slots()).unwrap();
    let bytes = [chunk.as_slices().0, chunk.as_slices().1].concat();
    let Record { head, body, size } = first(&bytes).unwrap().unwrap();
    assert_eq!((head.size, head.port, body, size), (60, 3, &[0; 16][..], HEAD_SIZE + 16));
    let next = first(&bytes[size..]).unwrap().unwrap();
    assert_eq!((next.body[0], bytes.len()), (1, 2 * size), "two whole records, in order");
}

#[test]
fn unwanted_port_is_not_even_counted() {
    let (mut captures, ring, filter) = capture(1_000, filter(16));
    captures.heard(PortId(3), &[0; 60]);
    captures.heard(PortId(u16::MAX), &[0; 60]);
    assert_eq!((counts(&filter, 3), ring.slots()), ((0, 0), 0));
}

#[test]
fn tunnelled_frames_chosen_by_network_and_peer() {
    let (own, peer, other) = ([192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 3]);
    let mut both = filter(64);
    both.vnis = vec![100];
    both.vteps = vec![peer.into()];
    both.set(PortId(0), Wanted::Tunnelled);
    let (mut captures, _ring, filter) = capture(1 << 16, both);
    let frames = [
        (outer(own, peer, 100), 1),
        (outer(peer, own, 100), 2),
        (outer(own, other, 100), 2),
        (outer(own, peer, 101), 2),
        (vec![0; 60], 2),
        (vec![0; 4], 2),
    ];
    for (frame, seen) in frames {
        captures.heard(PortId(0), &frame);
        assert_eq!(counts(&filter, 0).0, seen, "{frame:?}");
    }
}

#[test]
fn ended_capture_gives_its_memory_back() {
    let (mut captures, ring, _) = capture(1_000, filter(16));
    assert!(captures.end(7).is_none() && !ring.is_abandoned());
    let ended = captures.end(1);
    assert!(captures.is_empty() && !ring.is_abandoned(), "the worker frees nothing");
    drop(ended);
    assert!(ring.is_abandoned());
}
