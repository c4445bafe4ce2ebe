use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;
use sluice_wire::{arp, icmpv6};

use super::*;
use crate::directory::Found;
use crate::frame::tests::{
    Claims, House, advertisement, arp_frame, arp_request, data, found, frame, mac, nd_frame,
    nd_probe, solicitation, v4, v6, vni,
};
use crate::vport::{IP_SEQUENCE_SHARED, IPS_MAX};

const MS: u64 = 1_000_000;
const LEARN: PortRule = PortRule::Learn { quota: 3, sticky: false };
const STICKY: PortRule = PortRule::Learn { quota: 3, sticky: true };

/// A learner of 6 endpoints and a second; port 0 is bound, 1 and 2 learn, 3 is sticky.
fn learner() -> (Learner, House) {
    let config = Config { ports: 4, entries: 6, lifetime: Nanos(1000 * MS) };
    (Learner::new(&config, 1), House::new([PortRule::Bound, LEARN, LEARN, STICKY]))
}

fn key(n: u8) -> Key {
    Key { vni: vni(7), mac: mac(n) }
}

fn ips(all: &[IpAddr]) -> Ips {
    all.iter().copied().collect()
}

fn learned(n: u8, port: u16, all: &[IpAddr]) -> Result<Intent, Reason> {
    let origin = if port == 3 { Origin::Sticky } else { Origin::Learned };
    Ok(Intent::Learned { key: key(n), port: PortId(port), ips: ips(all), origin, announced: None })
}

fn seen(n: u8) -> Result<Intent, Reason> {
    Ok(Intent::Seen { key: key(n) })
}

fn see(
    learner: &mut Learner,
    house: &House,
    claims: &Claims,
    (ms, port): (u64, u16),
    bytes: &[u8],
) -> Result<Observed, Reason> {
    let frame = Frame::parse(bytes).unwrap();
    learner.observe(Nanos(ms * MS), PortId(port), vni(7), &frame, claims, house)
}

/// Result of one frame for a learner that knows nothing.
fn first_of(claims: &[Found], port: u16, bytes: &[u8]) -> Result<Observed, Reason> {
    let (mut learner, house) = learner();
    let verdict = see(&mut learner, &house, &Claims(claims.to_vec()), (0, port), bytes);
    if let Err(reason) = verdict {
        assert_eq!(learner.refused(PortId(port), reason), 1, "it is counted");
        assert!(learner.is_empty(), "nothing is learned with it");
    }
    verdict
}

fn arp(n: u8, change: impl Fn(&mut arp::Repr)) -> Vec<u8> {
    let mut repr = arp::Repr { sender_ip: v4(n), ..arp::Repr::probe(mac(n), v4(9)) };
    change(&mut repr);
    arp_frame(mac(n), &[], repr)
}

/// An advertisement of endpoint `n` to endpoint 1, which says that `target` is at `link`.
fn answer(n: u8, target: Ipv6Addr, link: Option<Mac>) -> Vec<u8> {
    let message = icmpv6::Repr::Advertisement {
        target,
        target_mac: link,
        router: false,
        solicited: true,
        overrides: true,
    };
    nd_frame(mac(n), &[], v6(n), v6(1), message)
}

#[test]
fn reasons_are_in_their_order() {
    assert!(Reason::ALL.iter().enumerate().all(|(at, &reason)| reason as usize == at));
    let lacks = Reason::ALL.iter().filter(|reason| !reason.is_pretence());
    assert!(lacks.eq([&Reason::Quota, &Reason::TableFull]));
}

