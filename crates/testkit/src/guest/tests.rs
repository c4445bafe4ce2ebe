//! The driver against an independent device: the ring of the crate `virtio-queue`, over a second
//! mapping of the same memory, as another process would have it.

use std::collections::VecDeque;
use std::fs::File;

use proptest::prelude::*;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::shape::HEADER_BYTES;
use super::*;

/// A device that sends each frame back, in as many buffers as it needs.
struct Echo {
    memory: GuestMemoryMmap,
    transmit: Queue,
    receive: Queue,
    merge: bool,
    waiting: VecDeque<Vec<u8>>,
    calls: u64,
}

impl Echo {
    fn new(guest: &mut Guest, features: u64) -> Self {
        guest.reset(features);
        guest.features = Some(features);
        let region = |region: vhost::VhostUserMemoryRegionInfo| {
            let file = File::from(guest.memory.fd().try_clone_to_owned().unwrap());
            let offset = FileOffset::new(file, region.mmap_offset);
            let size = usize::try_from(region.memory_size).unwrap();
            let address = GuestAddress(region.guest_phys_addr);
            GuestRegionMmap::from_range(address, size, Some(offset)).unwrap()
        };
        let regions = guest.memory.regions().into_iter().map(region).collect();
        let memory = GuestMemoryMmap::from_regions(regions).unwrap();
        let queue = |ring: &Ring| {
            let mut queue = Queue::new(ring.size()).unwrap();
            let parts = ring.parts();
            let address = |offset| GuestAddress(guest.memory.guest_address(offset));
            queue.try_set_desc_table_address(address(parts.descriptors)).unwrap();
            queue.try_set_avail_ring_address(address(parts.avail)).unwrap();
            queue.try_set_used_ring_address(address(parts.used)).unwrap();
            queue.set_event_idx(features & feature::EVENT_IDX != 0);
            queue.set_ready(true);
            assert!(queue.is_valid(&memory), "the ring is none");
            queue
        };
        let (transmit, receive) =
            (queue(guest.pairs[0].sender.ring_ref()), queue(guest.pairs[0].receiver.ring_ref()));
        let merge = features & feature::MRG_RXBUF != 0;
        Self { memory, transmit, receive, merge, waiting: VecDeque::new(), calls: 0 }
    }

    /// Takes up to `take` frames, and gives back as many as there is room for.
    fn step(&mut self, take: usize, guest: &Guest) {
        for _ in 0..take {
            let Some(chain) = self.transmit.pop_descriptor_chain(&self.memory) else { break };
            let head = chain.head_index();
            let mut bytes = Vec::new();
            for piece in chain {
                assert!(!piece.is_write_only(), "a frame to be sent is not to be written");
                let from = bytes.len();
                bytes.resize(from + usize::try_from(piece.len()).unwrap(), 0);
                self.memory.read_slice(&mut bytes[from..], piece.addr()).unwrap();
            }
            assert_eq!(bytes[..HEADER_BYTES], [0; HEADER_BYTES]);
            self.waiting.push_back(bytes.split_off(HEADER_BYTES));
            self.transmit.add_used(&self.memory, head, 0).unwrap();
        }
        while let Some(frame) = self.waiting.pop_front() {
            if !self.give(&frame) {
                self.waiting.push_front(frame);
                break;
            }
        }
        for (queue, ring) in [
            (&mut self.transmit, guest.pairs[0].sender.ring_ref()),
            (&mut self.receive, guest.pairs[0].receiver.ring_ref()),
        ] {
            // The crate knows the flag only through EVENT_IDX; without it, it always calls.
            if queue.needs_notification(&self.memory).unwrap() {
                self.calls += 1;
                ring.call_fd().write(1).unwrap();
            }
        }
    }

    /// Puts a frame into the guest's buffers. Returns false if they are too few.
    fn give(&mut self, frame: &[u8]) -> bool {
        let begin = self.receive.next_avail();
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend(frame);
        let (mut rest, mut heads) = (&bytes[..], Vec::new());
        let mut first = None;
        while !rest.is_empty() {
            let Some(chain) = self.receive.pop_descriptor_chain(&self.memory) else {
                self.receive.set_next_avail(begin);
                return false;
            };
            let (head, mut used) = (chain.head_index(), 0);
            for piece in chain {
                assert!(piece.is_write_only(), "a buffer to be filled is to be written");
                first.get_or_insert(piece.addr());
                let now = rest.len().min(usize::try_from(piece.len()).unwrap());
                self.memory.write_slice(&rest[..now], piece.addr()).unwrap();
                (rest, used) = (&rest[now..], used + u32::try_from(now).unwrap());
            }
            heads.push((head, used));
            assert!(self.merge || rest.is_empty(), "a frame is longer than its buffer");
        }
        let buffers = u16::try_from(heads.len()).unwrap().to_le_bytes();
        let at = first.unwrap().0 + 10;
        self.memory.write_slice(&buffers, GuestAddress(at)).unwrap();
        for (head, used) in heads {
            self.receive.add_used(&self.memory, head, used).unwrap();
        }
        true
    }
}

