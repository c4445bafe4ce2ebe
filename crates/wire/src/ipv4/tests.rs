use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// 192.168.0.1 to 192.168.0.199, UDP, 115 bytes, not to be fragmented.
const BYTES: [u8; HEADER_SIZE_MIN] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7,
];
const REPR: Repr = Repr {
    src: Ipv4Addr::new(192, 168, 0, 1),
    dst: Ipv4Addr::new(192, 168, 0, 199),
    protocol: PROTOCOL_UDP,
    dscp: 0,
    ecn: ecn::NOT_ECT,
    ttl: 64,
    ident: 0,
    dont_fragment: true,
    payload_size: 95,
};

fn packet(bytes: &[u8]) -> Packet<'_> {
    Packet::new_checked(bytes).unwrap()
}

#[test]
fn ipv4_header_round_trips_with_checksum() {
    assert_eq!(Repr::parse(&packet(&BYTES)), Some(REPR));
    assert_eq!(packet(&BYTES).version(), 4);
    assert_eq!(packet(&BYTES).header_checksum(), 0xb861);
    assert!(packet(&BYTES).header_checksum_ok());
    let mut out = [0; HEADER_SIZE_MIN];
    REPR.emit(&mut out);
    assert_eq!(out, BYTES);
}

#[test]
fn a_cut_header_is_refused() {
    for size in 0..HEADER_SIZE_MIN {
        assert_eq!(Packet::new_checked(&BYTES[..size]).unwrap_err(), Truncated);
    }
}

#[test]
fn any_flipped_bit_breaks_the_checksum() {
    for bit in 0..HEADER_SIZE_MIN * 8 {
        let mut bytes = BYTES;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!packet(&bytes).header_checksum_ok(), "bit {bit}");
    }
}

#[test]
fn ipv4_invalid_header_size_no_checksum_no_payload() {
    let mut bytes = [0; 60];
    // 4 words: smaller than any header, but with a sum that would fit.
    bytes[..2].copy_from_slice(&[0x44, 0x00]);
    bytes[2..4].copy_from_slice(&60u16.to_be_bytes());
    let sum = checksum::internet(&bytes[..16]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(packet(&bytes).header_size(), 16);
    assert!(!packet(&bytes).header_checksum_ok());
    assert!(packet(&bytes).payload().is_empty());
    assert_eq!(Repr::parse(&packet(&bytes)), None);

    // 6 words, of which 5 are there.
    let mut bytes = BYTES;
    bytes[0] = 0x46;
    assert!(!packet(&bytes).header_checksum_ok());
    assert!(packet(&bytes).payload().is_empty());
}

#[test]
fn ipv4_options_summed_skipped_without_repr() {
    let mut bytes = [0; 28];
    bytes[..20].copy_from_slice(&BYTES);
    bytes[0] = 0x46;
    bytes[3] = 26;
    bytes[20..24].copy_from_slice(&[0x94, 0x04, 0x00, 0x00]);
    bytes[24..].copy_from_slice(&[1, 2, 3, 4]);
    bytes[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::internet(&bytes[..24]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(packet(&bytes).header_checksum_ok());
    // The last two bytes are padding of the frame.
    assert_eq!(packet(&bytes).payload(), [1, 2]);
    assert_eq!(Repr::parse(&packet(&bytes)), None);
}

#[test]
fn ipv4_payload_bounded_by_bytes_and_header() {
    let mut bytes = [0; 24];
    bytes[..20].copy_from_slice(&BYTES);
    assert_eq!(packet(&bytes).payload().len(), 4);
    bytes[2..4].copy_from_slice(&19u16.to_be_bytes());
    assert!(packet(&bytes).payload().is_empty());
    assert_eq!(Repr::parse(&packet(&bytes)), None);
}

#[test]
fn every_kind_of_fragment_is_one() {
    for (field, fragment, dont_fragment) in [
        (0x0000, false, false),
        (0x4000, false, true),
        // The reserved bit.
        (0x8000, false, false),
        // The first fragment, one in the middle, the last one.
        (0x2000, true, false),
        (0x2001, true, false),
        (0x0001, true, false),
        (0x1fff, true, false),
    ] {
        let mut bytes = BYTES;
        bytes[6..8].copy_from_slice(&u16::to_be_bytes(field));
        assert_eq!(packet(&bytes).is_fragment(), fragment, "{field:#06x}");
        assert_eq!(packet(&bytes).dont_fragment(), dont_fragment, "{field:#06x}");
        assert_eq!(Repr::parse(&packet(&bytes)).is_none(), fragment, "{field:#06x}");
    }
}

#[test]
fn another_version_is_seen_and_has_no_repr() {
    let mut bytes = BYTES;
    bytes[0] = 0x65;
    assert_eq!(packet(&bytes).version(), 6);
    assert_eq!(Repr::parse(&packet(&bytes)), None);
}

#[test]
#[should_panic(expected = "smaller than 64 KiB")]
fn a_packet_that_cannot_be_is_not_written() {
    Repr { payload_size: 65516, ..REPR }.emit(&mut [0; HEADER_SIZE_MIN]);
}

#[test]
fn ipv4_wrong_checksum_stays_wrong_after_ecn_set() {
    let mut bytes = BYTES;
    bytes[8] ^= 1;
    set_ecn(&mut bytes, ecn::CE);
    assert_eq!(packet(&bytes).ecn(), ecn::CE);
    assert!(!packet(&bytes).header_checksum_ok());
}

#[test]
#[should_panic(expected = "all there")]
fn ecn_is_not_set_in_half_a_header() {
    set_ecn(&mut [0x45; 19], ecn::CE);
}

prop_compose! {
    fn reprs()(
        src: [u8; 4], dst: [u8; 4], protocol: u8, dscp in 0u8..64, ecn in 0u8..4, ttl: u8,
        ident: u16, dont_fragment: bool, payload_size in 0u16..=65515,
    ) -> Repr {
        let (src, dst) = (src.into(), dst.into());
        Repr { src, dst, protocol, dscp, ecn, ttl, ident, dont_fragment, payload_size }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_whole(repr in reprs()) {
        let mut out = [0; HEADER_SIZE_MIN];
        repr.emit(&mut out);
        prop_assert_eq!(Repr::parse(&packet(&out)), Some(repr));
        prop_assert!(packet(&out).header_checksum_ok());
    }

    #[test]
    fn ipv4_set_ecn_keeps_header_valid(repr in reprs(), to: u8) {
        let mut out = [0; HEADER_SIZE_MIN];
        repr.emit(&mut out);
        set_ecn(&mut out, to);
        prop_assert!(packet(&out).header_checksum_ok());
        prop_assert_eq!(Repr::parse(&packet(&out)), Some(Repr { ecn: to & 3, ..repr }));
    }

    #[test]
    fn no_bytes_make_an_accessor_panic(bytes: Vec<u8>) {
        if let Ok(packet) = Packet::new_checked(&bytes) {
            prop_assert!(packet.payload().len() <= bytes.len() - HEADER_SIZE_MIN);
            let _ = (packet.header_checksum_ok(), Repr::parse(&packet));
        }
    }
}
