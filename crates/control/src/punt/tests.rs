use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::Prng;

use super::*;
use crate::frame::tests::{
    advertisement, arp_frame, arp_request, data, frame, mac, solicitation, v4, vni,
};

const MS: u64 = 1_000_000;

fn rate(per_second: u32, burst: u32) -> Rate {
    Rate { per_second, burst }
}

/// Wide limits: a test narrows the one that it is about.
fn config() -> Config {
    Config {
        ports: 4,
        assured: rate(1000, 10),
        common: rate(1000, 10),
        port: Rate::UNLIMITED,
        cause: [Rate::UNLIMITED; PuntCause::COUNT],
        gap: Nanos(50 * MS),
        questions: 1024,
        unknown_life: Nanos(2000 * MS),
        unknowns: 1024,
    }
}

fn admit(policer: &mut Policer, ms: u64, port: u16, cause: PuntCause, bytes: &[u8]) -> Verdict {
    let frame = Frame::parse(bytes).unwrap();
    policer.admit(Nanos(ms * MS), PortId(port), vni(7), cause, &frame)
}

type Verdict = Result<(), Refused>;

/// Data from one source to destination `n`, so that no two are the same question.
fn miss(n: u16) -> Vec<u8> {
    let [high, low] = n.to_be_bytes();
    let dst = Mac([2, 1, 0, 0, high, low]);
    frame(dst, mac(1), &[], sluice_wire::EtherType(0x88b5), &[0; 46])
}

#[test]
fn reasons_listed_in_order_of_index() {
    assert!(Refused::ALL.iter().enumerate().all(|(at, &why)| why as usize == at));
}

#[test]
fn limits_follow_the_rate_of_one_cause() {
    let limits = |per_second| {
        let config = Config::with_rate(4, per_second);
        (config.cause[0], config.port, config.common)
    };
    let usual = (rate(10_000, 1_000), rate(20_000, 2_000), rate(50_000, 5_000));
    assert_eq!(limits(10_000), usual);
    let all = Config::new(4);
    assert_eq!((all.cause, all.port, all.common), ([usual.0; PuntCause::COUNT], usual.1, usual.2));
    assert_eq!(limits(1), (rate(1, 1), rate(2, 1), rate(5, 1)));
    assert_eq!(limits(0), (Rate::NEVER, Rate::NEVER, Rate::NEVER));
    assert_eq!(limits(u32::MAX).2.per_second, u32::MAX);
}

#[test]
fn punt_port_keeps_assured_rate_shares_common_rate() {
    let mut policer = Policer::new(&config(), 1);
    let mut flood = |port, ms| {
        (0..100_u16)
            .filter(|n| {
                admit(&mut policer, ms, port, PuntCause::Miss, &miss(port * 1000 + n)).is_ok()
            })
            .count()
    };
    assert_eq!(flood(0, 0), 20, "assured and common");
    assert_eq!(flood(1, 0), 10, "what is common is used up, what is assured is not");
    assert_eq!(flood(2, 0), 10);
    assert_eq!(policer.refused(PortId(0), PuntCause::Miss, Refused::Crowded), 80);
    assert_eq!(policer.admitted(PortId(1), PuntCause::Miss), 10);
}

