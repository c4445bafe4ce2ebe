use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const ORDER: HoldOrder = HoldOrder { incarnation: 5, sequence: 0x0102, part: 1, parts: 2 };

fn held(vni: u32, last: u64, held: u8, stuck: u8) -> Held {
    let (held, stuck) = (PriorityMask(held), PriorityMask(stuck & held));
    Held { vni: Vni::new(vni).unwrap(), mac: Mac::from_u64(0x0200_0000_0000 | last), held, stuck }
}

#[test]
fn part_is_written_to_the_last_byte() {
    let mut writer = HoldWriter::new();
    assert!(writer.push(&held(0x01_0203, 9, 0b1001, 0b1000)));
    assert!(writer.push(&held(0x01_0203, 10, 0b1001, 0b1000)), "in the same group");
    assert!(writer.push(&held(7, 11, 1, 0)));
    let expected = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\x02\x01\x02\x02\
        \x01\x02\x03\x09\x08\x02\x02\0\0\0\0\x09\x02\0\0\0\0\x0a\
        \0\0\x07\x01\0\x01\x02\0\0\0\0\x0b";
    assert_eq!(writer.finish(ORDER), expected);
}

#[test]
fn bytes_behind_the_last_group_are_skipped() {
    let mut writer = HoldWriter::new();
    assert!(writer.push(&held(7, 11, 1, 0)));
    let mut bytes = writer.finish(ORDER).to_vec();
    bytes.extend_from_slice(b"more");
    let part = HoldPart::new_checked(&bytes).unwrap();
    assert_eq!(part.iter().collect::<Vec<_>>(), [held(7, 11, 1, 0)]);
}

#[test]
fn stuck_is_a_part_of_held() {
    let mut bytes = {
        let mut writer = HoldWriter::new();
        assert!(writer.push(&held(7, 11, 1, 1)));
        writer.finish(ORDER).to_vec()
    };
    bytes[HEAD_SIZE + 4] = 0xff;
    let part = HoldPart::new_checked(&bytes).unwrap();
    assert_eq!(part.iter().next(), Some(held(7, 11, 1, 1)));
}

#[test]
fn wrong_part_is_named() {
    let mut bytes = HoldWriter::new().finish(ORDER).to_vec();
    for (part, parts) in [(0, 0), (2, 2), (0, HOLD_PARTS_MAX + 1)] {
        (bytes[16], bytes[17]) = (part, parts);
        let error = HoldPart::new_checked(&bytes).unwrap_err();
        assert_eq!(error, HoldError::Parts { part, parts });
    }
}

proptest! {
    #[test]
    fn hold_part_round_trips_truncated_part_refused(
        all in prop::collection::vec((0..4_u32, any::<u16>(), any::<u8>(), any::<u8>()), 0..400),
    ) {
        let all: Vec<_> = all.iter().map(|&(v, m, h, s)| held(v, m.into(), h, s)).collect();
        let mut writer = HoldWriter::new();
        let taken = all.iter().take_while(|one| writer.push(one)).count();
        prop_assert!(taken == all.len() || taken >= 80, "{} fit", taken);
        let bytes = writer.finish(ORDER);
        prop_assert!(bytes.len() <= ASK_SIZE_MAX);
        let part = HoldPart::new_checked(bytes).unwrap();
        prop_assert_eq!(part.order(), ORDER);
        prop_assert_eq!(&part.iter().collect::<Vec<_>>()[..], &all[..taken]);
        for size in 0..bytes.len() {
            let error = HoldPart::new_checked(&bytes[..size]).unwrap_err();
            prop_assert_eq!(error, HoldError::Truncated);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(part) = HoldPart::new_checked(&bytes) {
            prop_assert!(part.iter().count() <= bytes.len() / 6);
        }
    }
}
