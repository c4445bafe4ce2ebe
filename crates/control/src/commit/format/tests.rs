use alloc::string::ToString as _;

use super::*;

#[test]
fn common_format_is_newest_of_both() {
    let of = |oldest, newest| Formats::new(oldest, newest).unwrap();
    for (one, other, common) in [
        (of(1, 1), of(1, 2), Some(1)),
        (of(1, 2), of(2, 3), Some(2)),
        (of(1, 4), of(2, 3), Some(3)),
        (of(1, 2), of(3, 4), None),
        (Formats::OWN, Formats::OWN, Some(Formats::OWN.newest)),
    ] {
        assert_eq!((one.common(other), other.common(one)), (common, common), "{one}, {other}");
    }
    assert_eq!((Formats::new(0, 1), Formats::new(3, 2)), (None, None));
    assert_eq!(of(1, 1).to_string() + ", " + &of(1, 2).to_string(), "format 1, formats 1 to 2");
}

/// An upgrade goes from one release to the next.
#[test]
fn formats_of_program_begin_at_first() {
    assert!(Formats::OWN.common(Formats::FIRST).is_some());
}
