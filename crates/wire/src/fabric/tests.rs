use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{Mac, PortId, Vni};

use super::*;

fn emitted(message: &Message<'_>) -> Vec<u8> {
    let mut out = vec![0xee; FRAME_SIZE_MAX];
    let size = message.emit(&mut out);
    out.truncate(size);
    out
}

fn claims(records: &[Record], after: u64, up_to: u64) -> Vec<u8> {
    let mut out = vec![0xee; FRAME_SIZE_MAX];
    let mut writer = ClaimsWriter::new(&mut out);
    assert!(records.iter().all(|record| writer.push(record)));
    assert_eq!(usize::from(writer.count()), records.len());
    let size = writer.finish(after, up_to);
    out.truncate(size);
    out
}

fn record(last: u8, ips: &[IpAddr]) -> Record {
    Record::Claimed {
        vni: Vni::new(0x01_0203).unwrap(),
        mac: Mac([2, 0, 0, 0, 0, last]),
        port: PortId(7),
        origin: Origin::Sticky,
        moves: 9,
        ips: IpList::new(ips.iter().map(|ip| (*ip, 3))),
    }
}

fn hello() -> Hello {
    Hello {
        versions: (1, 2),
        fabric: *b"0123456789abcdef",
        host: HostId(0x0102),
        incarnation: 5,
        have: Have { incarnation: 4, sequence: 3 },
    }
}

const fn ask() -> Ask<'static> {
    Ask { id: 0x0102, topic: Topic(3), limit_ms: 0x0400, body: b"who?" }
}

fn parsed(bytes: &[u8]) -> Message<'_> {
    let (message, used) = Message::parse(bytes).unwrap().expect("a whole frame");
    assert_eq!(used, bytes.len());
    message
}

#[test]
fn a_hello_is_written_to_the_last_byte() {
    let mut expected = b"\x00\x30\x01\x00SLUC\x01\x02\x01\x020123456789abcdef".to_vec();
    for number in [5_u64, 4, 3] {
        expected.extend(number.to_be_bytes());
    }
    assert_eq!(emitted(&Message::Hello(hello())), expected);
    assert_eq!(expected.len(), SMALL_SIZE_MAX);
}

#[test]
fn a_claim_with_one_address_takes_25_bytes() {
    let ip = Ipv4Addr::new(10, 0, 0, 1).into();
    let bytes = claims(&[record(5, &[ip])], 1, 2);
    let expected =
        [24, 0b110, 1, 2, 3, 2, 0, 0, 0, 0, 5, 0, 7, 0, 0, 0, 9, 10, 0, 0, 1, 0, 0, 0, 3];
    assert_eq!(bytes[CLAIMS_SIZE_MIN..], expected);
    assert_eq!(bytes[..4], [0, 43, 2, 0]);
}

#[test]
fn ask_and_answer_emit_exact_bytes() {
    let bytes = emitted(&Message::Ask(ask()));
    assert_eq!(bytes.len(), ask().frame_size());
    let expected = b"\x00\x14\x0a\x00\0\0\0\0\0\0\x01\x02\0\x03\0\0\x04\0\0\x04who?";
    assert_eq!(bytes, expected);
    let answer = Answer { id: 0x0102, outcome: Outcome::Refused, body: b"" };
    let bytes = emitted(&Message::Answer(answer));
    assert_eq!(bytes, b"\x00\x0b\x0b\x00\0\0\0\0\0\0\x01\x02\x03\0\0");
    assert_eq!(bytes.len(), answer.frame_size());
    for number in 0..=u8::MAX {
        assert_eq!(Outcome::from_number(number).number(), number);
    }
}

#[test]
fn fragment_and_ack_emit_exact_bytes() {
    let fragment = Fragment { message: 0x0102, total: 0x0a_0000, offset: 0x0900, bytes: b"part" };
    let bytes = emitted(&Message::Fragment(fragment));
    assert_eq!(bytes, b"\x00\x12\x0c\x00\0\0\x01\x02\0\x0a\0\0\0\0\x09\0\0\x04part");
    assert_eq!(bytes.len(), fragment.frame_size());
    let bytes = emitted(&Message::FragmentAck { taken: 0x0304 });
    assert_eq!(bytes, b"\x00\x08\x0d\x00\0\0\0\0\0\0\x03\x04");
    let bytes = vec![7; BODY_SIZE_MAX - (FRAGMENT_SIZE_MIN - HEADER_SIZE)];
    let largest = Fragment { bytes: &bytes, ..fragment };
    assert_eq!(emitted(&Message::Fragment(largest)).len(), FRAGMENT_WINDOW);
}

