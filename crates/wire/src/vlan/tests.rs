use proptest::prelude::*;

use super::*;

#[test]
fn every_field_has_its_bits() {
    // Priority 5, drop eligible, VLAN 0xabc.
    let bytes = [0xba, 0xbc, 0x86, 0xdd, 0x01];
    let tag = Tag::new_checked(&bytes).unwrap();
    assert_eq!(tag.priority().get(), 5);
    assert!(tag.drop_eligible());
    assert_eq!(tag.vid(), 0xabc);
    assert_eq!(tag.ethertype(), EtherType::IPV6);
    assert_eq!(tag.payload(), [0x01]);
}

#[test]
fn a_priority_tag_has_no_vlan() {
    let tag = Repr {
        priority: Priority::from_low_bits(7),
        drop_eligible: false,
        vid: VID_NONE,
        ethertype: EtherType::IPV4,
    };
    let mut out = [0xff; TAG_SIZE];
    tag.emit(&mut out);
    assert_eq!(out, [0xe0, 0x00, 0x08, 0x00]);
}

#[test]
fn vlan_vid_bits_never_change_priority() {
    let tag = Repr {
        priority: Priority::ZERO,
        drop_eligible: false,
        vid: 0xffff,
        ethertype: EtherType::IPV4,
    };
    let mut out = [0; TAG_SIZE];
    tag.emit(&mut out);
    assert_eq!(out, [0x0f, 0xff, 0x08, 0x00]);
    assert_eq!(VID_MAX, 0xfff - 1);
}

#[test]
fn a_tag_that_is_cut_off_is_refused() {
    for size in 0..TAG_SIZE {
        assert_eq!(Tag::new_checked(&[0; TAG_SIZE][..size]).unwrap_err(), Truncated);
    }
}

proptest! {
    #[test]
    fn vlan_tag_round_trips_every_bit(bytes: [u8; TAG_SIZE]) {
        let repr = Repr::parse(&Tag::new_checked(&bytes).unwrap());
        let mut out = [0; TAG_SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(out, bytes);
    }
}