#[test]
fn what_each_kind_of_frame_teaches() {
    let announcement = arp_frame(mac(1), &[], arp::Repr::announcement(mac(1), v4(1)));
    let reply = arp::Repr { sender_ip: v4(9), ..arp::Repr::probe(mac(9), v4(1)) }.reply(mac(1));
    let probe = arp_frame(mac(1), &[], arp::Repr::probe(mac(1), v4(1)));
    let (four, six) = ([v4(1).into()], [v6(1).into()]);
    let rows: [(_, Vec<u8>, &[IpAddr]); 10] = [
        ("data of who never speaks ARP", data(1), &[]),
        ("a request", arp_request(1, 9), &four),
        ("an announcement", announcement, &four),
        ("a reply", arp_frame(mac(1), &[], reply), &four),
        ("a probe", probe, &[]),
        ("a solicitation", solicitation(1, 9), &[]),
        ("a probe of IPv6", nd_probe(1, 1), &[]),
        ("an advertisement", advertisement(1, false), &six),
        ("an advertisement of a router", advertisement(1, true), &[]),
        ("an answer without link-layer address", answer(1, v6(1), None), &six),
    ];
    for (what, bytes, all) in rows {
        let observed = first_of(&[], 1, &bytes).unwrap();
        assert_eq!((Ok(observed.intent), observed.note), (learned(1, 1, all), None), "{what}");
    }
}

/// One row for each reason that a single frame can give.
#[test]
fn what_pretends_teaches_nothing() {
    use Origin::{Bound, Learned, Sticky};
    use State::{Authoritative, Own, Stale};
    let here = found(1, Own, 0, Bound);
    let of = |src: Mac| frame(mac(9), src, &[], sluice_wire::EtherType(0x88b5), &[0; 46]);
    let link = |link| nd_frame(mac(1), &[], v6(1), icmpv6::solicited_node(v6(9)), link);
    let others = icmpv6::Repr::Solicitation { target: v6(9), source_mac: Some(mac(2)) };
    let mut broken = solicitation(1, 9);
    broken[14 + 7] = 64;
    let rows = [
        ("group", vec![], 1, of(Mac([3, 0, 0, 0, 0, 1])), Reason::GroupSource),
        ("broadcast", vec![], 1, of(Mac::BROADCAST), Reason::GroupSource),
        ("zero", vec![], 1, of(Mac::default()), Reason::ZeroSource),
        ("hop limit", vec![], 1, broken, Reason::Malformed),
        ("sender of ARP", vec![], 1, arp(1, |arp| arp.sender_mac = mac(2)), Reason::SenderMismatch),
        (
            "the same, bound",
            vec![here],
            0,
            arp(1, |arp| arp.sender_mac = mac(2)),
            Reason::SenderMismatch,
        ),
        ("option of who asks", vec![], 1, link(others), Reason::SenderMismatch),
        (
            "option of who answers",
            vec![],
            1,
            answer(1, v6(1), Some(mac(2))),
            Reason::SenderMismatch,
        ),
        (
            "group as sender",
            vec![],
            1,
            arp(1, |arp| arp.sender_ip = [224, 0, 0, 1].into()),
            Reason::BadAddress,
        ),
        (
            "broadcast as sender",
            vec![],
            1,
            arp(1, |arp| arp.sender_ip = Ipv4Addr::BROADCAST),
            Reason::BadAddress,
        ),
        (
            "loopback as sender",
            vec![],
            1,
            arp(1, |arp| arp.sender_ip = Ipv4Addr::LOCALHOST),
            Reason::BadAddress,
        ),
        ("loopback as target", vec![], 1, answer(1, Ipv6Addr::LOCALHOST, None), Reason::BadAddress),
        (
            "bound at another host",
            vec![found(1, Authoritative, 1, Bound)],
            1,
            data(1),
            Reason::BoundElsewhere,
        ),
        (
            "bound at a dead host",
            vec![found(1, Stale, 1, Bound)],
            1,
            data(1),
            Reason::BoundElsewhere,
        ),
        ("bound at another port", vec![here], 1, data(1), Reason::BoundElsewhere),
        (
            "sticky at another port",
            vec![found(1, Own, 3, Sticky)],
            1,
            data(1),
            Reason::BoundElsewhere,
        ),
        (
            "address bound here",
            vec![here],
            1,
            arp(2, |arp| arp.sender_ip = v4(1)),
            Reason::IpBoundElsewhere,
        ),
        (
            "address bound elsewhere",
            vec![found(1, Authoritative, 0, Bound)],
            1,
            answer(2, v6(1), Some(mac(2))),
            Reason::IpBoundElsewhere,
        ),
        ("another MAC at a bound port", vec![here], 0, data(2), Reason::SpoofedMac),
        ("learned is not bound", vec![found(2, Own, 0, Learned)], 0, data(2), Reason::SpoofedMac),
        (
            "sender address, bound",
            vec![here],
            0,
            arp(1, |arp| arp.sender_ip = v4(5)),
            Reason::SpoofedIp,
        ),
        (
            "target of an answer, bound",
            vec![here],
            0,
            answer(1, v6(5), Some(mac(1))),
            Reason::SpoofedIp,
        ),
        (
            "source of a question, bound",
            vec![here],
            0,
            nd_frame(
                mac(1),
                &[],
                v6(5),
                icmpv6::solicited_node(v6(9)),
                icmpv6::Repr::Solicitation { target: v6(9), source_mac: None },
            ),
            Reason::SpoofedIp,
        ),
    ];
    for (what, claims, port, bytes, reason) in rows {
        assert_eq!(first_of(&claims, port, &bytes), Err(reason), "{what}");
    }
    let (mut learner, house) = learner();
    let bytes = data(1);
    let frame = Frame::parse(&bytes).unwrap();
    let verdict =
        learner.observe(Nanos::ZERO, PortId(1), vni(8), &frame, &Claims::default(), &house);
    assert_eq!(verdict, Err(Reason::NotMember));
}

