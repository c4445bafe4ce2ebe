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

/// The options of `pfifo` are a limit, and no attributes.
#[test]
fn drops_of_a_pfifo_are_read() {
    let attribute = |kind: u16, value: &[u8]| {
        let size = u16::try_from(4 + value.len()).unwrap().to_ne_bytes();
        [&size[..], &kind.to_ne_bytes(), value].concat()
    };
    let mut root = [0; 20];
    root[4..8].copy_from_slice(&3u32.to_ne_bytes());
    root[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
    let queue: Vec<u8> = [0u32, 0, 144, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let statistics = attribute(7, &attribute(3, &queue));
    let body =
        [&root[..], &attribute(1, b"pfifo\0\0\0"), &attribute(2, &[10, 0, 0, 0]), &statistics]
            .concat();
    let mut message = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
    message.extend(36u16.to_ne_bytes());
    message.extend([0; 10]);
    message.extend(body);
    assert_eq!(root_drops(&changes(&message), 3), 144);
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
