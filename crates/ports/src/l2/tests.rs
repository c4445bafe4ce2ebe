use sluice_wire::checksum::internet;

use super::offload::finish_checksum;
use super::*;

#[test]
fn ring_plan_covers_headroom_of_smallest_frames() {
    // 1 Gbit/s for 10 ms, in frames of 84 bytes on the wire.
    let plan = RingPlan::new(1_250_000, 84, 1500, 1 << 30);
    assert!(plan.covered_bytes >= 1_250_000 && plan.frames >= 1_250_000 / 84);
    assert!(plan.covered_bytes < 1_250_000 + 64 * 1024, "and not much more");
    assert!(plan.memory_bytes >= u64::from(plan.frames) * u64::from(plan.slot_size));
    assert_eq!(plan.slot_size % 16, 0);
}

#[test]
fn the_default_ring_holds_the_default_headroom() {
    let config = L2Config::new("any");
    let memory = config.ring_memory_bytes_max;
    let plan = RingPlan::new(config.ring_bytes, config.wire_bytes_min, 1500, memory);
    assert!(plan.covered_bytes >= config.ring_bytes, "{plan:?}");
}

#[test]
fn ring_plan_capped_memory_reports_covered_bytes() {
    let plan = RingPlan::new(1_000_000_000, 84, 1500, 1 << 20);
    assert_eq!(plan.memory_bytes, 1 << 20);
    assert_eq!(plan.covered_bytes, u64::from(plan.frames) * 84);
}

#[test]
fn ring_plan_block_holds_at_least_two_frames() {
    for mtu in [68, 1500, 9000, 65_535] {
        let plan = RingPlan::new(0, 0, mtu, 0);
        assert!(plan.frames >= 2, "{mtu}: {plan:?}");
        assert!(plan.slot_size > u32::from(mtu) + 22);
    }
}

/// An IPv4 packet whose checksum field holds the sum of the pseudo-header, as a sender leaves it.
fn open_packet(protocol: u8, offset: usize, payload: usize, tags: usize) -> (Vec<u8>, usize) {
    let mut frame = vec![2; 12];
    (0..tags).for_each(|_| frame.extend([0x81, 0x00, 0x00, 0x05]));
    frame.extend([0x08, 0x00]);
    let at = frame.len();
    let size = u16::try_from(20 + payload).unwrap();
    frame.extend([0x45, 0]);
    frame.extend(size.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((0..payload).map(|n| u8::try_from(n % 251).unwrap()));
    let sum = !internet(&pseudo(&frame, at, protocol, payload));
    if let Some(field) = frame.get_mut(at + 20 + offset..at + 22 + offset) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    frame.extend([0xee; 7]); // Padding of the link is not part of the packet.
    (frame, at)
}

fn pseudo(frame: &[u8], at: usize, protocol: u8, payload: usize) -> Vec<u8> {
    let size = u16::try_from(payload).unwrap().to_be_bytes();
    [&frame[at + 12..at + 20], &[0, protocol], &size].concat()
}

#[test]
fn an_open_checksum_is_finished() {
    for (protocol, offset) in [(6, 16), (17, 6)] {
        for payload in [20, 21, 700, 1459] {
            for tags in 0..3 {
                let (mut frame, at) = open_packet(protocol, offset, payload, tags);
                assert!(finish_checksum(&mut frame));
                let mut all = pseudo(&frame, at, protocol, payload);
                all.extend(&frame[at + 20..at + 20 + payload]);
                assert_eq!(internet(&all), 0, "{protocol} {payload} {tags}");
            }
        }
    }
}

#[test]
fn what_has_no_such_checksum_is_left_alone() {
    let (whole, _) = open_packet(6, 16, 40, 0);
    for cut in 0..whole.len() - 7 {
        let mut frame = whole[..cut].to_vec();
        assert!(!finish_checksum(&mut frame), "{cut}");
        assert_eq!(frame, whole[..cut]);
    }
    let (mut other, _) = open_packet(132, 8, 40, 0);
    assert!(!finish_checksum(&mut other));
    let (mut fragment, at) = open_packet(17, 6, 40, 0);
    fragment[at + 6] = 0x20;
    assert!(!finish_checksum(&mut fragment));
}