#[test]
fn who_is_bound_speaks_with_its_own_addresses() {
    let mut bound = found(1, State::Own, 0, Origin::Bound);
    // 02:00:00:00:00:01 as an interface identifier (RFC 4291 appendix A).
    let local: Ipv6Addr = "fe80::ff:fe00:1".parse().unwrap();
    let question = icmpv6::Repr::Solicitation { target: v6(9), source_mac: Some(mac(1)) };
    let group = icmpv6::solicited_node(v6(9));
    let rows = [
        data(1),
        arp_request(1, 9),
        arp_frame(mac(1), &[], arp::Repr::probe(mac(1), v4(1))),
        solicitation(1, 9),
        advertisement(1, false),
        nd_frame(mac(1), &[], local, group, question),
        // Derived from a secret (RFC 7217).
        nd_frame(mac(1), &[], "fe80::b7c3:77a:44fc:9d1e".parse().unwrap(), group, question),
    ];
    for bytes in rows {
        assert_eq!(first_of(&[bound], 0, &bytes).map(|o| o.intent), seen(1));
    }
    bound.claim.ips = Ips::default();
    let other = arp(1, |arp| arp.sender_ip = v4(5));
    assert_eq!(first_of(&[bound], 0, &other).map(|o| o.intent), seen(1), "bound by its MAC alone");
    // The endpoint may be bound at a port that otherwise learns.
    let bound = found(1, State::Own, 1, Origin::Bound);
    assert_eq!(first_of(&[bound], 1, &other), Err(Reason::SpoofedIp));
}

