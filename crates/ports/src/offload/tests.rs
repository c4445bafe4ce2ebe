use proptest::prelude::*;
use sluice_testkit::unfinished::{ACK, CWR, Carries, FIN, PSH, Unfinished};

use super::*;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn any_carried() -> impl Strategy<Value = Carries> {
    prop::sample::select(vec![Carries::Tcp4, Carries::Tcp6, Carries::Udp4, Carries::Udp6])
}

prop_compose! {
    fn any_unfinished()(
        carries in any_carried(),
        tags in 0_usize..=1,
        options in 0_usize..=5,
        ident in any::<u16>(),
        seq in any::<u32>(),
        flags in any::<u8>(),
        data in prop_oneof![1_usize..200, 1_usize..9_000, 60_000_usize..65_400],
        each in prop::option::of(prop_oneof![100_u16..2_000, 1_u16..100]),
    ) -> Unfinished {
        let mut frame = Unfinished::new(carries, ADDRESSES, data, each);
        frame.tags = vec![[0x81, 0, 0, 7]; tags];
        frame.options = vec![1; options * 4];
        (frame.ident, frame.seq, frame.flags) = (ident, seq, flags | ACK);
        frame
    }
}

fn kind(carries: Carries) -> Kind {
    match carries {
        Carries::Tcp4 => Kind::Tcp4,
        Carries::Tcp6 => Kind::Tcp6,
        Carries::Udp4 | Carries::Udp6 => Kind::Udp,
    }
}

fn ask(frame: &Unfinished) -> OffloadRequest {
    OffloadRequest {
        start: u16::try_from(frame.start()).unwrap(),
        offset: if matches!(frame.carries, Carries::Tcp4 | Carries::Tcp6) { 16 } else { 6 },
        cut: frame.each.map(|each| (kind(frame.carries), each)),
        ecn: false,
    }
}

fn check(ask: OffloadRequest, frame: &[u8]) -> Result<Offload, InvalidOffload> {
    Offload::check(ask, &frame[..frame.len().min(128)], frame.len())
}

