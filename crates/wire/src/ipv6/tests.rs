use std::vec::Vec;

use proptest::prelude::*;

use super::*;

#[test]
fn every_field_has_its_bits() {
    let mut bytes = [0u8; 44];
    // DSCP 46 (0b101110), ECN 1, flow label 0xabcde.
    bytes[..8].copy_from_slice(&[0x6b, 0x9a, 0xbc, 0xde, 0x00, 0x02, 17, 64]);
    bytes[8..24].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    bytes[24..40].copy_from_slice(&"2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
    bytes[40..].copy_from_slice(&[1, 2, 3, 4]);
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(packet.version(), 6);
    let repr = Repr {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        next_header: 17,
        dscp: 46,
        ecn: ecn::ECT_1,
        flow_label: 0xabcde,
        hop_limit: 64,
        payload_size: 2,
    };
    assert_eq!(Repr::parse(&packet), Some(repr));
    assert_eq!(packet.payload(), [1, 2]);
    let mut out = [0; HEADER_SIZE];
    repr.emit(&mut out);
    assert_eq!(out, bytes[..HEADER_SIZE]);
}

#[test]
fn another_version_is_seen_and_has_no_repr() {
    let mut bytes = [0; HEADER_SIZE];
    bytes[0] = 0x45;
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(packet.version(), 4);
    assert_eq!(Repr::parse(&packet), None);
}

#[test]
fn a_cut_header_is_refused() {
    for size in 0..HEADER_SIZE {
        assert_eq!(Packet::new_checked(&[0; HEADER_SIZE][..size]).unwrap_err(), Truncated);
    }
}

#[test]
#[should_panic(expected = "all there")]
fn ecn_is_not_set_in_half_a_header() {
    set_ecn(&mut [0x60; 39], ecn::CE);
}

#[test]
fn ipv6_group_mac_has_last_32_bits() {
    let group = group_mac("ff02::1:ff12:3456".parse().unwrap());
    assert_eq!(group, Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
    assert!(group.is_group());
}

proptest! {
    #[test]
    fn ipv6_header_round_trips_every_bit(
        rest in prop::array::uniform32(any::<u8>()), mut first: [u8; 8],
    ) {
        first[0] = 0x60 | first[0] & 0x0f;
        let bytes: Vec<u8> = first.into_iter().chain(rest).collect();
        let repr = Repr::parse(&Packet::new_checked(&bytes).unwrap()).unwrap();
        let mut out = [0; HEADER_SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(&out[..], &bytes[..]);
    }

    #[test]
    fn setting_ecn_changes_nothing_else(first: [u8; 8], to: u8) {
        let mut bytes = [0xa5; HEADER_SIZE];
        bytes[..8].copy_from_slice(&first);
        let mut expected = bytes;
        expected[1] = bytes[1] & 0xcf | (to & 3) << 4;
        set_ecn(&mut bytes, to);
        prop_assert_eq!(bytes, expected);
    }

    #[test]
    fn a_payload_is_never_more_than_there_is(bytes in prop::collection::vec(any::<u8>(), 40..90)) {
        let packet = Packet::new_checked(&bytes).unwrap();
        let expected = usize::from(packet.payload_size()).min(bytes.len() - HEADER_SIZE);
        prop_assert_eq!(packet.payload().len(), expected);
    }
}

#[test]
fn link_local_allowed_unless_eui64_of_other_mac() {
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    assert_eq!(link_local(mac), "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap());
    for (ip, may) in [
        ("fe80::ff:fe00:1", true),
        ("fe80::ff:fe00:2", false),
        ("fe80::1", true),
        ("fe80::b7c3:77a:44fc:9d1e", true),
        ("fe80:1::1", false),
        ("fec0::1", false),
        ("2001:db8::1", false),
    ] {
        assert_eq!(may_have_link_local(mac, ip.parse().unwrap()), may, "{ip}");
    }
}
