use std::vec::Vec;

use super::*;

const SRC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn flow(last: u8) -> FlowEntry {
    let mut tuple = [0; TUPLE_SIZE];
    tuple[..12].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, last, 0x80, 0, 0x1b, 0x58]);
    FlowEntry::new(false, tuple)
}

fn frame(message: &Message<'_>) -> Vec<u8> {
    let mut out = [0xff; FRAME_SIZE_MAX];
    let size = message.emit(SRC, &mut out);
    out[..size].to_vec()
}

#[test]
fn emitted_message_parses_to_itself() {
    let flows = [flow(1), FlowEntry::new(true, [7; TUPLE_SIZE])];
    let rooms = [RoomEntry::new(flow(1), 9, 10, 11), RoomEntry::new(flow(2), 0, 0, 0)];
    let many = [flow(3); ENTRIES_MAX];
    for message in [
        Message::Hello,
        Message::Bye,
        Message::Idle,
        Message::Question { number: u64::MAX, flows: &flows },
        Message::Question { number: 1, flows: &[] },
        Message::Question { number: 1, flows: &many },
        Message::Answer { number: 7, rooms: &rooms },
    ] {
        let bytes = frame(&message);
        assert!(Message::is_one(&bytes[..26]) && bytes.len() >= FRAME_SIZE_MIN);
        assert_eq!(Message::parse(&bytes), Ok(message));
    }
}

#[test]
fn answer_has_its_bytes_in_place() {
    let rooms = [RoomEntry::new(flow(2), 0x0102, 0x0304, 0x0506)];
    let bytes = frame(&Message::Answer { number: 0x0708, rooms: &rooms });
    assert_eq!(bytes[..14], [1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    assert_eq!(bytes[14..22], *b"SLgr\x01\x03\x00\x01");
    assert_eq!(bytes[22..30], [0, 0, 0, 0, 0, 0, 7, 8]);
    assert_eq!(bytes[30..46], [4, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x80, 0, 0x1b, 0x58]);
    assert_eq!(bytes[70..], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6]);
}

#[test]
fn malformed_frame_is_refused_by_name() {
    let flows = [flow(1), flow(2)];
    let question = frame(&Message::Question { number: 3, flows: &flows });
    let with = |at: usize, byte: u8| {
        let mut bytes = question.clone();
        bytes[at] = byte;
        bytes
    };
    let table = [
        (with(5, 0x0f), Error::Other),
        (with(13, 0xb6), Error::Other),
        (with(14, b'X'), Error::Other),
        (question[..17].to_vec(), Error::Other),
        (question[..29].to_vec(), Error::Truncated),
        (with(18, 2), Error::Version(2)),
        (with(19, 99), Error::Kind(99)),
        (with(19, HELLO), Error::Kind(HELLO)),
        (with(20, 1), Error::TooMany(258)),
        (with(21, 17), Error::TooMany(17)),
        (with(21, 3), Error::Truncated),
        (question[..question.len() - 1].to_vec(), Error::Truncated),
        (with(30, 5), Error::Flow),
        (with(31, 1), Error::Flow),
        (with(60, 1), Error::Flow),
    ];
    for (bytes, error) in table {
        assert_eq!(Message::parse(&bytes), Err(error));
    }
}
