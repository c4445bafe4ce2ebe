use proptest::prelude::*;

use super::*;

#[test]
fn a_header_is_read_and_written() {
    let bytes = [0xc0, 0x01, 0x12, 0xb5, 0x00, 0x0a, 0xbe, 0xef, 1, 2, 3];
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!((packet.src_port(), packet.dst_port()), (49153, 4789));
    assert_eq!((packet.size(), packet.checksum()), (10, 0xbeef));
    // The last byte is padding of the frame.
    assert_eq!(packet.payload(), [1, 2]);
    let mut out = [0xff; HEADER_SIZE];
    Repr { src_port: 49153, dst_port: 4789, payload_size: 2 }.emit(&mut out);
    assert_eq!(out, [0xc0, 0x01, 0x12, 0xb5, 0x00, 0x0a, 0x00, 0x00]);
}

#[test]
fn udp_size_below_header_no_payload_no_repr() {
    for size in 0..8 {
        let bytes = [0, 1, 0, 2, 0, size, 0, 0, 9, 9];
        let packet = Packet::new_checked(&bytes).unwrap();
        assert!(packet.payload().is_empty());
        assert_eq!(Repr::parse(&packet), None);
    }
}

#[test]
fn a_payload_ends_where_the_bytes_end() {
    let bytes = [0, 1, 0, 2, 0xff, 0xff, 0, 0, 9, 9];
    assert_eq!(Packet::new_checked(&bytes).unwrap().payload(), [9, 9]);
}

#[test]
fn a_cut_header_is_refused() {
    for size in 0..HEADER_SIZE {
        assert_eq!(Packet::new_checked(&[0; HEADER_SIZE][..size]).unwrap_err(), Truncated);
    }
}

#[test]
#[should_panic(expected = "smaller than 64 KiB")]
fn a_datagram_that_cannot_be_is_not_written() {
    Repr { src_port: 1, dst_port: 2, payload_size: 65528 }.emit(&mut [0; HEADER_SIZE]);
}

proptest! {
    #[test]
    fn what_is_written_is_read(src_port: u16, dst_port: u16, payload_size in 0u16..=65527) {
        let repr = Repr { src_port, dst_port, payload_size };
        let mut out = [0; HEADER_SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(Repr::parse(&Packet::new_checked(&out).unwrap()), Some(repr));
    }
}
