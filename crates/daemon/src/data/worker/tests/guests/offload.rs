//! Guests that leave checksums or segmentation to the switch, or accept such frames.

use sluice_testkit::guest::shape::put_in_memory;
use sluice_testkit::unfinished::{ACK, CWR, Carries, FIN, PSH, Unfinished};

use super::*;

const KINDS: [Carries; 4] = [Carries::Tcp4, Carries::Tcp6, Carries::Udp4, Carries::Udp6];
const EVERYTHING: u64 = feature::ALL | feature::LEAVES | feature::TAKES;

/// Configures a guest that sends super-frames, and has these features.
fn guest(features: u64) -> GuestConfig {
    GuestConfig {
        features,
        required: feature::VERSION_1 | (features & (feature::LEAVES | feature::TAKES)),
        frame_bytes_max: 66_000,
        sender_buffers: Some(16),
        spare_bytes: 1 << 20,
        ..GuestConfig::default()
    }
}

fn vms_of(features: &[u64]) -> Vms {
    let config = containers(features.len(), 64);
    vms(&config, |n| guest(features[n]), Role::Server)
}

/// Makes an unfinished frame from guest 0 to guest 1.
fn unfinished(carries: Carries, data: usize, each: Option<u16>) -> Unfinished {
    Unfinished::new(carries, [mac(1).0, mac(0).0], data, each)
}

fn all_kinds() -> Vec<Unfinished> {
    let mut all = Vec::new();
    for carries in KINDS {
        let longest = if matches!(carries, Carries::Tcp6) { 65_400 } else { 65_200 };
        for (data, each) in [
            (10, None),
            (1_300, None),
            (500, Some(1_000)),
            (20, Some(10)),
            (2_001, Some(1_000)),
            (longest, Some(1_368)),
        ] {
            all.push(unfinished(carries, data, each));
        }
    }
    let mut flags = unfinished(Carries::Tcp4, 5_000, Some(900));
    flags.flags = ACK | PSH | FIN | CWR;
    all.push(flags);
    all
}

