use std::string::String;
use std::vec::Vec;

use super::*;
use crate::frame::tests::{
    Claims, TAG, advertisement, arp_frame, arp_request, data, found, mac, nd_frame, nd_probe,
    solicitation, v4, v6, vni,
};
use crate::vport::Origin;

const MS: u64 = 1_000_000;
/// The asker's port.
const PORT: PortId = PortId(1);

fn config() -> Config {
    Config {
        ports: 4,
        asks: Rate { per_second: 100, burst: 10 },
        gap: Nanos(100 * MS),
        targets: 64,
    }
}

/// Place of the address that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Live,
    Stale,
    OwnPort,
    SamePort,
    Nowhere,
    Asker,
}

const KNOWN: [Known; 6] =
    [Known::Live, Known::Stale, Known::OwnPort, Known::SamePort, Known::Nowhere, Known::Asker];

/// Claims for a question of endpoint 1 for endpoint 2.
fn claims(known: Known) -> Claims {
    let learned = Origin::Learned;
    let asker = found(1, State::Own, 1, learned);
    let target = match known {
        Known::Live => found(2, State::Authoritative, 1, learned),
        Known::Stale => found(2, State::Stale, 1, learned),
        Known::OwnPort => found(2, State::Own, 2, learned),
        Known::SamePort => found(2, State::Own, 1, learned),
        Known::Nowhere | Known::Asker => return Claims(vec![asker]),
    };
    Claims(vec![asker, target])
}

/// Returns the action in one word, without the bytes.
fn word(action: &Action) -> String {
    match action {
        Action::Answer(_) => "answer".into(),
        Action::Flood(why) => std::format!("flood {why:?}"),
        Action::Forward(found) => std::format!("forward {}", found.claim.port),
    }
}

fn resolve(known: Known, bytes: &[u8]) -> String {
    let mut resolver = Resolver::new(&config(), 1);
    let frame = Frame::parse(bytes).unwrap();
    let action = resolver.resolve(PORT, vni(7), &frame, &claims(known));
    let word = word(&action);
    let counted = match action {
        Action::Answer(_) => resolver.answered(PORT),
        Action::Flood(_) => resolver.flooded(PORT),
        Action::Forward(_) => resolver.forwarded(PORT),
    };
    assert_eq!(counted, 1, "{word} is counted");
    word
}

/// A solicited advertisement of endpoint 1 to endpoint 2.
fn solicited() -> Vec<u8> {
    let message = icmpv6::Repr::Advertisement {
        target: v6(1),
        target_mac: Some(mac(1)),
        router: false,
        solicited: true,
        overrides: true,
    };
    nd_frame(mac(1), &[], v6(1), v6(2), message)
}

fn with_tag(bytes: &[u8]) -> Vec<u8> {
    [&bytes[..12], &TAG, &bytes[12..]].concat()
}

#[test]
fn every_question_in_every_state() {
    let own = |known| if known == Known::Asker { 1 } else { 2 };
    // The rows of the table in the module's comment, in the order of KNOWN.
    let question = [
        "answer",
        "flood Stale",
        "answer",
        "flood Other(SamePort)",
        "flood Unknown",
        "flood Other(Itself)",
    ];
    let probe = [
        "forward 1",
        "flood Stale",
        "forward 2",
        "flood Other(SamePort)",
        "flood Unknown",
        "flood Probe",
    ];
    for (at, known) in KNOWN.into_iter().enumerate() {
        let target = own(known);
        let arp = if known == Known::Asker {
            // With another address of its own; without one the frame is an announcement.
            let ask = arp::Repr { sender_ip: v4(3), ..arp::Repr::probe(mac(1), v4(1)) };
            arp_frame(mac(1), &[], ask)
        } else {
            arp_request(1, target)
        };
        let arp_probe = arp_frame(mac(1), &[], arp::Repr::probe(mac(1), v4(target)));
        let announced = arp::Repr::announcement(mac(1), v4(target));
        let as_reply = arp::Repr { operation: arp::Operation::REPLY, ..announced };
        let reply = arp::Repr::probe(mac(2), v4(1)).reply(mac(1));
        let rows = [
            ("question, ARP", arp, question[at]),
            ("question, ND", solicitation(1, target), question[at]),
            ("probe, ARP", arp_probe, probe[at]),
            ("probe, ND", nd_probe(1, target), probe[at]),
            ("announcement, ARP", arp_frame(mac(1), &[], announced), "flood Announcement"),
            ("the same as a reply", arp_frame(mac(1), &[], as_reply), "flood Announcement"),
            ("announcement, ND", advertisement(1, false), "flood Announcement"),
            ("reply to a probe, ARP", arp_frame(mac(1), &[], reply), "flood Other(NotAsked)"),
            ("reply, ND", solicited(), "flood Other(NotAsked)"),
            ("data", data(1), "flood Other(NotAsked)"),
        ];
        for (what, bytes, expected) in rows {
            assert_eq!(resolve(known, &bytes), expected, "{what}, {known:?}");
            assert_eq!(resolve(known, &with_tag(&bytes)), expected, "{what}, {known:?}, tagged");
        }
    }
}

