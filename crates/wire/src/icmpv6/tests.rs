use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// 2001:db8::1 (02:00:00:00:00:01) asks for 2001:db8::2, after the figure of RFC 4861 clause 4.3.
#[rustfmt::skip]
const SOLICITATION: [u8; SIZE_MAX] = [
    135, 0, 0x1c, 0x27, 0, 0, 0, 0,
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    1, 1, 2, 0, 0, 0, 0, 1,
];

/// 2001:db8::2 (02:00:00:00:00:02) answers it, after the figure of clause 4.4: S and O are set.
#[rustfmt::skip]
const ADVERTISEMENT: [u8; SIZE_MAX] = [
    136, 0, 0x8a, 0x71, 0x60, 0, 0, 0,
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    2, 1, 2, 0, 0, 0, 0, 2,
];

/// Returns the message in an IPv6 packet with that hop limit.
fn packet(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let mut out = std::vec![0; ipv6::HEADER_SIZE];
    let payload_size = u16::try_from(message.len()).unwrap();
    let (dscp, ecn, flow_label) = (0, 0, 0);
    let next_header = PROTOCOL;
    ipv6::Repr { src, dst, next_header, dscp, ecn, flow_label, hop_limit, payload_size }
        .emit(&mut out);
    out.extend(message);
    out
}

fn receive(packet: &[u8]) -> Option<Repr> {
    Repr::receive(&ipv6::Packet::new_checked(packet).unwrap())
}

