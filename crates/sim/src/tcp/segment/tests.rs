use super::*;

#[test]
fn a_fourth_block_is_left_out() {
    let mut sack = SackBlocks::NONE;
    for i in 0..4 {
        sack.push(2 * i + 1, 2 * i + 2);
    }
    assert_eq!(sack.as_slice(), [(1, 2), (3, 4), (5, 6)]);
}

#[test]
fn header_sizes() {
    let mut segment = Segment { flags: Flags::ACK, ..Segment::default() };
    assert_eq!(segment.header_bytes(), 20);
    segment.sack.push(1, 2);
    assert_eq!(segment.header_bytes(), 32);
    segment.sack.push(3, 4);
    segment.sack.push(5, 6);
    segment.flags = segment.flags.with(Flags::STAMPED);
    assert_eq!(segment.header_bytes(), 60, "all that a header can hold");
}

#[test]
fn stamps_wrap() {
    let before = Nanos(((1_u64 << 32) - 1) << 6);
    let after = Nanos(before.0 + 640);
    assert_eq!(since_stamp(after, stamp_of(before)), Nanos(640));
}