/// The frames that a finisher makes of it.
fn finished(offload: &Offload, frame: &[u8]) -> Vec<Vec<u8>> {
    if !offload.is_super() {
        let mut whole = frame.to_vec();
        offload.finish(&mut whole);
        return vec![whole];
    }
    let headers = &frame[..offload.header_size().into()];
    let segment = |nth| {
        let (at, size) = offload.part(nth);
        let mut segment = [headers, &frame[at..at + size]].concat();
        offload.make(nth, &mut segment);
        segment
    };
    (0..offload.segments()).map(segment).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn segments_are_what_they_would_be_without_offload(frame in any_unfinished()) {
        let (bytes, expected) = (frame.frame(), frame.finished());
        let checked = check(ask(&frame), &bytes);
        if expected.len() > 2048 {
            prop_assert_eq!(checked, Err(InvalidOffload));
            return Ok(());
        }
        let offload = checked.unwrap();
        prop_assert_eq!(usize::from(offload.segments()), expected.len());
        let sum: usize = expected.iter().map(Vec::len).sum();
        prop_assert_eq!(offload.wire_size() as usize, sum, "what is charged");
        let largest = expected.iter().map(Vec::len).max().unwrap();
        prop_assert_eq!(offload.segment_size() as usize, largest);
        let made = finished(&offload, &bytes);
        for (nth, (made, expected)) in made.iter().zip(&expected).enumerate() {
            prop_assert_eq!(made, expected, "segment {} of {}", nth, expected.len());
        }
        prop_assert_eq!(made.len(), expected.len());
    }

    /// For any request of a guest, no field by which the switch decided is changed.
    #[test]
    fn offload_finishing_keeps_fields_used_for_forwarding(
        frame in any_unfinished(),
        start in prop_oneof![0_u16..80, any::<u16>()],
        offset in prop_oneof![0_u16..40, any::<u16>()],
        cut in prop_oneof![Just(None), (any_carried().prop_map(kind), any::<u16>()).prop_map(Some)],
        changed in prop::collection::vec((12_usize..60, any::<u8>()), 0..3),
    ) {
        let mut bytes = frame.frame();
        for (at, byte) in changed {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let Ok(offload) = check(OffloadRequest { start, offset, cut, ecn: false }, &bytes) else {
            return Ok(());
        };
        let decided = usize::from(start);
        for made in finished(&offload, &bytes) {
            prop_assert!(made.len() <= offload.segment_size() as usize);
            if !offload.is_super() {
                prop_assert_eq!(&made[..decided], &bytes[..decided]);
            }
            // Source and destination, however it is cut.
            prop_assert_eq!(&made[..14], &bytes[..14]);
        }
        let ipv4 = bytes[12..14] == [8, 0];
        prop_assert!(!ipv4 || decided >= 14 + usize::from(bytes[14] & 15) * 4);
        let ipv6 = bytes[12..14] == [0x86, 0xdd];
        prop_assert!(!ipv6 || decided >= 14 + 40);
    }
}

/// A frame, and the request for it.
type Case = (&'static str, fn(&mut Vec<u8>, &mut OffloadRequest));

#[test]
fn nonsense_is_refused() {
    let table: [Case; 20] = [
        ("the checksum ends behind the frame", |frame, ask| {
            ask.offset = u16::try_from(frame.len()).unwrap() - ask.start - 1;
        }),
        ("it stands in an address of Ethernet", |_, ask| {
            *ask = OffloadRequest { start: 0, offset: 6, cut: None, ecn: false };
        }),
        ("it stands in an address of IP", |_, ask| {
            *ask = OffloadRequest { start: 14, offset: 12, cut: None, ecn: false };
        }),
        ("it begins in IP's header", |_, ask| (ask.start, ask.cut) = (ask.start - 2, None)),
        ("what is cut begins elsewhere", |_, ask| ask.start += 2),
        ("the header of IP is too short", |frame, _| frame[14] = 0x44),
        ("the header of IP is longer than said", |frame, _| frame[14] = 0x46),
        ("ARP has no checksum", |frame, ask| {
            frame[13] = 6;
            ask.cut = None;
        }),
        ("a pause frame has none", |frame, ask| {
            frame[12..14].copy_from_slice(&[0x88, 8]);
            ask.cut = None;
        }),
        ("no protocol that can be cut", |frame, _| frame[23] = 47),
        ("another protocol", |frame, _| frame[23] = 17),
        ("no packet that can be cut", |frame, _| frame[12] = 0x88),
        ("another version", |_, ask| ask.cut = Some((Kind::Tcp6, 1000))),
        ("a fragment", |frame, _| frame[20] = 0x20),
        ("IP ends before the frame", |frame, _| frame[17] ^= 1),
        ("no bytes each", |_, ask| ask.cut = Some((Kind::Tcp4, 0))),
        ("too many segments", |_, ask| ask.cut = Some((Kind::Tcp4, 1))),
        ("the header of TCP is too short", |frame, _| frame[46] = 0x40),
        ("the checksum is not TCP's", |_, ask| ask.offset = 14),
        ("no data", |frame, _| {
            frame.truncate(66);
            frame[16..18].copy_from_slice(&52_u16.to_be_bytes());
        }),
    ];
    let good = Unfinished::new(Carries::Tcp4, ADDRESSES, 5000, Some(1000));
    assert!(check(ask(&good), &good.frame()).unwrap().is_super());
    for (name, spoil) in table {
        let (mut frame, mut ask) = (good.frame(), ask(&good));
        spoil(&mut frame, &mut ask);
        assert_eq!(check(ask, &frame), Err(InvalidOffload), "{name}");
    }
}

#[test]
fn nonsense_of_ipv6_is_refused() {
    let good = Unfinished::new(Carries::Tcp6, ADDRESSES, 5000, Some(1000));
    let table: [Case; 4] = [
        ("a routing header", |frame, _| frame[20] = 43),
        ("a fragment", |frame, _| frame[20] = 44),
        ("headers up to beyond the head", |frame, _| (frame[20], frame[55]) = (0, 255)),
        ("a checksum in what Neighbor Discovery says", |frame, ask| {
            frame[20] = 58;
            *ask = OffloadRequest { start: 54, offset: 8, cut: None, ecn: false };
        }),
    ];
    for (name, spoil) in table {
        let (mut frame, mut ask) = (good.frame(), ask(&good));
        spoil(&mut frame, &mut ask);
        assert_eq!(check(ask, &frame), Err(InvalidOffload), "{name}");
    }
}

#[test]
fn flags_stand_where_they_count() {
    let mut frame = Unfinished::new(Carries::Tcp4, ADDRESSES, 2500, Some(1000));
    frame.flags = ACK | FIN | PSH | CWR;
    let made = finished(&check(ask(&frame), &frame.frame()).unwrap(), &frame.frame());
    let flags: Vec<u8> = made.iter().map(|segment| segment[47]).collect();
    assert_eq!(flags, [ACK | CWR, ACK, ACK | FIN | PSH]);
}

#[test]
fn offload_payload_within_one_segment_not_super() {
    let frame = Unfinished::new(Carries::Tcp4, ADDRESSES, 1000, Some(1000));
    let offload = check(ask(&frame), &frame.frame()).unwrap();
    assert!(!offload.is_super());
    assert_eq!((offload.segments(), offload.ask().cut), (1, None));
    assert_eq!(finished(&offload, &frame.frame()), frame.finished());
}