#[test]
fn every_ceiling_is_a_reason_of_its_own() {
    let mut causes = [Rate::UNLIMITED; PuntCause::COUNT];
    causes[PuntCause::Miss.index()] = rate(1000, 2);
    causes[PuntCause::Nd.index()] = Rate::NEVER;
    let mut policer = Policer::new(&Config { port: rate(1000, 4), cause: causes, ..config() }, 1);
    let rows = [
        (0, 0, PuntCause::Miss, miss(1), Ok(())),
        (0, 0, PuntCause::Miss, miss(2), Ok(())),
        (0, 0, PuntCause::Miss, miss(3), Err(Refused::CauseLimit)),
        (0, 0, PuntCause::Nd, solicitation(1, 2), Err(Refused::CauseLimit)),
        (0, 0, PuntCause::Arp, arp_request(1, 2), Ok(())),
        (0, 0, PuntCause::Arp, arp_request(1, 3), Ok(())),
        (0, 0, PuntCause::Arp, arp_request(1, 4), Err(Refused::PortLimit)),
        (0, 1, PuntCause::Arp, arp_request(1, 4), Ok(())),
        // A millisecond is one token each; a refused question has not been asked.
        (1, 0, PuntCause::Miss, miss(3), Ok(())),
        (1, 0, PuntCause::Arp, arp_request(1, 4), Err(Refused::PortLimit)),
        (2, 0, PuntCause::Arp, arp_request(1, 4), Ok(())),
    ];
    for (row, (ms, port, cause, bytes, expected)) in rows.into_iter().enumerate() {
        assert_eq!(admit(&mut policer, ms, port, cause, &bytes), expected, "row {row}");
    }
    assert_eq!(policer.refused(PortId(0), PuntCause::Miss, Refused::CauseLimit), 1);
    assert_eq!(policer.refused(PortId(0), PuntCause::Nd, Refused::CauseLimit), 1);
    assert_eq!(policer.refused(PortId(0), PuntCause::Arp, Refused::PortLimit), 2);
    assert_eq!(policer.refused(PortId(1), PuntCause::Arp, Refused::PortLimit), 0);
    assert_eq!(policer.admitted(PortId(0), PuntCause::Arp), 3);
}

#[test]
fn the_same_question_is_counted_and_not_asked() {
    use PuntCause::{Arp, Miss, Moved, Nd, NewSource, Snooped};
    let mut policer = Policer::new(&config(), 1);
    let probe = arp_frame(mac(1), &[], sluice_wire::arp::Repr::probe(mac(1), v4(2)));
    let announcement = sluice_wire::arp::Repr::announcement(mac(1), v4(1));
    let announcement = arp_frame(mac(1), &[], announcement);
    let repeated = Err(Refused::Repeated);
    let rows = [
        // The same destination, for any asker.
        (0, 0, Miss, miss(1), Ok(())),
        (49, 0, Miss, miss(1), repeated),
        (49, 1, Miss, miss(1), repeated),
        (49, 0, Miss, miss(2), Ok(())),
        (50, 0, Miss, miss(1), Ok(())),
        // The same source, at each port.
        (200, 0, NewSource, data(1), Ok(())),
        (200, 0, NewSource, data(1), repeated),
        (200, 1, Moved, data(1), Ok(())),
        // Messages of neighbours, as often as they come.
        (250, 0, Arp, arp_request(1, 2), Ok(())),
        (250, 0, Arp, arp_request(1, 2), Ok(())),
        (250, 0, Nd, solicitation(1, 2), Ok(())),
        (250, 0, Nd, solicitation(1, 2), Ok(())),
        (250, 0, Arp, probe.clone(), Ok(())),
        (250, 0, Arp, probe, Ok(())),
        (300, 0, Arp, announcement.clone(), Ok(())),
        (300, 0, Arp, announcement, Ok(())),
        (300, 0, Nd, advertisement(1, false), Ok(())),
        (300, 0, Nd, advertisement(1, false), Ok(())),
        (300, 0, Snooped, advertisement(1, true), Ok(())),
        (300, 0, Snooped, advertisement(1, true), Ok(())),
    ];
    for (row, (ms, port, cause, bytes, expected)) in rows.into_iter().enumerate() {
        assert_eq!(admit(&mut policer, ms, port, cause, &bytes), expected, "row {row}");
    }
    assert_eq!(policer.refused(PortId(0), Miss, Refused::Repeated), 1);
}

#[test]
fn refused_punt_retry_admitted_with_next_token() {
    let config = Config { assured: rate(1000, 1), common: Rate::NEVER, ..config() };
    let mut policer = Policer::new(&config, 1);
    assert_eq!(admit(&mut policer, 0, 0, PuntCause::Miss, &miss(1)), Ok(()));
    assert_eq!(admit(&mut policer, 0, 0, PuntCause::Miss, &miss(2)), Err(Refused::Crowded));
    assert_eq!(admit(&mut policer, 1, 0, PuntCause::Miss, &miss(2)), Ok(()));
}