#[test]
fn message_incomplete_until_last_byte() {
    for bytes in [emitted(&Message::Hello(hello())), claims(&[record(1, &[])], 0, 1)] {
        for size in 0..bytes.len() {
            assert!(matches!(Message::parse(&bytes[..size]), Ok(None)), "{size} bytes");
        }
    }
}

#[test]
fn what_is_no_frame_is_named() {
    let error = |bytes: &[u8]| Message::parse(bytes).map(|_| ()).unwrap_err();
    assert_eq!(error(b"GET / HTTP"), Malformed::TooLong { length: 0x4745 });
    assert_eq!(error(&[0, 0, 0, 0]), Malformed::UnknownType { number: 0 });
    assert_eq!(error(&[0, 9, 14, 0]), Malformed::UnknownType { number: 14 });
    for number in (HELLO..=FRAGMENT_ACK).filter(|number| *number != ALIVE) {
        assert_eq!(error(&[0, 0, number, 0]), Malformed::Truncated { number });
    }
    // More of a question or answer than the frame has.
    let mut ask = emitted(&Message::Ask(ask()));
    ask[ASK_SIZE_MIN - 1] += 1;
    assert_eq!(error(&ask), Malformed::Truncated { number: ASK });
    let fragment = Fragment { message: 1, total: 9, offset: 0, bytes: b"part" };
    let mut fragment = emitted(&Message::Fragment(fragment));
    fragment[FRAGMENT_SIZE_MIN - 1] += 1;
    assert_eq!(error(&fragment), Malformed::Truncated { number: FRAGMENT });
    let mut bytes = emitted(&Message::Hello(hello()));
    bytes[8] = 3;
    assert_eq!(error(&bytes), Malformed::NoVersion { min: 3, max: 2 });
    bytes[4] = b'X';
    assert_eq!(error(&bytes), Malformed::NotFabric);
    for malformed in [error(&bytes), error(b"GET "), error(&[0, 0, 0, 0])] {
        assert!(!malformed.to_string().is_empty());
    }
}

#[test]
fn a_wrong_record_is_named() {
    let error = |at: usize, value: u8| {
        let mut bytes = claims(&[record(1, &[]), record(2, &[])], 0, 2);
        bytes[at] = value;
        let Malformed::Record(error) = Message::parse(&bytes).map(|_| ()).unwrap_err() else {
            panic!("no error of a record");
        };
        assert!(!error.to_string().is_empty());
        error
    };
    assert_eq!(error(CLAIMS_SIZE_MIN - 1, 3), RecordError::Missing, "one more than there are");
    assert_eq!(error(CLAIMS_SIZE_MIN, 9), RecordError::Short { size: 9 });
    assert_eq!(error(CLAIMS_SIZE_MIN, 13), RecordError::Short { size: 13 });
    assert_eq!(error(CLAIMS_SIZE_MIN, 200), RecordError::Missing, "past the end");
    let four_each = 1 | 4 << 2 | 4 << 5;
    assert_eq!(error(CLAIMS_SIZE_MIN + 1, four_each), RecordError::TooManyIps { count: 8 });
    assert_eq!(error(CLAIMS_SIZE_MIN + 1, 1 | 1 << 2), RecordError::Short { size: 16 });
}

