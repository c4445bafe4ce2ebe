use proptest::prelude::*;

use super::*;

const BYTES: [u8; 16] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0xaa, 0xbb,
];
const REPR: Repr =
    Repr { dst: Mac::BROADCAST, src: Mac([0x02, 0, 0, 0, 0, 1]), ethertype: EtherType::ARP };

#[test]
fn a_header_is_read_and_written() {
    let frame = Frame::new_checked(&BYTES).unwrap();
    assert_eq!(Repr::parse(&frame), REPR);
    assert_eq!(frame.payload(), [0xaa, 0xbb]);
    let mut out = [0xee; 16];
    REPR.emit(&mut out);
    assert_eq!(out[..HEADER_SIZE], BYTES[..HEADER_SIZE]);
    assert_eq!(out[HEADER_SIZE..], [0xee, 0xee]);
}

#[test]
fn ethernet_header_alone_accepted_shorter_truncated() {
    assert!(Frame::new_checked(&BYTES[..HEADER_SIZE]).unwrap().payload().is_empty());
    for size in 0..HEADER_SIZE {
        assert_eq!(Frame::new_checked(&BYTES[..size]).unwrap_err(), Truncated);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(dst: [u8; 6], src: [u8; 6], ethertype: u16) {
        let repr = Repr { dst: Mac(dst), src: Mac(src), ethertype: EtherType(ethertype) };
        let mut out = [0; HEADER_SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(Repr::parse(&Frame::new_checked(&out).unwrap()), repr);
    }
}
