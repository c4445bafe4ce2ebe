use proptest::prelude::*;

use super::frame::{self, End, MARK_BYTES, VXLAN_BYTES};
use super::order::{GAPS_MAX, Order};
use super::*;
use crate::guest::{Memory, Pages};

const A: End = End { mac: [2, 0, 0, 0, 0, 1], ip: [198, 51, 100, 1] };
const B: End = End { mac: [2, 0, 0, 0, 0, 2], ip: [198, 51, 100, 2] };

fn order(sequence: &[u32]) -> (u64, u64, u64) {
    let mut order = Order::default();
    sequence.iter().for_each(|&number| order.see(number));
    (order.frames, order.duplicated, order.reordered)
}

#[test]
fn order_tells_what_became_of_frames() {
    assert_eq!(order(&[0, 1, 2, 3]), (4, 0, 0));
    assert_eq!(order(&[0, 3, 4]), (3, 0, 0), "1 and 2 are missing");
    assert_eq!(order(&[0, 2, 1, 3]), (4, 0, 1));
    assert_eq!(order(&[0, 1, 1, 2]), (4, 1, 0));
    assert_eq!(order(&[0, 4, 2, 2, 1, 3, 5]), (7, 1, 3));
}

#[test]
fn a_gap_that_is_forgotten_counts_as_duplicated() {
    let gaps = u32::try_from(GAPS_MAX).unwrap();
    let mut order = Order::default();
    for number in 0..=gaps {
        order.see(2 * number + 1);
    }
    order.see(2);
    assert_eq!((order.duplicated, order.reordered), (0, 1));
    order.see(0);
    assert_eq!((order.duplicated, order.reordered), (1, 1));
}

proptest! {
    #[test]
    fn every_frame_is_counted_once(
        numbers in Just((0..200u32).collect::<Vec<_>>()).prop_shuffle(),
        keep in 1..200usize,
        twice in 0..20usize,
    ) {
        let mut order = Order::default();
        let kept = &numbers[..keep];
        kept.iter().for_each(|&number| order.see(number));
        prop_assert_eq!(order.duplicated, 0);
        kept.iter().take(twice).for_each(|&number| order.see(number));
        let twice = twice.min(keep) as u64;
        prop_assert_eq!((order.frames, order.duplicated), (keep as u64 + twice, twice));
    }

    #[test]
    fn a_mark_survives(run: u16, stream: u16, flow: u16, sequence: u32, time: u64) {
        let memory = Memory::new(4096, Pages::Small, 1).unwrap();
        let bytes = memory.bytes(0, 64);
        let mark = Mark { run, stream, flow, sequence, time };
        mark.write(bytes, MARK_AT);
        prop_assert_eq!(Mark::read(bytes, MARK_AT), Some(mark));
        prop_assert_eq!(Mark::read(bytes, 64 - MARK_BYTES + 1), None, "too short");
        prop_assert_eq!(Mark::read(bytes, 0), None, "not ours");
    }

    #[test]
    fn a_pace_lets_through_what_it_says(rate in 1_000..20_000_000u64, steps in 1..2_000u64) {
        struct Nanos;
        impl Clock for Nanos {
            fn now(&self) -> u64 {
                0
            }
            fn per_second(&self) -> u64 {
                1_000_000_000
            }
        }
        let mut pace = Pace::new(Some(rate), &Nanos, 0);
        let (mut sent, step) = (0u64, 1_000);
        for now in 1..=steps {
            let frames = pace.allowed(now * step).min(32);
            pace.spend(frames);
            sent += frames as u64;
        }
        let due = rate * steps * step / 1_000_000_000;
        prop_assert!(sent <= due, "{} of {}", sent, due);
        prop_assert!(sent + 1 >= due, "{} of {}", sent, due);
    }
}

#[test]
fn load_pace_after_delay_catches_up_bounded() {
    let clock = Tsc::measured();
    let mut pace = Pace::new(Some(1_000_000), &clock, 0);
    let after_a_second = clock.per_second();
    assert_eq!(pace.allowed(after_a_second), usize::try_from(DEBT_MAX).unwrap());
}

#[test]
fn frames_are_what_they_say() {
    let plain = frame::plain(A, B, 64);
    assert_eq!(plain.len(), 64);
    assert_eq!(plain[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    assert_eq!(plain[16..18], 50u16.to_be_bytes(), "the IPv4 length");
    // RFC 1071: the sum over a header with its checksum is all ones.
    let sum: u32 =
        plain[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    let vxlan = frame::vxlan(A, B, 100, &plain);
    assert_eq!(vxlan.len(), VXLAN_BYTES + 64);
    assert_eq!(vxlan[36..38], 4789u16.to_be_bytes());
    assert_eq!(vxlan[42..50], [8, 0, 0, 0, 0, 0, 100, 0]);
    assert_eq!(vxlan[50..], plain);
}
