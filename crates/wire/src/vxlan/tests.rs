use proptest::prelude::*;

use super::*;

#[test]
fn a_header_is_read_and_written() {
    let bytes = [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xaa];
    let header = Header::new_checked(&bytes).unwrap();
    assert!(header.has_vni());
    assert_eq!(header.vni().get(), 0x12_3456);
    assert_eq!(header.payload(), [0xaa]);
    let mut out = [0xff; HEADER_SIZE];
    Repr { vni: header.vni() }.emit(&mut out);
    assert_eq!(out, bytes[..HEADER_SIZE]);
}

#[test]
fn reserved_bits_are_ignored() {
    let bytes = [0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0xff];
    let header = Header::new_checked(&bytes).unwrap();
    assert_eq!(Repr::parse(&header), Some(Repr { vni: Vni::new(1).unwrap() }));
}

#[test]
fn without_the_i_flag_there_is_no_vni() {
    let bytes = [0xf7, 0, 0, 0, 0, 0, 1, 0];
    let header = Header::new_checked(&bytes).unwrap();
    assert!(!header.has_vni());
    assert_eq!(Repr::parse(&header), None);
}

#[test]
fn a_cut_header_is_refused() {
    for size in 0..HEADER_SIZE {
        assert_eq!(Header::new_checked(&[8; HEADER_SIZE][..size]).unwrap_err(), Truncated);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(vni in 0..=Vni::MAX) {
        let repr = Repr { vni: Vni::new(vni).unwrap() };
        let mut out = [0; HEADER_SIZE];
        repr.emit(&mut out);
        prop_assert_eq!(Repr::parse(&Header::new_checked(&out).unwrap()), Some(repr));
    }
}