#[test]
fn claim_of_older_version_gets_first_sequences() {
    let ip = Ipv4Addr::new(10, 0, 0, 1).into();
    let mut bytes = claims(&[record(5, &[ip])], 1, 2);
    let size = bytes.len();
    (bytes[3 - 2], bytes[CLAIMS_SIZE_MIN]) = (39, 20);
    bytes.truncate(size - 4);
    let Message::Claims(view) = parsed(&bytes) else { panic!("no claims") };
    let Some(Record::Claimed { ips, .. }) = view.records.iter().next() else { panic!("no claim") };
    assert_eq!(ips.iter().collect::<Vec<_>>(), [(ip, SEQUENCE_FIRST)]);
    // A part of a sequence is not a sequence.
    bytes[1] += 3;
    bytes[CLAIMS_SIZE_MIN] += 3;
    bytes.extend([0; 3]);
    let error = Message::parse(&bytes).map(|_| ()).unwrap_err();
    assert_eq!(error, Malformed::Record(RecordError::Short { size: 23 }));
}

#[test]
fn a_frame_takes_as_many_records_as_fit() {
    let mut out = vec![0; 3 * FRAME_SIZE_MAX];
    let mut writer = ClaimsWriter::new(&mut out);
    let one = record(1, &[Ipv4Addr::LOCALHOST.into()]);
    while writer.push(&one) {}
    let count = writer.count();
    assert_eq!(usize::from(count), (FRAME_SIZE_MAX - CLAIMS_SIZE_MIN) / 25);
    let size = writer.finish(0, 1);
    assert!(size <= FRAME_SIZE_MAX);
    let Message::Claims(claims) = parsed(&out[..size]) else { panic!("no claims") };
    assert_eq!(claims.records.iter().count(), usize::from(count));
}

#[test]
fn the_newest_version_of_both_is_spoken() {
    let common = |theirs, ours| Hello { versions: theirs, ..hello() }.common_version(ours);
    assert_eq!(common((1, 2), (1, 1)), Some(1));
    assert_eq!(common((2, 3), (1, 2)), Some(2));
    assert_eq!(common((1, 9), (3, 5)), Some(5));
    assert_eq!(common((2, 3), (1, 1)), None);
    assert_eq!(common((1, 1), (2, 3)), None);
}

fn records() -> impl Strategy<Value = Record> {
    let ip = prop_oneof![
        any::<u32>().prop_map(|ip| IpAddr::from(Ipv4Addr::from(ip))),
        any::<u128>().prop_map(|ip| IpAddr::from(Ipv6Addr::from(ip))),
    ];
    let origin = prop_oneof![Just(Origin::Learned), Just(Origin::Sticky), Just(Origin::Bound)];
    let ips = prop::collection::vec((ip, any::<u32>()), 0..=IPS_MAX);
    (0..=Vni::MAX, any::<[u8; 6]>(), any::<(u16, u32)>(), prop::option::of((origin, ips))).prop_map(
        |(vni, mac, (port, moves), claimed)| {
            let (vni, mac) = (Vni::new(vni).unwrap(), Mac(mac));
            match claimed {
                None => Record::Withdrawn { vni, mac },
                Some((origin, ips)) => {
                    let (port, ips) = (PortId(port), IpList::new(ips.into_iter()));
                    Record::Claimed { vni, mac, port, origin, moves, ips }
                }
            }
        },
    )
}

/// Returns questions and answers of any size that fits.
fn talk() -> impl Strategy<Value = (bool, u64, u32, u8, Vec<u8>)> {
    let body = prop::collection::vec(any::<u8>(), 0..300);
    (any::<bool>(), any::<u64>(), any::<u32>(), any::<u8>(), body)
}

/// Returns every message but claims, questions, answers and fragments.
fn messages() -> impl Strategy<Value = Message<'static>> {
    prop_oneof![
        (any::<[u64; 3]>(), any::<u16>(), 0..9_u8, 1..9_u8).prop_map(|(numbers, host, a, b)| {
            let [incarnation, owner, sequence] = numbers;
            let have = Have { incarnation: owner, sequence };
            let versions = (a.min(b), b.max(a));
            let fabric = u128::from(incarnation).to_be_bytes();
            Message::Hello(Hello { versions, fabric, host: HostId(host), incarnation, have })
        }),
        any::<u32>().prop_map(|round| Message::SnapshotBegin { round }),
        any::<u64>().prop_map(|up_to| Message::SnapshotEnd { up_to }),
        any::<(u32, u64, bool)>().prop_map(|(round, sequence, whole)| Message::Ack {
            round,
            sequence,
            whole
        }),
        any::<[u64; 3]>().prop_map(|[at, count, sum]| Message::Digest { at, count, sum }),
        any::<u32>().prop_map(|round| Message::Resync { round }),
        Just(Message::Alive),
        any::<u8>().prop_map(|reason| Message::Bye { reason: Reason::from_number(reason) }),
        any::<u64>().prop_map(|taken| Message::FragmentAck { taken }),
    ]
}