/// Endpoint 1 is bound with its addresses, and its port allows 40 and 41.
#[test]
fn who_is_bound_shares_what_its_port_allows() {
    use Origin::{Bound, Learned};
    use State::{Authoritative, Own, Stale};
    const VIP: u8 = 40;
    let allowed: [IpAddr; 3] = [v4(VIP).into(), v4(41).into(), v6(VIP).into()];
    let with = |origin, state, sequence| {
        let mut other = found(2, state, 3, origin);
        other.claim.ips.set(v4(VIP).into(), sequence).unwrap();
        other
    };
    let me = found(1, Own, 0, Bound);
    let mut has_it = me;
    has_it.claim.ips.set(v4(VIP).into(), IP_SEQUENCE_SHARED).unwrap();
    let share = |ip: IpAddr, has, announced| Ok(Intent::Shared { key: key(1), ip, has, announced });
    let vip = |has, announced| share(v4(VIP).into(), has, announced);
    let uses = arp(1, |arp| arp.sender_ip = v4(VIP));
    let tells = arp_frame(mac(1), &[], arp::Repr::announcement(mac(1), v4(VIP)));
    let six = |router| {
        let message = icmpv6::Repr::Advertisement {
            target: v6(VIP),
            target_mac: Some(mac(1)),
            router,
            solicited: false,
            overrides: true,
        };
        nd_frame(mac(1), &[], v6(VIP), v6(9), message)
    };
    let elsewhere = Err(Reason::IpBoundElsewhere);
    let shared = IP_SEQUENCE_SHARED + 7;
    let rows = [
        ("first use", vec![me], &uses, vip(true, false)),
        ("again", vec![has_it], &uses, seen(1)),
        ("its own address", vec![has_it], &arp_request(1, 9), seen(1)),
        ("announced, and nobody else has it", vec![has_it], &tells, seen(1)),
        ("taken from one that shares it", vec![me, with(Bound, Authoritative, shared)], &tells, {
            vip(true, true)
        }),
        ("back again", vec![has_it, with(Bound, Own, shared)], &tells, seen(1)),
        ("taken from one that learned it", vec![me, with(Learned, Own, 5)], &tells, {
            vip(true, true)
        }),
        ("somebody is bound with it", vec![me, with(Bound, Own, 1)], &tells, elsewhere),
        ("and is gone", vec![me, with(Bound, Stale, 1)], &tells, elsewhere),
        ("IPv6", vec![me], &six(false), share(v6(VIP).into(), true, false)),
        ("of a router", vec![me], &six(true), seen(1)),
        ("not on the list", vec![me], &arp(1, |arp| arp.sender_ip = v4(42)), {
            Err(Reason::SpoofedIp)
        }),
    ];
    for (what, claims, bytes, expected) in rows {
        let (mut learner, mut house) = learner();
        house.allowed = allowed.iter().map(|ip| (PortId(0), *ip)).collect();
        let observed = see(&mut learner, &house, &Claims(claims), (0, 0), bytes);
        assert_eq!(observed.map(|o| o.intent), expected, "{what}");
        assert!(learner.is_empty(), "{what}: it stands in its claim");
    }
    // The others: an unbound endpoint takes the address from no holder that shares it and is live.
    let theft = arp_frame(mac(3), &[], arp::Repr::announcement(mac(3), v4(VIP)));
    let of_shared = |state| first_of(&[with(Bound, state, shared)], 1, &theft).map(|o| o.intent);
    assert_eq!(of_shared(Own), elsewhere);
    assert_eq!(of_shared(Authoritative), elsewhere);
    assert!(of_shared(Stale).is_ok(), "who shared it is gone");
    // A port whose bound endpoint has no such list is no better.
    let (mut learner, house) = learner();
    let claims = Claims(vec![me, with(Bound, Own, shared)]);
    let observed = see(&mut learner, &house, &claims, (0, 0), &tells);
    assert_eq!(observed.map(|o| o.intent), Err(Reason::SpoofedIp));
}