#[test]
fn unconfirmed_address_request_forwarded_not_answered() {
    let mut resolver = Resolver::new(&config(), 1);
    // The address that is never confirmed, and both addresses of an endpoint that is bound.
    let bytes = arp_request(1, u8::MAX);
    let frame = Frame::parse(&bytes).unwrap();
    for (state, origin, expected) in [
        (State::Authoritative, Origin::Learned, "forward 3"),
        (State::Own, Origin::Sticky, "forward 3"),
        (State::Authoritative, Origin::Bound, "answer"),
        (State::Stale, Origin::Bound, "flood Stale"),
    ] {
        let claims = Claims(vec![found(u8::MAX, state, 3, origin)]);
        let action = resolver.resolve(PORT, vni(7), &frame, &claims);
        assert_eq!(word(&action), expected, "{state:?}, {origin:?}");
    }
}

#[test]
fn unicast_or_targetless_request_flooded_not_answered() {
    for mut bytes in [arp_request(1, 2), solicitation(1, 2)] {
        bytes[..6].copy_from_slice(&mac(2).0);
        assert_eq!(resolve(Known::Live, &bytes), "flood Other(Unicast)");
    }
    for target in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        let ask = arp::Repr { sender_ip: v4(1), ..arp::Repr::probe(mac(1), target.into()) };
        assert_eq!(resolve(Known::Live, &arp_frame(mac(1), &[], ask)), "flood Other(NoTarget)");
    }
    for target in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST] {
        let message = icmpv6::Repr::Solicitation { target, source_mac: None };
        let bytes = nd_frame(mac(1), &[], v6(1), icmpv6::solicited_node(target), message);
        assert_eq!(resolve(Known::Live, &bytes), "flood Other(NoTarget)");
    }
}

/// The answer to a question of endpoint 1 for endpoint 2, which is live and bound.
fn answer_to(bytes: &[u8]) -> Vec<u8> {
    let mut resolver = Resolver::new(&config(), 1);
    let claims = Claims(vec![found(2, State::Authoritative, 1, Origin::Bound)]);
    let frame = Frame::parse(bytes).unwrap();
    match resolver.resolve(PORT, vni(7), &frame, &claims) {
        Action::Answer(answer) => answer.as_slice().to_vec(),
        action => panic!("{}", word(&action)),
    }
}

/// Byte by byte after the figure of RFC 826.
#[test]
fn an_arp_reply_to_the_byte() {
    #[rustfmt::skip]
    let packet = [
        0x08, 0x06,
        0, 1, 0x08, 0, 6, 4, 0, 2,
        2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
    ];
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let expected = [&addresses[..], &packet, &[0; 18]].concat();
    assert_eq!(answer_to(&arp_request(1, 2)), expected);
    let expected = [&addresses[..], &TAG, &packet, &[0; 14]].concat();
    assert_eq!(answer_to(&with_tag(&arp_request(1, 2))), expected);
    let twice = [0x88, 0xa8, 0x20, 5, 0x81, 0, 0x60, 0x64];
    let request = arp_request(1, 2);
    let request = [&request[..12], &twice, &request[12..]].concat();
    let expected = [&addresses[..], &twice, &packet, &[0; 10]].concat();
    assert_eq!(answer_to(&request), expected);
}

/// The answer to a probe names the holder of the address; the sender's own address is still none.
#[test]
fn arp_reply_to_probe_matches_exact_bytes() {
    let probe = arp_frame(mac(1), &[], arp::Repr::probe(mac(1), v4(2)));
    #[rustfmt::skip]
    let packet = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06,
        0, 1, 0x08, 0, 6, 4, 0, 2,
        2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
        2, 0, 0, 0, 0, 1, 0, 0, 0, 0,
    ];
    assert_eq!(answer_to(&probe), [&packet[..], &[0; 18]].concat());
}

/// Byte by byte after the figures of RFC 8200 section 3 and RFC 4861 clauses 4.4 and 4.6.1.
#[test]
fn an_advertisement_to_the_byte() {
    #[rustfmt::skip]
    let packet = [
        0x86, 0xdd,
        0x60, 0, 0, 0, 0, 32, 58, 255,
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        136, 0, 0x8a, 0x71, 0x60, 0, 0, 0,
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        2, 1, 2, 0, 0, 0, 0, 2,
    ];
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    assert_eq!(answer_to(&solicitation(1, 2)), [&addresses[..], &packet].concat());
    let tagged = answer_to(&with_tag(&solicitation(1, 2)));
    assert_eq!(tagged, [&addresses[..], &TAG, &packet].concat());
}

