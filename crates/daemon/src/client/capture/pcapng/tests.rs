use super::*;
use crate::ipc::capture::Kind;

/// Blocks of a file: kind, and body.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let (kind, size) = (word(bytes), word(&bytes[4..]) as usize);
        assert_eq!((size % 4, word(&bytes[size - 4..]) as usize), (0, size), "both ends");
        blocks.push((kind, bytes[8..size - 4].to_vec()));
        bytes = &bytes[size..];
    }
    blocks
}

/// Options behind so many bytes of a body: number, and value.
fn options(body: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let (mut rest, mut options) = (body, Vec::new());
    while let [a, b, c, d, more @ ..] = rest {
        let (number, size) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]) as usize);
        if number == 0 {
            assert!(more.is_empty(), "the end is the last");
            break;
        }
        options.push((number, more[..size].to_vec()));
        rest = &more[size.next_multiple_of(4)..];
    }
    options
}

#[test]
fn blocks_are_whole_and_padded() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 96);
    let head = Head { way: Way::Out, size: 1_000, ..Head::of(Kind::Frame, 7) };
    writer.begin().unwrap();
    writer.interface("web", "network blue").unwrap();
    let at_ns = 0x0123_4567_89ab_cdef;
    writer.frame(0, &head, at_ns, &[1, 2, 3, 4, 5], "dropped: unknown_vnet").unwrap();
    writer.counts(0, (1, 2), (10, 3)).unwrap();
    let blocks = blocks(&bytes);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [SECTION, INTERFACE, PACKET, STATISTICS]);
    assert_eq!(blocks[0].1[..4], BYTE_ORDER.to_le_bytes());
    assert_eq!(blocks[1].1[..8], [1, 0, 0, 0, 96, 0, 0, 0], "Ethernet, and the snapshot length");
    let interface = options(&blocks[1].1[8..]);
    assert_eq!(interface[0], (option::IF_NAME, b"web".to_vec()));
    assert_eq!(interface[2], (option::IF_TSRESOL, vec![9]));
    let packet = &blocks[2].1;
    assert_eq!(packet[4..12], [0x67, 0x45, 0x23, 0x01, 0xef, 0xcd, 0xab, 0x89], "the high half");
    assert_eq!((packet[12], &packet[16..18]), (5, &1_000_u16.to_le_bytes()[..]));
    assert_eq!(packet[20..28], [1, 2, 3, 4, 5, 0, 0, 0]);
    let of_packet = options(&packet[28..]);
    assert_eq!(of_packet[0], (option::EPB_FLAGS, vec![2, 0, 0, 0]));
    assert_eq!(of_packet[1], (option::COMMENT, b"dropped: unknown_vnet".to_vec()));
    let counts = options(&blocks[3].1[12..]);
    assert_eq!(counts[2], (option::ISB_IFRECV, 10_u64.to_le_bytes().to_vec()));
    assert_eq!(counts[3], (option::ISB_IFDROP, 3_u64.to_le_bytes().to_vec()));
}