#[test]
fn learner_reports_each_change_once() {
    let (mut learner, house) = learner();
    let none = Claims::default();
    // The claim of the host after each frame, as the table would have it.
    let mut here = found(1, State::Own, 1, Origin::Learned);
    here.claim.ips = Ips::default();
    let here = Claims(vec![here]);
    let elsewhere = Claims(vec![found(1, State::Authoritative, 1, Origin::Learned)]);
    let four = [v4(1).into()];
    let both = [v4(1).into(), v6(1).into()];
    let rows = [
        ("new", &none, 1, data(1), learned(1, 1, &[])),
        ("again", &here, 1, data(1), seen(1)),
        ("its address", &here, 1, arp_request(1, 9), learned(1, 1, &four)),
        ("again", &here, 1, arp_request(1, 9), seen(1)),
        ("another one", &here, 1, advertisement(1, false), learned(1, 1, &both)),
        ("a router: not that one", &here, 1, advertisement(1, true), learned(1, 1, &four)),
        ("again", &here, 1, advertisement(1, true), seen(1)),
        ("not claimed any more", &none, 1, data(1), learned(1, 1, &four)),
        ("it moved to another host and is back", &elsewhere, 1, data(1), learned(1, 1, &four)),
        ("another port", &here, 2, data(1), learned(1, 2, &four)),
        ("and back", &here, 1, data(1), learned(1, 1, &four)),
    ];
    for (what, claims, port, bytes, expected) in rows {
        let observed = see(&mut learner, &house, claims, (0, port), &bytes);
        assert_eq!(observed.map(|o| o.intent), expected, "{what}");
    }
    assert_eq!((learner.len(), learner.learned_at(PortId(1))), (1, 1));
    assert_eq!(learner.learned_at(PortId(2)), 0);
}

#[test]
fn address_claimed_by_two_endpoints_reports_conflict() {
    use Origin::Learned;
    let claim = arp(2, |arp| arp.sender_ip = v4(1));
    let conflict = Some(Note::Conflict { ip: v4(1).into(), holder: mac(1) });
    let rows = [(State::Own, conflict), (State::Authoritative, conflict), (State::Stale, None)];
    for (state, expected) in rows {
        let observed = first_of(&[found(1, state, 2, Learned)], 1, &claim).unwrap();
        assert_eq!(observed.note, expected, "{state:?}");
        assert_eq!(Ok(observed.intent), learned(2, 1, &[v4(1).into()]));
    }
    let own = first_of(&[found(2, State::Own, 1, Learned)], 1, &arp_request(2, 9)).unwrap();
    assert_eq!(own.note, None, "its own");
    let probe = arp_frame(mac(2), &[], arp::Repr::probe(mac(2), v4(1)));
    let asked = first_of(&[found(1, State::Own, 2, Learned)], 1, &probe).unwrap();
    assert_eq!(asked.note, None, "who asks first does not have it");
}

#[test]
fn an_endpoint_has_so_many_addresses() {
    let (mut learner, house) = learner();
    let claims = Claims(vec![found(1, State::Own, 1, Origin::Learned)]);
    for last in 0..=IPS_MAX {
        let ip = v4(u8::try_from(10 + last).unwrap());
        let bytes = arp(1, |arp| arp.sender_ip = ip);
        let observed = see(&mut learner, &house, &claims, (0, 1), &bytes).unwrap();
        let is_news = matches!(observed.intent, Intent::Learned { .. });
        let too_many = Note::TooManyIps { ip: ip.into() };
        assert_eq!(is_news, last < IPS_MAX);
        assert_eq!(observed.note, (last == IPS_MAX).then_some(too_many));
    }
}

