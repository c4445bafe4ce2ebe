//! Invariants for any behaviour of the network.

use proptest::prelude::*;
use sluice_base::{Nanos, Prng};

use super::network::{Fate, IN_TIME, Network};
use super::small::ALGORITHMS;
use crate::tcp::{Config, Role, RttSampling, Segment};

/// A network that loses, delays and doubles segments, each at a rate per thousand.
fn rough(seed: u64, lost: u64, late: u64, twice: u64) -> impl FnMut(usize, &Segment) -> Fate {
    let mut random = Prng::new(seed);
    move |_, _| {
        if random.chance(lost, 1_000) {
            Fate::Lost
        } else if random.chance(late, 1_000) {
            Fate::Late(Nanos(random.below(200_000)))
        } else if random.chance(twice, 1_000) {
            Fate::Twice(Nanos(random.below(200_000)))
        } else {
            IN_TIME
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    config: Config,
    roles: [Role; 2],
    bytes: u64,
    back: u64,
    seed: u64,
    rates: (u64, u64, u64),
}

fn cases() -> impl Strategy<Value = Case> {
    (
        (0..3_usize, any::<[bool; 7]>(), 0..3_usize, 1..4_u8),
        (1..300_000_u64, prop_oneof![Just(0), 1..100_000_u64]),
        any::<u64>(),
        (0..150_u64, 0..200_u64, 0..50_u64),
    )
        .prop_map(|((algorithm, flags, buffer, ack_every), (bytes, back), seed, rates)| {
            let algorithm = ALGORITHMS[algorithm];
            let [linux, sack, stamps, open, nagle, limited_transmit, now] = flags;
            let base =
                if linux { Config::linux_2013(algorithm) } else { Config::freebsd9(algorithm) };
            let config = Config {
                sack,
                nagle,
                limited_transmit,
                rtt_sampling: if stamps { RttSampling::EveryAck } else { RttSampling::OneSegment },
                ack_every,
                receive_buffer: [base.receive_buffer, 20_000, 1_000][buffer],
                rack: now,
                tail_loss_probe: now && linux,
                ..base
            };
            let roles = if open { [Role::Established; 2] } else { [Role::Client, Role::Server] };
            Case { config, roles, bytes, back, seed, rates }
        })
}

fn run(case: &Case) -> Network {
    let mut net = Network::new(case.config.clone(), case.roles);
    let (lost, late, twice) = case.rates;
    net.rule = Box::new(rough(case.seed, lost, late, twice));
    net.ends[1].write(Nanos::ZERO, case.back);
    net.transfer(case.bytes);
    net
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every byte arrives once, in order; the connection ends; each step checks the windows and
    /// the timers.
    #[test]
    fn all_arrives_whatever_happens(case in cases()) {
        let net = run(&case);
        prop_assert_eq!(net.ends[1].delivered(), case.bytes);
        prop_assert_eq!(net.ends[0].delivered(), case.back);
        prop_assert_eq!(net.ends[0].in_flight(), 0);
    }

    /// An application that takes its bytes late, by pieces, loses none and is never overrun.
    #[test]
    fn a_slow_reader_gets_all(case in cases(), piece in 200..30_000_u64, pause in 1..20_u64) {
        let config = Config { auto_read: false, ..case.config };
        let room = u64::from(config.receive_buffer);
        let mut net = Network::new(config, case.roles);
        let (lost, late, twice) = case.rates;
        net.rule = Box::new(rough(case.seed, lost, late, twice));
        let bytes = case.bytes.min(50_000);
        net.ends[0].write(Nanos::ZERO, bytes);
        let mut taken = 0;
        for _ in 0..1_000_000 {
            net.run_until(net.now.after(Nanos::from_millis(pause)));
            let here = net.ends[1].delivered();
            prop_assert!(here - taken <= room);
            let take = piece.min(here - taken);
            net.ends[1].read(net.now, take);
            taken += take;
            if taken == bytes {
                break;
            }
        }
        prop_assert_eq!(taken, bytes);
    }

    /// The same network, the same segments.
    #[test]
    fn the_same_again(case in cases()) {
        prop_assert_eq!(run(&case).sent, run(&case).sent);
    }

    /// Without loss and disorder nothing is sent twice, but for a probe that a delayed
    /// acknowledgement meets.
    #[test]
    fn no_signal_no_retransmission(case in cases()) {
        let case = Case { rates: (0, 0, 0), ..case };
        let net = run(&case);
        for end in &net.ends {
            let probes = u64::from(end.tail_probes());
            prop_assert!(end.stats().retransmissions <= probes);
            prop_assert!(probes == 0 || case.config.tail_loss_probe);
        }
        if !case.config.tail_loss_probe {
            prop_assert_eq!(net.ends.each_ref().map(|end| end.stats().useless_received), [0, 0]);
        }
    }
}