/// An asker without an address gets the answer with all nodes, unsolicited (RFC 4861 clause 7.2.4).
#[test]
fn an_advertisement_to_a_probe_to_the_byte() {
    #[rustfmt::skip]
    let expected = [
        0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd,
        0x60, 0, 0, 0, 0, 32, 58, 255,
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        136, 0, 0xf9, 0x27, 0x20, 0, 0, 0,
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        2, 1, 2, 0, 0, 0, 0, 2,
    ];
    assert_eq!(answer_to(&nd_probe(1, 2)), expected);
}

#[test]
fn resolver_answer_parses_with_tags_of_request() {
    for bytes in [arp_request(1, 2), solicitation(1, 2), nd_probe(1, 2)] {
        for bytes in [with_tag(&bytes), bytes] {
            let answer = answer_to(&bytes);
            let (read, asked) = (Frame::parse(&answer).unwrap(), Frame::parse(&bytes).unwrap());
            assert_eq!((read.src, read.tags), (mac(2), asked.tags));
            assert!(matches!(read.body, Body::Arp(_) | Body::Neighbor { .. }));
            assert!((FRAME_SIZE_MIN..=ANSWER_SIZE_MAX).contains(&answer.len()));
        }
    }
}

/// Each asker waits for an answer of its own, and may have lost the one before.
#[test]
fn resolver_serves_every_asker_without_rate_limit() {
    let mut resolver = Resolver::new(&config(), 1);
    for known in [Known::Live, Known::Nowhere] {
        let claims = claims(known);
        for asker in 3..103 {
            for bytes in [arp_request(asker, 2), solicitation(asker, 2)] {
                let frame = Frame::parse(&bytes).unwrap();
                let expected = if known == Known::Live { "answer" } else { "flood Unknown" };
                for _ in 0..3 {
                    let action = resolver.resolve(PORT, vni(7), &frame, &claims);
                    assert_eq!(word(&action), expected);
                }
            }
        }
    }
    assert_eq!((resolver.answered(PORT), resolver.flooded(PORT)), (600, 600));
}

#[test]
fn target_asked_once_per_gap_across_askers() {
    let mut resolver = Resolver::new(&config(), 1);
    let repeated = Err(Ignored::Repeated);
    let flood = Ok(String::from("flood Unknown"));
    let rows = [
        (0, PORT, arp_request(1, 9), flood.clone()),
        (99, PORT, arp_request(1, 9), repeated.clone()),
        (99, PortId(2), arp_request(2, 9), repeated.clone()),
        (99, PORT, arp_request(1, 8), flood.clone()),
        (99, PORT, solicitation(1, 9), flood.clone()),
        (100, PORT, arp_request(2, 9), flood.clone()),
        // Known addresses are answered for each sender, and nothing is announced in another's name.
        (100, PORT, arp_request(1, 2), Ok("answer".into())),
        (100, PORT, arp_request(3, 2), Ok("answer".into())),
        (100, PORT, advertisement(1, false), Err(Ignored::NotAsked)),
        (100, PORT, nd_probe(1, 7), Err(Ignored::NotAsked)),
    ];
    let claims = claims(Known::Live);
    for (row, (ms, port, bytes, expected)) in rows.into_iter().enumerate() {
        let frame = Frame::parse(&bytes).unwrap();
        let asked = resolver.ask(Nanos(ms * MS), port, vni(7), &frame, &claims);
        assert_eq!(asked.map(|action| word(&action)), expected, "row {row}");
    }
    assert_eq!((resolver.asked(PORT), resolver.not_asked(PORT, Ignored::Repeated)), (6, 1));
}

#[test]
fn ask_budget_per_port_leaves_other_ports_unaffected() {
    let mut resolver = Resolver::new(&config(), 1);
    let ask = arp_request(3, 9);
    let frame = Frame::parse(&ask).unwrap();
    let mut asked = |ms: u64, port: u16, base: u32| {
        let now = Nanos(ms * MS);
        (base..base + 50)
            .filter(|&number| {
                let claims = Claims::default();
                resolver.ask(now, PortId(port), vni(number), &frame, &claims).is_ok()
            })
            .count()
    };
    assert_eq!([0, 2, 3].map(|port| asked(0, port, u32::from(port) * 1000)), [10; 3]);
    assert_eq!(asked(10, 3, 3000), 1, "what was refused may be tried again");
    assert_eq!(resolver.not_asked(PortId(3), Ignored::AskLimit), 79);
}

#[test]
fn budgets_follow_the_rate() {
    let rate = |per_second| Config::with_rate(4, per_second).asks;
    assert_eq!(rate(100), Rate { per_second: 100, burst: 50 });
    assert_eq!(rate(1), Rate { per_second: 1, burst: 1 });
    assert_eq!(rate(0), Rate::NEVER);
}
