use std::vec::Vec;

use proptest::prelude::*;

use super::*;

#[test]
fn the_example_of_rfc_1071_section_3() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(internet(&bytes), !0xddf2);
}

#[test]
fn the_example_of_rfc_1624_section_4() {
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn checksum_odd_last_byte_padded_as_high_half() {
    assert_eq!(internet(&[0x12, 0x34, 0x56]), internet(&[0x12, 0x34, 0x56, 0x00]));
    assert_eq!(internet(&[]), 0xffff);
    assert_eq!(internet(&[0xff, 0xff]), 0x0000);
}

/// Sums by the definition: word by word, the carry at once.
fn slow(bytes: &[u8]) -> u16 {
    let sum = bytes.chunks(2).fold(0u16, |sum, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    });
    !sum
}

#[test]
fn checksum_of_largest_packet_carries_every_word() {
    for size in [127, 128, 129, 1_447, 65_535] {
        let bytes = std::vec![0xff; size];
        assert_eq!(internet(&bytes), slow(&bytes), "{size}");
    }
}

#[test]
fn checksum_over_ipv6_includes_pseudo_header() {
    let (src, dst) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST);
    let message = [0x80, 0, 0, 0, 0x12, 0x34, 0x56];
    let mut whole: Vec<u8> = src.octets().into_iter().chain(dst.octets()).collect();
    // Size and protocol, 32 bits each (RFC 8200 section 8.1).
    whole.extend([0, 0, 0, 7, 0, 0, 0, 58]);
    whole.extend(message);
    assert_eq!(over_ipv6(src, dst, 58, &message), internet(&whole));
}

proptest! {
    #[test]
    fn the_sum_is_the_definitions(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert_eq!(internet(&bytes), slow(&bytes));
    }

    #[test]
    fn checksum_in_two_parts_equals_that_of_whole(
        bytes in proptest::collection::vec(any::<u8>(), 60..600),
        words in 0usize..30,
    ) {
        let parts = bytes.split_at(words * 2);
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let whole = over_ipv4(src, dst, 6, &bytes);
        prop_assert_eq!(parts_over_ipv4(src, dst, 6, parts), whole);
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let whole = over_ipv6(src, dst, 6, &bytes);
        prop_assert_eq!(parts_over_ipv6(src, dst, 6, parts), whole);
    }

    #[test]
    fn checksum_incremental_update_matches_full_sum(
        mut bytes: [u8; 20],
        at in 0usize..10,
        new: u16,
    ) {
        // The checksum field is zero while summing; another word changes.
        let at = at * 2;
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let updated = update(internet(&bytes), old, new);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        let whole: Vec<u8> = bytes.iter().copied().chain(updated.to_be_bytes()).collect();
        prop_assert_eq!(internet(&whole), 0);
    }
}