impl Vms {
    fn leave(&mut self, frame: &Unfinished) {
        let (header, bytes) = (frame.header(), frame.frame());
        let until = Instant::now() + PATIENCE;
        while !self.guests[0].pair(0).sender.send_with_header(&header, &bytes) {
            assert!(Instant::now() < until, "guest 0 sends a frame");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Returns the next frame, with its header but for the number of buffers.
    fn take(&mut self, at: usize) -> ([u8; 10], Vec<u8>) {
        let until = Instant::now() + PATIENCE;
        let mut taken = None;
        let said = |vms: &Self| format!("{:?}, {} refused", vms.problem(0), vms.refused());
        while taken.is_none() {
            let receiver = &mut self.guests[at].pair(0).receiver;
            receiver.burst(1, |frame| {
                taken = Some((*frame.header().first_chunk().unwrap(), frame.to_vec()));
            });
            assert!(Instant::now() < until, "guest {at} gets a frame: {}", said(self));
        }
        taken.unwrap()
    }

    /// Expects a frame as it was sent.
    fn expect_whole(&mut self, at: usize, frame: &Unfinished) {
        let (header, bytes) = self.take(at);
        let mut sent = *frame.header().first_chunk().unwrap();
        if frame.finished().len() == 1 {
            sent[1..6].fill(0);
        }
        assert_eq!(header, sent, "{frame:?}");
        assert!(bytes == frame.frame(), "{} bytes of {frame:?}", bytes.len());
    }

    /// Expects the frames as they are on a wire: checksummed and segmented.
    fn expect_finished(&mut self, at: usize, frame: &Unfinished) {
        for (nth, expected) in frame.finished().into_iter().enumerate() {
            let (header, bytes) = self.take(at);
            assert_eq!(header, [0; 10], "nothing is left to be done");
            assert!(bytes == expected, "segment {nth} of {:?}", frame.carries);
        }
    }

    fn refused(&self) -> u64 {
        let shot = self.port(0);
        shot.outside.into_counters().unwrap()["guest_offload"]
    }
}

#[test]
fn offload_frames_pass_unmodified_to_capable_guest() {
    let mut vms = vms_of(&[EVERYTHING; 2]);
    for frame in all_kinds() {
        vms.leave(&frame);
        vms.expect_whole(1, &frame);
        assert_eq!(vms.guests[1].violation(), None);
    }
    vms.exchange(0, 1, 300);
    assert_eq!((vms.drops(), vms.refused()), (0, 0));
    vms.end();
}

#[test]
fn missing_guest_offload_checksummed_or_segmented_by_switch() {
    let lacks = [
        feature::TAKES,
        feature::GUEST_TSO4,
        feature::GUEST_TSO6,
        feature::GUEST_ECN,
        feature::GUEST_USO4,
        feature::GUEST_USO6,
    ];
    for lacks in lacks {
        let mut vms = vms_of(&[EVERYTHING, EVERYTHING & !lacks]);
        for frame in all_kinds() {
            let is_cut = frame.finished().len() > 1;
            let needs = match frame.carries {
                Carries::Tcp4 if is_cut && frame.flags & CWR != 0 => {
                    feature::GUEST_ECN | feature::GUEST_TSO4
                }
                Carries::Tcp4 if is_cut => feature::GUEST_TSO4,
                Carries::Tcp6 if is_cut => feature::GUEST_TSO6,
                Carries::Udp4 if is_cut => feature::GUEST_USO4,
                Carries::Udp6 if is_cut => feature::GUEST_USO6,
                _ => feature::GUEST_CSUM,
            };
            vms.leave(&frame);
            if needs & lacks == 0 {
                vms.expect_whole(1, &frame);
            } else {
                vms.expect_finished(1, &frame);
            }
        }
        assert_eq!((vms.drops(), vms.refused()), (0, 0));
        vms.end();
    }
}

#[test]
fn super_frame_larger_than_guest_buffer_is_segmented() {
    let features = EVERYTHING & !feature::MRG_RXBUF;
    let mut vms = vms_of(&[EVERYTHING, features]);
    for frame in all_kinds() {
        vms.leave(&frame);
        let fits = frame.frame().len() <= 2_048;
        if fits { vms.expect_whole(1, &frame) } else { vms.expect_finished(1, &frame) }
    }
    vms.end();
}

/// The receiver has few buffers and takes segments only: it takes some of them, and some later.
#[test]
fn segments_wait_one_by_one_for_a_receiver() {
    let of = |n| GuestConfig {
        ring_size: if n == 1 { 8 } else { 256 },
        ..guest(if n == 1 { EVERYTHING & !feature::TAKES } else { EVERYTHING })
    };
    let mut vms = vms(&containers(3, 64), of, Role::Server);
    let frame = unfinished(Carries::Tcp4, 40_000, Some(1_000));
    for _ in 0..12 {
        vms.leave(&frame);
    }
    // Other ports are not held.
    vms.exchange(2, 0, 100);
    for _ in 0..12 {
        vms.expect_finished(1, &frame);
    }
    assert_eq!(vms.guests[1].receive(), None);
    assert_eq!((vms.drops(), vms.refused()), (0, 0));
    vms.end();
}

/// The sender's memory goes away when a part of its first frame was sent.
#[test]
fn partly_sent_super_frame_rest_sent_from_pool() {
    for takes in [0, feature::TAKES] {
        let of = |n| GuestConfig {
            ring_size: if n == 1 { 32 } else { 256 },
            ..guest(if n == 1 { EVERYTHING & !feature::TAKES | takes } else { EVERYTHING })
        };
        let mut vms = vms(&containers(2, 64), of, Role::Server);
        // At first as many frames as the receiver has buffers for.
        let small = unfinished(Carries::Udp4, 700, None);
        let frame = unfinished(Carries::Tcp4, 16_000, Some(1_300));
        let mut sent = Vec::new();
        for _ in 0..31 {
            sent.push(small.clone());
        }
        sent.extend([frame.clone(), small.clone(), frame.clone()]);
        sent.iter().for_each(|frame| vms.leave(frame));
        let until = Instant::now() + PATIENCE;
        while vms.port(0).state.held.frames < 3 {
            assert!(Instant::now() < until, "the switch holds what has no room");
        }
        vms.guests[0].stop().unwrap();
        for (nth, frame) in sent.iter().enumerate() {
            // Frames in the pool that are no super-frames were finished there.
            let is_left = nth < 31 || frame.each.is_some();
            if takes != 0 && is_left {
                vms.expect_whole(1, frame);
            } else {
                vms.expect_finished(1, frame);
            }
        }
        assert_eq!(vms.drops(), 0);
        vms.end();
    }
}

#[test]
fn broadcast_super_frame_fits_offloads_of_each_receiver() {
    let mut vms = vms_of(&[EVERYTHING, EVERYTHING, EVERYTHING & !feature::TAKES]);
    let all = [[0xff; 6], mac(0).0];
    for each in [None, Some(1_000)] {
        let frame = Unfinished::new(Carries::Udp4, all, 1_380, each);
        for _ in 0..40 {
            vms.leave(&frame);
            match each {
                // The copy in the pool is finished.
                None => vms.expect_finished(1, &frame),
                Some(_) => vms.expect_whole(1, &frame),
            }
            vms.expect_finished(2, &frame);
        }
    }
    assert_eq!(vms.drops(), 0);
    vms.end();
}

/// Sends a frame in pieces of `piece` bytes, through an indirect table.
fn leave_scattered(vms: &mut Vms, frame: &Unfinished, piece: usize) {
    const INDIRECT: u16 = 4;
    const NEXT: u16 = 1;
    let bytes = [&frame.header()[..], &frame.frame()].concat();
    let guest = &mut vms.guests[0];
    let memory = Arc::clone(guest.memory());
    let at = memory.allocate(bytes.len(), 64).unwrap();
    memory.bytes(at, bytes.len()).write(0, &bytes);
    let count = bytes.len().div_ceil(piece);
    let table = memory.allocate(16 * count, 64).unwrap();
    for nth in 0..count {
        let is_last = nth + 1 == count;
        let len = piece.min(bytes.len() - nth * piece);
        let descriptor = Descriptor {
            addr: memory.guest_address(at + nth * piece),
            len: u32::try_from(len).unwrap(),
            flags: if is_last { 0 } else { NEXT },
            next: if is_last { 0 } else { u16::try_from(nth + 1).unwrap() },
        };
        put_in_memory(&memory, table + 16 * nth, descriptor);
    }
    let (addr, len) = (memory.guest_address(table), u32::try_from(16 * count).unwrap());
    offer(guest, Descriptor { addr, len, flags: INDIRECT, next: 0 });
}

#[test]
fn scattered_offload_frames_of_any_chunk_size_complete() {
    for piece in [60_000, 4_096, 3_000, 1_000, 200] {
        let mut vms = vms_of(&[EVERYTHING; 2]);
        let frame = unfinished(Carries::Tcp6, 50_000, Some(1_200));
        eprintln!("pieces of {piece}");
        leave_scattered(&mut vms, &frame, piece);
        vms.expect_whole(1, &frame);
        assert_eq!(vms.refused(), 0);
        vms.end();
    }
    let mut vms = vms_of(&[EVERYTHING; 2]);
    let frame = unfinished(Carries::Udp6, 1_200, None);
    leave_scattered(&mut vms, &frame, 30);
    // Frames copied into the pool are finished.
    vms.expect_finished(1, &frame);
    vms.end();
}

/// Invalid headers of a guest's frames, and their outcomes.
#[test]
fn invalid_virtio_net_header_refuses_only_its_frame() {
    let good = unfinished(Carries::Tcp4, 5_000, Some(1_000));
    let spoiled: [fn(&mut [u8; 12]); 9] = [
        |header| header[0] = 0,
        |header| header[1] = 3,
        |header| header[1] = 4,
        |header| header[1] = 5,
        |header| header[4..6].fill(0),
        |header| header[6] -= 1,
        |header| header[6..8].fill(0xff),
        |header| header[6..10].copy_from_slice(&[0, 0, 6, 0]),
        |header| header[8] = 6,
    ];
    let mut vms = vms_of(&[EVERYTHING; 2]);
    for (nth, spoil) in spoiled.into_iter().enumerate() {
        let mut header = good.header();
        spoil(&mut header);
        assert!(vms.guests[0].pair(0).sender.send_with_header(&header, &good.frame()));
        vms.leave(&good);
        vms.expect_whole(1, &good);
        assert_eq!(vms.refused(), nth as u64 + 1, "refused: {nth}");
    }
    assert_eq!(vms.problem(0), None);
    vms.end();

    // Features that were not negotiated.
    let mut vms = vms_of(&[feature::ALL, EVERYTHING]);
    vms.leave(&good);
    vms.exchange(0, 1, 10);
    assert_eq!(vms.refused(), 1);
    vms.end();
}
