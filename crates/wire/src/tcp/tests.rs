use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A SYN from port 40000 to 80 with one option (MSS 1460).
const SYN: [u8; 24] = [
    0x9c, 0x40, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x60, 0x02, 0xfa, 0xf0,
    0xab, 0xcd, 0x00, 0x07, 0x02, 0x04, 0x05, 0xb4,
];

#[test]
fn a_header_is_read() {
    let packet = Packet::new_checked(&SYN).unwrap();
    assert_eq!((packet.src_port(), packet.dst_port()), (40000, 80));
    assert_eq!((packet.seq(), packet.ack()), (0x0102_0304, 0x0506_0708));
    assert_eq!(packet.header_size(), 24);
    assert_eq!(packet.flags(), flags::SYN);
    assert_eq!((packet.window(), packet.checksum(), packet.urgent()), (64240, 0xabcd, 7));
    assert!(packet.payload().is_empty());
}

#[test]
fn a_payload_begins_behind_the_options() {
    let mut bytes = [0; 26];
    bytes[..24].copy_from_slice(&SYN);
    bytes[24..].copy_from_slice(&[1, 2]);
    assert_eq!(Packet::new_checked(&bytes).unwrap().payload(), [1, 2]);
    // An offset into the header, and one beyond the bytes.
    for offset in [0x00, 0x40, 0x70] {
        bytes[12] = offset;
        assert!(Packet::new_checked(&bytes).unwrap().payload().is_empty());
    }
}

#[test]
fn the_flags_fill_their_byte() {
    use flags::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
    let all = [FIN, SYN, RST, PSH, ACK, URG, ECE, CWR];
    for (bit, flag) in all.into_iter().enumerate() {
        assert_eq!(flag, 1 << bit);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_an_accessor_panic(bytes: Vec<u8>) {
        match Packet::new_checked(&bytes) {
            Ok(packet) => prop_assert!(packet.payload().len() <= bytes.len() - HEADER_SIZE_MIN),
            Err(Truncated) => prop_assert!(bytes.len() < HEADER_SIZE_MIN),
        }
    }
}
