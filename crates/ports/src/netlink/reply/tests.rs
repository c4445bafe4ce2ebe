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

proptest! {
    /// Whatever comes, reading it ends and reads nothing past its end.
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
