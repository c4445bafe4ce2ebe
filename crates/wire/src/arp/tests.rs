use proptest::prelude::*;

use super::*;

/// 02:00:00:00:00:01 (10.0.0.1) asks for 10.0.0.2.
const REQUEST: [u8; SIZE] =
    [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

#[test]
fn a_request_is_read() {
    let packet = Packet::new_checked(&REQUEST).unwrap();
    assert!(packet.is_well_formed());
    let expected = Repr {
        operation: Operation::REQUEST,
        sender_mac: Mac([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: Mac([0; 6]),
        target_ip: Ipv4Addr::new(10, 0, 0, 2),
    };
    assert_eq!(Repr::parse(&packet), Some(expected));
}

#[test]
fn any_wrong_fixed_field_makes_it_ill_formed() {
    // Every byte of hardware type, protocol type, sizes and operation.
    for index in 0..8 {
        let mut bytes = REQUEST;
        bytes[index] ^= 0x80;
        let packet = Packet::new_checked(&bytes).unwrap();
        assert!(!packet.is_well_formed(), "byte {index}");
        assert_eq!(Repr::parse(&packet), None, "byte {index}");
    }
}

#[test]
fn arp_only_request_and_reply_are_well_formed() {
    for (operation, well_formed) in [(0, false), (1, true), (2, true), (3, false), (9, false)] {
        let mut bytes = REQUEST;
        bytes[7] = operation;
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(packet.operation(), Operation(u16::from(operation)));
        assert_eq!(packet.is_well_formed(), well_formed, "operation {operation}");
    }
}

#[test]
fn padding_is_ignored_and_a_cut_packet_refused() {
    let mut padded = [0xff; 46];
    padded[..SIZE].copy_from_slice(&REQUEST);
    assert!(Packet::new_checked(&padded).unwrap().is_well_formed());
    for size in 0..SIZE {
        assert_eq!(Packet::new_checked(&REQUEST[..size]).unwrap_err(), Truncated);
    }
}

/// 02:00:00:00:00:01 tells that it has 10.0.0.1.
const ANNOUNCEMENT: [u8; SIZE] =
    [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1];

#[test]
fn arp_probe_without_sender_ip_announcement_targets_itself() {
    let (mac, ip) = (Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
    let mut out = [0xff; SIZE];
    let announcement = Repr::announcement(mac, ip);
    announcement.emit(&mut out);
    assert_eq!(out, ANNOUNCEMENT);
    assert!(announcement.is_gratuitous() && !announcement.is_probe());
    let probe = Repr::probe(mac, ip);
    let mut expected = ANNOUNCEMENT;
    expected[14..18].fill(0);
    probe.emit(&mut out);
    assert_eq!(out, expected);
    assert!(probe.is_probe() && !probe.is_gratuitous());
    let announced = Repr { operation: Operation::REPLY, ..announcement };
    assert!(announced.is_gratuitous() && !announced.is_probe());
    let request = Repr::parse(&Packet::new_checked(&REQUEST).unwrap()).unwrap();
    assert!(!request.is_probe() && !request.is_gratuitous());
    assert!(!Repr::probe(mac, Ipv4Addr::UNSPECIFIED).is_gratuitous());
}

#[test]
fn a_reply_is_the_request_turned_round() {
    let request = Repr::parse(&Packet::new_checked(&REQUEST).unwrap()).unwrap();
    let mut out = [0; SIZE];
    request.reply(Mac([2, 0, 0, 0, 0, 2])).emit(&mut out);
    let expected =
        [0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
    assert_eq!(out, expected);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        reply: bool, sender_mac: [u8; 6], sender_ip: [u8; 4], target_mac: [u8; 6],
        target_ip: [u8; 4],
    ) {
        let repr = Repr {
            operation: if reply { Operation::REPLY } else { Operation::REQUEST },
            sender_mac: Mac(sender_mac),
            sender_ip: sender_ip.into(),
            target_mac: Mac(target_mac),
            target_ip: target_ip.into(),
        };
        let mut out = [0; SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(Repr::parse(&Packet::new_checked(&out).unwrap()), Some(repr));
    }

    #[test]
    fn arp_well_formed_bytes_round_trip(mut bytes: [u8; SIZE]) {
        bytes[..7].copy_from_slice(&REQUEST[..7]);
        bytes[7] = 1 + bytes[7] % 2;
        let repr = Repr::parse(&Packet::new_checked(&bytes).unwrap()).unwrap();
        let mut out = [0; SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(out, bytes);
    }
}