/// Returns the message with the checksum that it has to have.
fn summed(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    message[CHECKSUM].fill(0);
    let sum = checksum::over_ipv6(src, dst, PROTOCOL, &message);
    message[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    message
}

#[test]
fn a_solicitation_is_read_and_written() {
    let (src, dst) = (ip("2001:db8::1"), ip("ff02::1:ff00:2"));
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let repr = Repr::Solicitation { target: ip("2001:db8::2"), source_mac: Some(mac) };
    assert_eq!(receive(&packet(src, dst, 255, &SOLICITATION)), Some(repr));
    let mut out = [0xff; SIZE_MAX];
    repr.emit(src, dst, &mut out);
    assert_eq!(out, SOLICITATION);
}

#[test]
fn an_advertisement_is_read_and_written() {
    let (src, dst) = (ip("2001:db8::2"), ip("2001:db8::1"));
    let repr = Repr::Advertisement {
        target: src,
        target_mac: Some(Mac([2, 0, 0, 0, 0, 2])),
        router: false,
        solicited: true,
        overrides: true,
    };
    assert_eq!(receive(&packet(src, dst, 255, &ADVERTISEMENT)), Some(repr));
    let mut out = [0xff; SIZE_MAX];
    repr.emit(src, dst, &mut out);
    assert_eq!(out, ADVERTISEMENT);
}

#[test]
fn neighbor_solicitation_breaking_rfc4861_rule_refused() {
    let (src, dst) = (ip("2001:db8::1"), ip("ff02::1:ff00:2"));
    let refused = |what: &str, hop_limit: u8, message: &[u8]| {
        assert_eq!(receive(&packet(src, dst, hop_limit, message)), None, "{what}");
    };
    let changed = |at: usize, to: u8| {
        let mut message = SOLICITATION;
        message[at] = to;
        summed(src, dst, &message)
    };
    refused("a router was passed", 254, &SOLICITATION);
    let mut wrong = SOLICITATION;
    wrong[2] ^= 1;
    refused("checksum", 255, &wrong);
    refused("code", 255, &changed(1, 1));
    refused("kind", 255, &changed(0, 134));
    refused("the target is a group", 255, &changed(8, 0xff));
    refused("an option of size zero", 255, &changed(25, 0));
    refused("a cut option", 255, &changed(25, 2));
    refused("too short", 255, &summed(src, dst, &SOLICITATION[..23]));
    let mut cut = packet(src, dst, 255, &SOLICITATION);
    cut.pop();
    assert_eq!(receive(&cut), None, "not all there");
    let mut other = packet(src, dst, 255, &SOLICITATION);
    other[6] = 17;
    assert_eq!(receive(&other), None, "another protocol");
}

#[test]
fn unspecified_source_solicitation_needs_group_without_link_option() {
    let (nobody, group) = (Ipv6Addr::UNSPECIFIED, ip("ff02::1:ff00:2"));
    let probe = &SOLICITATION[..HEADER_SIZE];
    let probe_to = |dst, message| receive(&packet(nobody, dst, 255, &summed(nobody, dst, message)));
    let read = Repr::Solicitation { target: ip("2001:db8::2"), source_mac: None };
    assert_eq!(probe_to(group, probe), Some(read));
    assert_eq!(probe_to(ip("2001:db8::2"), probe), None);
    assert_eq!(probe_to(ip("ff02::1:ff00:3"), probe), None);
    assert_eq!(probe_to(group, &SOLICITATION), None);
}

#[test]
fn an_advertisement_to_all_is_no_answer() {
    let src = ip("2001:db8::2");
    let mut message = ADVERTISEMENT;
    let to_all =
        |message: &[u8]| receive(&packet(src, ALL_NODES, 255, &summed(src, ALL_NODES, message)));
    assert_eq!(to_all(&message), None);
    message[4] = 0xa0;
    let Some(Repr::Advertisement { router, solicited, overrides, .. }) = to_all(&message) else {
        panic!("it is believed");
    };
    assert_eq!((router, solicited, overrides), (true, false, true));
}

#[test]
fn nd_options_of_other_kind_or_size_skipped() {
    let mut message = SOLICITATION[..HEADER_SIZE].to_vec();
    // A nonce (RFC 3971 clause 5.3.2), a link-layer address of 14 bytes, then one of 6.
    message.extend([14, 1, 1, 2, 3, 4, 5, 6]);
    message.extend([1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.extend([1, 1, 2, 0, 0, 0, 0, 7]);
    let view = Packet::new_checked(&message).unwrap();
    assert!(view.options_ok());
    let kinds: Vec<u8> = view.options().map(|option| option.kind.0).collect();
    assert_eq!(kinds, [14, 1, 1]);
    assert_eq!(view.link(OptionKind::SOURCE_LINK), Some(Mac([2, 0, 0, 0, 0, 7])));
    assert_eq!(view.link(OptionKind::TARGET_LINK), None);
}

#[test]
fn solicited_node_group_has_last_24_bits() {
    // The example of RFC 4291 clause 2.7.1.
    assert_eq!(solicited_node(ip("4037::1:800:200e:8c6c")), ip("ff02::1:ff0e:8c6c"));
}

#[test]
fn a_cut_header_is_refused() {
    for size in 0..HEADER_SIZE {
        assert_eq!(Packet::new_checked(&SOLICITATION[..size]).unwrap_err(), Truncated);
    }
    assert_eq!(Kind::of(&[]), None);
    assert!(Kind::of(&SOLICITATION).unwrap().is_neighbor());
}

proptest! {
    #[test]
    fn what_is_written_is_believed(
        src: [u8; 16], target: [u8; 16], mac: Option<[u8; 6]>, solicits: bool, flags: [bool; 3],
    ) {
        let unicast = |mut ip: [u8; 16]| {
            ip[0] &= 0x7f;
            ip[15] |= 1;
            Ipv6Addr::from(ip)
        };
        let (src, target, mac) = (unicast(src), unicast(target), mac.map(Mac));
        let [router, solicited, overrides] = flags;
        let repr = if solicits {
            Repr::Solicitation { target, source_mac: mac }
        } else {
            Repr::Advertisement { target, target_mac: mac, router, solicited, overrides }
        };
        let mut out = [0; SIZE_MAX];
        repr.emit(src, target, &mut out);
        prop_assert_eq!(receive(&packet(src, target, 255, &out[..repr.size()])), Some(repr));
    }

    #[test]
    fn any_changed_bit_is_noticed(at in 0..SIZE_MAX, bit in 0..8u8) {
        let mut message = SOLICITATION;
        message[at] ^= 1 << bit;
        let (src, dst) = (ip("2001:db8::1"), ip("ff02::1:ff00:2"));
        prop_assert_eq!(receive(&packet(src, dst, 255, &message)), None);
    }

    #[test]
    fn options_end_whatever_they_say(options: Vec<u8>) {
        let mut message = SOLICITATION[..HEADER_SIZE].to_vec();
        message.extend(&options);
        let view = Packet::new_checked(&message).unwrap();
        let read: usize = view.options().map(|option| option.data.len() + 2).sum();
        prop_assert!(read <= options.len());
        prop_assert_eq!(view.options_ok(), read == options.len());
    }
}