#[test]
fn learned_endpoints_limited_per_port_and_per_host() {
    let (mut learner, house) = learner();
    let none = Claims::default();
    let rows = [
        (1, 1, learned(1, 1, &[])),
        (1, 2, learned(2, 1, &[])),
        (1, 3, learned(3, 1, &[])),
        (1, 4, Err(Reason::Quota)),
        (1, 3, learned(3, 1, &[])),
        (2, 4, learned(4, 2, &[])),
        (3, 5, learned(5, 3, &[])),
        (3, 6, learned(6, 3, &[])),
        (3, 7, Err(Reason::TableFull)),
        (2, 1, learned(1, 2, &[])),
        (1, 7, Err(Reason::TableFull)),
        (2, 2, learned(2, 2, &[])),
        (2, 3, Err(Reason::Quota)),
        (1, 6, Err(Reason::BoundElsewhere)),
    ];
    for (row, (port, n, expected)) in rows.into_iter().enumerate() {
        let observed = see(&mut learner, &house, &none, (0, port), &data(n));
        assert_eq!(observed.map(|o| o.intent), expected, "row {row}");
    }
    let counts = [0, 1, 2, 3].map(|port| learner.learned_at(PortId(port)));
    assert_eq!(counts, [0, 1, 3, 2]);
    assert_eq!(learner.refused(PortId(1), Reason::Quota), 1);
    assert!(learner.forget(key(5)) && !learner.forget(key(5)));
    assert_eq!(learner.learned_at(PortId(3)), 1);
}

#[test]
fn what_was_sticky_once_stays_so() {
    let claims = [found(1, State::Own, 1, Origin::Sticky)];
    let observed = first_of(&claims, 1, &arp_request(1, 9)).unwrap();
    let (key, port, ips) = (key(1), PortId(1), ips(&[v4(1).into()]));
    let origin = Origin::Sticky;
    assert_eq!(observed.intent, Intent::Learned { key, port, ips, origin, announced: None });
    let elsewhere = [found(1, State::Stale, 1, Origin::Sticky)];
    assert_eq!(first_of(&elsewhere, 1, &data(1)), Err(Reason::BoundElsewhere));
}

/// Endpoints that are gone at `ms`, taken out in steps of `limit`.
fn gone(learner: &mut Learner, ms: u64, limit: u32) -> Vec<(Mac, u16, Why)> {
    let mut all = Vec::new();
    let mut more = true;
    while more {
        let before = all.len();
        more = learner.tick(Nanos(ms * MS), limit, |gone| {
            all.push((gone.key.mac, gone.port.0, gone.why));
        });
        assert!(all.len() - before <= limit as usize, "bounded work");
    }
    all
}

#[test]
fn who_is_not_heard_of_goes() {
    let (mut learner, house) = learner();
    let none = Claims::default();
    assert_eq!(learner.deadline(), None);
    for (ms, port, n) in [(0, 1, 1), (100, 1, 2), (200, 2, 3), (300, 3, 4), (400, 1, 1)] {
        see(&mut learner, &house, &none, (ms, port), &data(n)).unwrap();
    }
    assert!(learner.refresh(Nanos(500 * MS), key(2)), "its data is seen by the data plane");
    assert!(!learner.refresh(Nanos(500 * MS), key(9)));
    assert_eq!(learner.deadline(), Some(Nanos(1200 * MS)));
    assert_eq!(gone(&mut learner, 1199, 1), []);
    assert_eq!(gone(&mut learner, 1200, 1), [(mac(3), 2, Why::Aged)]);
    let rest = [(mac(1), 1, Why::Aged), (mac(2), 1, Why::Aged)];
    assert_eq!(gone(&mut learner, 99_999, 1), rest);
    assert_eq!((learner.len(), learner.deadline()), (1, None), "what is sticky stays");
}