fn frame(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

fn cut() -> impl Strategy<Value = Cut> + Clone {
    prop_oneof![Just(Cut::Whole), Just(Cut::HeaderApart), Just(Cut::Pieces)]
}

fn config() -> impl Strategy<Value = GuestConfig> {
    let shape = (cut(), any::<bool>()).prop_map(|(cut, indirect)| Shape { cut, indirect });
    let optional = [feature::EVENT_IDX, feature::IN_ORDER, feature::MRG_RXBUF];
    let features = proptest::sample::subsequence(optional.to_vec(), 0..=3);
    (features, 4..8u32, shape.clone(), shape, 1..4usize, any::<bool>()).prop_map(
        |(features, bits, sender_shape, receiver_shape, regions, small)| {
            let features = features.iter().fold(0, |all, one| all | one);
            let merge = features & feature::MRG_RXBUF != 0;
            GuestConfig {
                features: features | feature::VERSION_1 | feature::INDIRECT_DESC,
                ring_size: 1 << bits,
                frame_bytes_max: 1600,
                receive_buffer_bytes: if merge && small { 420 } else { 1600 },
                sender_shape,
                receiver_shape,
                regions,
                ..GuestConfig::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Frames come back in order, with any features and any layout of buffers.
    #[test]
    fn frames_come_back_in_order(
        config in config(),
        sizes in proptest::collection::vec(60..1600usize, 1..300),
        bursts in proptest::collection::vec(1..40usize, 1..20),
    ) {
        let features = config.features;
        let mut guest = Guest::new(config).unwrap();
        let mut echo = Echo::new(&mut guest, features);
        let (mut sent, mut seen, mut idle) = (0, 0, 0);
        let mut bursts = bursts.iter().cycle();
        while seen < sizes.len() {
            for _ in 0..*bursts.next().unwrap() {
                if sent < sizes.len() && guest.send(&frame(sent, sizes[sent])) {
                    sent += 1;
                }
            }
            echo.step(*bursts.next().unwrap(), &guest);
            let max = *bursts.next().unwrap();
            let mut got = Vec::new();
            guest.pair(0).receiver.burst(max, |frame| got.push(frame.to_vec()));
            idle = if got.is_empty() { idle + 1 } else { 0 };
            for bytes in got {
                prop_assert_eq!(bytes, frame(seen, sizes[seen]), "frame {}", seen);
                seen += 1;
            }
            prop_assert!(idle < 100, "{} of {} came", seen, sent);
            prop_assert_eq!(guest.violation(), None);
        }
    }

    /// The fast path sends the same frames, in bursts that are shown together.
    #[test]
    fn staged_frames_come_back(in_order: bool, buffers in 1..64u16, frames in 1..500usize) {
        let order = if in_order { feature::IN_ORDER } else { 0 };
        let features = feature::VERSION_1 | feature::MRG_RXBUF | order;
        let config =
            GuestConfig { ring_size: 64, sender_buffers: Some(buffers), ..GuestConfig::default() };
        let mut guest = Guest::new(config).unwrap();
        let mut echo = Echo::new(&mut guest, features);
        let (mut sent, mut seen) = (0, 0);
        while seen < frames {
            let sender = &mut guest.pair(0).sender;
            for _ in 0..sender.room().min(32).min(frames - sent) {
                prop_assert!(sender.stage(100, |bytes| bytes.write(0, &frame(sent, 100))));
                sent += 1;
            }
            prop_assert!(sender.outstanding() <= usize::from(buffers));
            sender.flush();
            echo.step(64, &guest);
            guest.pair(0).receiver.burst(64, |received| {
                assert_eq!(received.to_vec(), frame(seen, 100));
                assert_eq!(received.head().to_vec(), frame(seen, 100));
                seen += 1;
            });
        }
        prop_assert_eq!(guest.violation(), None);
    }
}

#[test]
fn a_full_ring_refuses_and_frees_itself() {
    let mut guest = Guest::new(GuestConfig { ring_size: 16, ..GuestConfig::default() }).unwrap();
    let mut echo = Echo::new(&mut guest, feature::VERSION_1);
    for number in 0..16 {
        assert!(guest.send(&frame(number, 60)));
    }
    assert!(!guest.send(&frame(16, 60)));
    echo.step(1, &guest);
    assert!(guest.send(&frame(16, 60)));
    assert!(!guest.send(&frame(17, 60)));
}

#[test]
fn kicks_are_made_when_the_device_wants_them() {
    let mut guest = Guest::new(GuestConfig { ring_size: 16, ..GuestConfig::default() }).unwrap();
    let features = feature::VERSION_1 | feature::EVENT_IDX;
    let mut echo = Echo::new(&mut guest, features);
    let kicks = |guest: &mut Guest| {
        let ring = guest.pair(0).sender.ring();
        let before = ring.kicks();
        guest.send(&frame(0, 60));
        guest.pair(0).sender.ring().kicks() - before
    };
    echo.transmit.enable_notification(&echo.memory).unwrap();
    assert_eq!(kicks(&mut guest), 1, "the device sleeps");
    assert_eq!(kicks(&mut guest), 0, "it was kicked already");
    echo.step(2, &guest);
    assert_eq!(kicks(&mut guest), 0, "it polls");
    echo.step(1, &guest);
    echo.transmit.enable_notification(&echo.memory).unwrap();
    assert_eq!(kicks(&mut guest), 1, "it sleeps again");
}

#[test]
fn arming_after_a_frame_came_does_not_sleep() {
    for features in [0, feature::EVENT_IDX] {
        let mut guest =
            Guest::new(GuestConfig { ring_size: 16, ..GuestConfig::default() }).unwrap();
        let mut echo = Echo::new(&mut guest, feature::VERSION_1 | features);
        assert!(guest.pair(0).receiver.ring().arm(), "nothing came");
        guest.pair(0).receiver.ring().quiet();
        guest.send(&frame(0, 60));
        echo.step(1, &guest);
        assert!(!guest.pair(0).receiver.ring().arm(), "a frame came before");
        let long = std::time::Duration::from_secs(3600);
        assert!(guest.pair(0).receiver.wait(long).unwrap());
        assert_eq!(guest.receive(), Some(frame(0, 60)));
    }
}

#[test]
fn what_a_device_must_not_do_is_noticed() {
    let config = GuestConfig { ring_size: 16, ..GuestConfig::default() };
    let used = |guest: &mut Guest, elements: &[(u32, u32)]| {
        let parts = guest.pair(0).receiver.ring_ref().parts();
        let memory = Arc::clone(guest.memory());
        for (index, (head, bytes)) in elements.iter().enumerate() {
            let element = memory.bytes(parts.used + 4 + 8 * index, 8);
            element.write_u64(0, u64::from(*head) | u64::from(*bytes) << 32);
        }
        let count = u16::try_from(elements.len()).unwrap();
        memory.bytes(parts.used + 2, 2).write(0, &count.to_le_bytes());
        let frame = guest.receive();
        (frame.is_some(), guest.violation())
    };
    let cases: [(&[(u32, u32)], Violation); 5] = [
        (&[(99, 72)], Violation::NotOut { head: 99 }),
        (&[(0, 5)], Violation::Length { head: 0, bytes: 5 }),
        (&[(0, 4000)], Violation::Length { head: 0, bytes: 4000 }),
        (&[(1, 72)], Violation::OutOfOrder { head: 1, due: 0 }),
        (&[(0, 72); 17], Violation::UsedAhead { used: 17, out: 16 }),
    ];
    for (elements, violation) in cases {
        let mut guest = Guest::new(config.clone()).unwrap();
        guest.reset(feature::VERSION_1 | feature::IN_ORDER);
        let (came, noticed) = used(&mut guest, elements);
        assert_eq!(noticed, Some(violation));
        assert_eq!(came, matches!(violation, Violation::OutOfOrder { .. }), "{violation:?}");
    }
    let mut guest = Guest::new(config).unwrap();
    guest.reset(feature::VERSION_1 | feature::MRG_RXBUF);
    assert_eq!(used(&mut guest, &[(0, 72)]).1, Some(Violation::Buffers { buffers: 0 }));
}

#[test]
fn memory_keeps_allocations_apart_and_inside_a_region() {
    let memory = Memory::new(3 * 8192, Pages::Small, 3).unwrap();
    let regions = memory.regions();
    assert_eq!(regions.len(), 3);
    assert!(regions[1].guest_phys_addr > regions[0].guest_phys_addr + regions[0].memory_size);
    let first = memory.allocate(5000, 64).unwrap();
    let second = memory.allocate(5000, 64).unwrap();
    assert_eq!((first, second), (0, 8192), "no allocation crosses the end of a region");
    assert_eq!(memory.guest_address(second), regions[1].guest_phys_addr);
    assert!(memory.allocate(9000, 64).is_err(), "it is longer than a region");
    memory.allocate(8192, 4096).unwrap();
    assert!(memory.allocate(1, 1).is_err(), "it is full");
}

#[test]
fn a_guest_that_is_not_connected_says_so() {
    let mut guest = Guest::new(GuestConfig::default()).unwrap();
    assert!(!guest.is_connected());
    assert!(matches!(guest.stop(), Err(GuestError::NotConnected)));
    assert!(matches!(guest.enable(0, true), Err(GuestError::NotConnected)));
    let nowhere = std::env::temp_dir().join("sluice-tk-nowhere");
    assert!(matches!(connect(&nowhere, 1), Err(GuestError::Socket { .. })));
}
