use proptest::prelude::*;

use super::*;

/// A message of the kernel: "no error".
fn acknowledgement(sequence: u32) -> Vec<u8> {
    let mut bytes = 36u32.to_ne_bytes().to_vec();
    bytes.extend(2u16.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 24]);
    bytes
}

#[test]
fn all_messages_of_a_datagram_are_found() {
    let bytes = [acknowledgement(1), acknowledgement(2)].concat();
    let numbers: Vec<u32> = Messages(&bytes).map(|m| m.header.sequence_number).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn every_number_of_an_error_is_read() {
    for (code, wanted) in [(-17, libc::EEXIST), (i32::MIN, i32::MAX)] {
        let mut bytes = acknowledgement(3);
        bytes[16..20].copy_from_slice(&code.to_ne_bytes());
        let error = read(&bytes, 3, &mut Vec::new()).unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(wanted), "{code}");
    }
}

proptest! {
    /// Parsing of any bytes ends, and reads nothing past their end.
    #[test]
    fn garbage_is_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 0..40usize,
    ) {
        Messages(&bytes).for_each(drop);
        let mut mixed = acknowledgement(7);
        mixed.extend(&bytes);
        mixed.truncate(mixed.len().saturating_sub(cut));
        prop_assert!(Messages(&mixed).count() <= mixed.len() / 16 + 1);
    }
}