#[test]
fn port_down_removes_learned_endpoints_unless_moved() {
    let (mut learner, house) = learner();
    let none = Claims::default();
    for (port, n) in [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5)] {
        see(&mut learner, &house, &none, (0, port), &data(n)).unwrap();
    }
    learner.port_down(PortId(1));
    learner.port_down(PortId(3));
    assert_eq!(learner.deadline(), Some(Nanos::ZERO));
    assert_eq!(learner.learned_at(PortId(1)), 0);
    assert!(!learner.refresh(Nanos(MS), key(1)), "it is on its way out");
    // One endpoint is heard at its port again, another one at another port, before they are taken
    // out.
    let again = see(&mut learner, &house, &none, (1, 1), &data(2)).unwrap();
    assert_eq!(Ok(again.intent), learned(2, 1, &[]));
    let moved = see(&mut learner, &house, &none, (1, 2), &data(3)).unwrap();
    assert_eq!(Ok(moved.intent), learned(3, 2, &[]));
    assert_eq!(gone(&mut learner, 1, 2), [(mac(1), 1, Why::PortDown)]);
    let counts = [1, 2, 3].map(|port| learner.learned_at(PortId(port)));
    assert_eq!(counts, [1, 2, 1], "what is sticky stays");
    learner.port_down(PortId(1));
    learner.port_down(PortId(1));
    assert_eq!(gone(&mut learner, 1, 1), [(mac(2), 1, Why::PortDown)]);
    let aged = [(mac(4), 2, Why::Aged), (mac(3), 2, Why::Aged)];
    assert_eq!(gone(&mut learner, 5000, 9), aged);
}

proptest! {
    /// Compares with a map of the time and port at which each endpoint was last seen.
    #[test]
    fn counts_and_ages_agree_with_a_plain_map(
        steps in prop::collection::vec((0..6_u8, 0..300_u64, 1..3_u16, 1..9_u8), 1..200),
    ) {
        let (mut learner, house) = learner();
        let none = Claims::default();
        let mut model: BTreeMap<Mac, (u16, u64)> = BTreeMap::new();
        let mut now = 0;
        for (step, gap, port, n) in steps {
            now += gap;
            match step {
                0 => {
                    learner.port_down(PortId(port));
                    gone(&mut learner, now, 3);
                    model.retain(|_, &mut (at, seen)| at != port && now < seen + 1000);
                }
                1 => {
                    gone(&mut learner, now, 2);
                    model.retain(|_, &mut (_, seen)| now < seen + 1000);
                }
                2 => {
                    let known = model.get_mut(&mac(n));
                    prop_assert_eq!(learner.refresh(Nanos(now * MS), key(n)), known.is_some());
                    if let Some((_, seen)) = known {
                        *seen = now;
                    }
                }
                _ => {
                    let at_port = model.values().filter(|(at, _)| *at == port).count();
                    let known = model.get(&mac(n)).copied();
                    let expected = match known {
                        Some((at, _)) if at == port => None,
                        _ if at_port == 3 => Some(Reason::Quota),
                        None if model.len() == 6 => Some(Reason::TableFull),
                        _ => None,
                    };
                    let observed = see(&mut learner, &house, &none, (now, port), &data(n));
                    prop_assert_eq!(observed.err(), expected);
                    if expected.is_none() {
                        model.insert(mac(n), (port, now));
                    }
                }
            }
            prop_assert_eq!(learner.len(), model.len());
            for port in 1..3 {
                let count = model.values().filter(|(at, _)| *at == port).count();
                prop_assert_eq!(learner.learned_at(PortId(port)) as usize, count);
            }
        }
    }
}

#[test]
fn endpoint_with_addresses_probed_before_aging_out() {
    let (mut learner, house) = learner();
    let none = Claims::default();
    let ticked = |learner: &mut Learner, ms: u64| {
        let mut gone = Vec::new();
        learner.tick(Nanos(ms * MS), 10, |which| gone.push((which.key, which.why)));
        gone
    };
    see(&mut learner, &house, &none, (0, 1), &arp(1, |_| {})).unwrap();
    see(&mut learner, &house, &none, (1, 1), &arp(2, |_| {})).unwrap();
    see(&mut learner, &house, &none, (2, 2), &data(3)).unwrap();
    assert_eq!(ticked(&mut learner, 999), []);
    assert_eq!(ticked(&mut learner, 1_000), [(key(1), Why::Silent)]);
    assert_eq!(ticked(&mut learner, 1_001), [(key(2), Why::Silent)], "once each");
    // An endpoint without address cannot be asked.
    assert_eq!(ticked(&mut learner, 1_002), [(key(3), Why::Aged)]);
    assert_eq!(learner.deadline(), Some(Nanos(2_000 * MS)));
    see(&mut learner, &house, &none, (1_500, 1), &arp(1, |_| {})).unwrap();
    assert_eq!(ticked(&mut learner, 2_000), [], "it has answered");
    assert_eq!(ticked(&mut learner, 2_001), [(key(2), Why::Aged)], "and the other has not");
    assert_eq!(ticked(&mut learner, 2_500), [(key(1), Why::Silent)]);
    learner.port_down(PortId(1));
    assert_eq!(ticked(&mut learner, 2_500), [(key(1), Why::PortDown)], "also of who was asked");
    assert!(learner.is_empty() && learner.deadline().is_none());
}