#[test]
fn unknown_target_punt_refused_until_timeout_or_known() {
    use PuntCause::{Arp, Miss, NewSource};
    let mut policer = Policer::new(&Config { gap: Nanos::ZERO, ..config() }, 1);
    let nowhere = Mac([2, 1, 0, 0, 0, 1]);
    policer.unknown(Nanos::ZERO, vni(7), nowhere);
    let mut question = arp_request(1, 2);
    question[..6].copy_from_slice(&nowhere.0);
    let unknown = Err(Refused::Unknown);
    let rows = [
        (0, Miss, miss(1), unknown),
        (1999, Miss, miss(1), unknown),
        (1999, NewSource, miss(1), Ok(())),
        (1999, Miss, miss(2), Ok(())),
        (1999, Arp, question, Ok(())),
        (2000, Miss, miss(1), Ok(())),
    ];
    for (row, (ms, cause, bytes, expected)) in rows.into_iter().enumerate() {
        assert_eq!(admit(&mut policer, ms, 0, cause, &bytes), expected, "row {row}");
    }
    let (now, target) = (Nanos(3000 * MS), nowhere);
    policer.unknown(now, vni(7), target);
    assert!(policer.is_unknown(now, vni(7), target) && !policer.is_unknown(now, vni(8), target));
    assert_eq!(admit(&mut policer, 3000, 0, Miss, &miss(1)), unknown);
    policer.known(vni(7), target);
    assert_eq!(admit(&mut policer, 3000, 0, Miss, &miss(1)), Ok(()));
}

#[test]
fn a_flood_from_one_port_starves_no_other() {
    let mut policer = Policer::new(&config(), 1);
    let mut prng = Prng::new(1);
    let mut answered = 0;
    // A second: port 0 sends 100 000 misses, port 1 asks once in 2 ms.
    for step in 0..100_000_u64 {
        let now = Nanos(step * 10_000);
        let flood = miss(u16::try_from(prng.below(65_536)).unwrap());
        let frame = Frame::parse(&flood).unwrap();
        _ = policer.admit(now, PortId(0), vni(7), PuntCause::Miss, &frame);
        if step % 200 == 0 {
            let request = arp_request(1, 2);
            let frame = Frame::parse(&request).unwrap();
            let vni = vni(u32::try_from(step).unwrap());
            answered +=
                u32::from(policer.admit(now, PortId(1), vni, PuntCause::Arp, &frame) == Ok(()));
        }
    }
    assert_eq!(answered, 500, "port 1 keeps to its assured rate");
    let flooded = policer.admitted(PortId(0), PuntCause::Miss);
    assert!((1900..=2020).contains(&flooded), "its own and all that is common: {flooded}");
}

proptest! {
    #[test]
    fn punt_limits_never_exceeded_assured_rate_kept(
        steps in prop::collection::vec((0..400_000_u64, 0..4_u16, any::<bool>()), 1..600),
    ) {
        let mut causes = [Rate::UNLIMITED; PuntCause::COUNT];
        causes[PuntCause::Miss.index()] = rate(2000, 6);
        let config = Config {
            assured: rate(500, 3), common: rate(1000, 5), port: rate(3000, 8), cause: causes,
            ..config()
        };
        let mut policer = Policer::new(&config, 1);
        let (mut now, mut admitted, mut misses) = (Nanos::ZERO, [0_u64; 4], [0_u64; 4]);
        // Times of the last admitted punt, by port.
        let mut last = [Nanos::ZERO; 4];
        for (n, (gap, port, is_miss)) in (0..).zip(steps) {
            now = now.after(Nanos(gap));
            let cause = if is_miss { PuntCause::Miss } else { PuntCause::Moved };
            let mut bytes = miss(n);
            bytes[6..12].copy_from_slice(&mac(0).0);
            bytes[10..12].copy_from_slice(&n.to_be_bytes());
            let frame = Frame::parse(&bytes).unwrap();
            let verdict = policer.admit(now, PortId(port), vni(7), cause, &frame);
            let port = usize::from(port);
            if verdict.is_ok() {
                admitted[port] += 1;
                misses[port] += u64::from(is_miss);
                last[port] = now;
            }
            // An assured token is there 2 ms after the last one at the latest.
            if verdict == Err(Refused::Crowded) {
                prop_assert!(now.since(last[port]) < Nanos(2 * MS));
            }
            let us = now.0 / 1000;
            prop_assert!(admitted[port] <= 8 + us * 3 / 1000);
            prop_assert!(misses[port] <= 6 + us * 2 / 1000);
            prop_assert!(admitted.iter().sum::<u64>() <= 4 * (3 + us / 2000) + 5 + us / 1000);
        }
    }
}