/// Returns the message of a newer version: `bytes` with `more` at the end of the body.
fn extended(mut bytes: Vec<u8>, more: &[u8]) -> Vec<u8> {
    bytes.extend(more);
    let length = u16::try_from(bytes.len() - HEADER_SIZE).unwrap();
    bytes[..2].copy_from_slice(&length.to_be_bytes());
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in messages(), more: Vec<u8>) {
        let bytes = emitted(&message);
        prop_assert!(bytes.len() <= SMALL_SIZE_MAX);
        prop_assert_eq!(emitted(&parsed(&bytes)), bytes.clone());
        // Fields of a newer version change nothing.
        prop_assert_eq!(emitted(&parsed(&extended(bytes.clone(), &more))), bytes);
    }

    #[test]
    fn questions_and_answers_that_are_written_are_read(
        (asks, id, limit_ms, number, body) in talk(),
        more: Vec<u8>,
    ) {
        let message = if asks {
            Message::Ask(Ask { id, topic: Topic(number.into()), limit_ms, body: &body })
        } else {
            Message::Answer(Answer { id, outcome: Outcome::from_number(number), body: &body })
        };
        let bytes = emitted(&message);
        for bytes in [bytes.clone(), extended(bytes, &more)] {
            match (message, parsed(&bytes)) {
                (Message::Ask(ask), Message::Ask(read)) => prop_assert_eq!(ask, read),
                (Message::Answer(answer), Message::Answer(read)) => prop_assert_eq!(answer, read),
                (_, read) => panic!("{read:?}"),
            }
        }
    }

    #[test]
    fn written_fragments_are_read(
        (message, total, offset) in any::<(u32, u32, u32)>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        more: Vec<u8>,
    ) {
        let fragment = Fragment { message, total, offset, bytes: &bytes };
        let frame = emitted(&Message::Fragment(fragment));
        for frame in [frame.clone(), extended(frame, &more)] {
            let Message::Fragment(read) = parsed(&frame) else { panic!("no fragment") };
            prop_assert_eq!(read, fragment);
        }
    }

    #[test]
    fn claims_that_are_written_are_read(
        all in prop::collection::vec(records(), 0..40),
        after: u64,
        up_to: u64,
        more: Vec<u8>,
    ) {
        let bytes = claims(&all, after, up_to);
        for bytes in [bytes.clone(), extended(bytes.clone(), &more)] {
            let Message::Claims(view) = parsed(&bytes) else { panic!("no claims") };
            prop_assert_eq!((view.after, view.up_to), (after, up_to));
            prop_assert_eq!(view.records.iter().collect::<Vec<_>>(), all.clone());
        }
        prop_assert_eq!(emitted(&parsed(&bytes)), bytes);
    }

    #[test]
    fn record_fields_of_newer_version_skipped(one in records(), more in 0..100_u8) {
        let mut bytes = claims(&[one], 0, 1);
        bytes[CLAIMS_SIZE_MIN] += more;
        let bytes = extended(bytes, &vec![0xee; usize::from(more)]);
        let Message::Claims(view) = parsed(&bytes) else { panic!("no claims") };
        prop_assert_eq!(view.records.iter().collect::<Vec<_>>(), [one]);
    }

    #[test]
    fn no_bytes_make_it_panic(kind in 0..15_u8, body: Vec<u8>, length in 0..200_u16) {
        let mut bytes = [&length.to_be_bytes()[..], &[kind, 0]].concat();
        bytes.extend(body);
        if let Ok(Some((message, used))) = Message::parse(&bytes) {
            prop_assert!(used <= bytes.len());
            prop_assert!(emitted(&message).len() <= used);
        }
    }
}