#[test]
fn announcement_of_used_address_distinguished_from_plain_use() {
    let holder = found(4, State::Authoritative, 1, Origin::Learned);
    let announced = |bytes: &[u8]| match first_of(&[holder], 1, bytes).unwrap() {
        Observed { intent: Intent::Learned { announced, .. }, note } => (announced, note.is_some()),
        observed => panic!("{observed:?}"),
    };
    let takes = Some(IpAddr::from(v4(4)));
    let announcement = arp::Repr::announcement(mac(1), v4(4));
    let reply = arp::Repr { operation: arp::Operation::REPLY, ..announcement };
    let to_all = arp::Repr { target_ip: v4(9), ..reply };
    let to_one = |message| {
        let mut bytes = arp_frame(mac(1), &[], message);
        bytes[..6].copy_from_slice(&mac(9).0);
        bytes
    };
    let rows = [
        (arp_frame(mac(1), &[], announcement), (takes, false), "gratuitous request"),
        (arp_frame(mac(1), &[], reply), (takes, false), "gratuitous reply"),
        (arp_frame(mac(1), &[], to_all), (takes, false), "reply to all"),
        (arp(1, |arp| arp.sender_ip = v4(4)), (None, true), "question"),
        (to_one(announcement), (None, true), "what is told to one machine"),
        (to_one(reply), (None, true), "a reply to one machine"),
    ];
    for (bytes, expected, what) in rows {
        assert_eq!(announced(&bytes), expected, "{what}");
    }
    let nobody = match first_of(&[], 1, &arp_frame(mac(1), &[], announcement)).unwrap().intent {
        Intent::Learned { announced, .. } => announced,
        intent => panic!("{intent:?}"),
    };
    assert_eq!(nobody, None, "there is nobody to take it from");
}

#[test]
fn first_use_after_unanswered_probe_counts_as_announcement() {
    let ip = IpAddr::from(v4(4));
    let claims = Claims(vec![found(4, State::Authoritative, 1, Origin::Learned)]);
    let probe = arp_frame(mac(1), &[], arp::Repr::probe(mac(1), v4(4)));
    let used = arp(1, |arp| arp.sender_ip = v4(4));
    for (answered_by, after_ms, expected) in [
        (None, 2_000, Some(ip)),
        (Some(mac(4)), 2_000, None),
        (Some(mac(1)), 2_000, Some(ip)),
        (None, 15_000, None),
    ] {
        let (mut learner, house) = learner();
        see(&mut learner, &house, &claims, (0, 1), &probe).unwrap();
        if let Some(holder) = answered_by {
            learner.heard(vni(7), ip, holder);
        }
        let seen = see(&mut learner, &house, &claims, (after_ms, 1), &used).unwrap();
        let Intent::Learned { announced, .. } = seen.intent else { panic!("{seen:?}") };
        assert_eq!(announced, expected, "{answered_by:?} after {after_ms} ms");
        // The second use is a plain use.
        let again = see(&mut learner, &house, &claims, (after_ms, 1), &used).unwrap();
        assert!(!matches!(again.intent, Intent::Learned { announced: Some(_), .. }));
    }
}
