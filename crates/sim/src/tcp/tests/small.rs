//! Connections that lose nothing: growth of the window, acknowledgements, windows, handshake.

use sluice_base::Nanos;

use super::network::{Fate, IN_TIME, Network};
use crate::tcp::{Algorithm, Config, Flags, Role, RttSampling};

pub(super) const ALGORITHMS: [Algorithm; 3] =
    [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Vegas];

#[test]
fn nothing_is_sent_twice_when_nothing_is_lost() {
    for algorithm in ALGORITHMS {
        for config in [Config::freebsd9(algorithm), Config::linux_2013(algorithm)] {
            for sack in [false, true] {
                let mut net = Network::established(Config { sack, ..config.clone() });
                net.transfer(10_000_000);
                let stats = net.ends[0].stats();
                assert_eq!((stats.retransmissions, stats.timeouts), (0, 0), "{algorithm:?}");
                assert_eq!(net.ends[1].stats().useless_received, 0);
            }
        }
    }
}

/// The eight cases of ns-3, src/internet/test/tcp-linux-reno-test.cc: segment size, segments
/// written, initial window in segments, initial threshold in bytes, segments for one ACK, final
/// window in segments. Delayed acknowledgements do not change the result.
#[test]
fn ns3_linux_reno_window() {
    const NONE: u64 = u64::MAX;
    let cases: [(u32, u64, u32, u64, u8, u64); 8] = [
        (524, 7, 2, NONE, 1, 9),
        (524, 7, 2, NONE, 2, 9),
        (1_500, 7, 2, NONE, 1, 9),
        (1_500, 7, 2, NONE, 2, 9),
        (524, 6, 1, 2 * 524, 1, 4),
        (524, 6, 1, 2 * 524, 2, 4),
        (1_500, 6, 1, 2 * 1_500, 1, 4),
        (1_500, 6, 1, 2 * 1_500, 2, 4),
    ];
    for (mss, segments, initial_window, initial_ssthresh, ack_every, expected) in cases {
        let config = Config {
            mss,
            initial_window,
            initial_ssthresh,
            ack_every,
            quick_acks: 0,
            ack_delay: Nanos::from_millis(200),
            window_validation: false,
            ..Config::linux_2013(Algorithm::NewReno)
        };
        let mut net = Network::established(config);
        net.transfer(segments * u64::from(mss));
        assert_eq!(net.ends[0].cwnd(), expected * u64::from(mss), "{mss} {ack_every}");
    }
}

#[test]
fn delayed_ack_every_second_segment_timer_for_last() {
    let config = Config::freebsd9(Algorithm::NewReno);
    let delay = config.ack_delay;
    let mut net = Network::established(config);
    net.ends[0].write(Nanos::ZERO, 3 * 1_460);
    net.run_until(Nanos::from_millis(5));
    assert_eq!(net.ends[1].stats().segments_sent, 1);
    net.run_until(Nanos::from_millis(900));
    assert_eq!(net.ends[1].stats().segments_sent, 2);
    assert_eq!(net.ends[0].acknowledged(), 3 * 1_460);
    assert!(net.now >= delay);
}

#[test]
fn every_segment_is_acknowledged_without_delay() {
    let mut net =
        Network::established(Config { ack_every: 1, ..Config::freebsd9(Algorithm::NewReno) });
    net.transfer(10 * 1_460);
    assert_eq!(net.ends[1].stats().segments_sent, 10);
}

#[test]
fn idle_restart_is_a_choice() {
    for (idle_restart, expected) in [(true, 3 * 1_460), (false, 100_000)] {
        let config = Config {
            idle_restart,
            ack_every: 1,
            receive_buffer: 1 << 20,
            ..Config::freebsd9(Algorithm::NewReno)
        };
        let mut net = Network::established(config);
        net.transfer(1_000_000);
        net.now = net.now.after(Nanos::from_millis(100));
        net.ends[0].write(net.now, 1_000_000);
        net.drain();
        let cwnd = net.ends[0].cwnd();
        assert!(if idle_restart { cwnd == expected } else { cwnd > expected }, "{cwnd}");
    }
}

#[test]
fn a_narrow_receiver_limits_the_flight() {
    let config = Config { receive_buffer: 20_000, ..Config::linux_2013(Algorithm::Cubic) };
    let mut net = Network::established(config);
    net.transfer(1_000_000);
    assert_eq!(net.ends[0].stats().retransmissions, 0);
}

#[test]
fn the_window_scale_caps_what_is_advertised() {
    let config = Config { window_scale: 0, ..Config::linux_2013(Algorithm::Cubic) };
    assert_eq!(config.window_max(), 65_535);
    let mut net = Network::established(config);
    net.transfer(1_000_000);
}

#[test]
fn a_shut_window_is_probed_and_opens() {
    let config =
        Config { auto_read: false, receive_buffer: 10_000, ..Config::freebsd9(Algorithm::NewReno) };
    let mut net = Network::established(config);
    net.ends[0].write(Nanos::ZERO, 30_000);
    net.run_until(Nanos::from_millis(10_000));
    assert_eq!(net.ends[1].delivered(), 10_000, "no byte beyond the buffer");
    assert!(net.ends[0].stats().window_probes > 2);
    assert!(net.ends[0].rto() > Nanos::from_millis(1_000), "probes back off");
    assert_eq!(net.ends[0].stats().timeouts, 0, "a shut window is no loss");
    // The update is lost, so that a probe has to detect it.
    let mut first = true;
    net.rule = Box::new(
        move |from, _| {
            if from == 1 && std::mem::take(&mut first) { Fate::Lost } else { IN_TIME }
        },
    );
    for _ in 0..3 {
        let now = net.now;
        net.ends[1].read(now, 10_000);
        net.run_until(now.after(Nanos::from_millis(70_000)));
    }
    assert_eq!(net.ends[1].delivered(), 30_000);
    assert!(net.ends[0].rto() < Nanos::from_millis(1_000), "an answer ends that");
}

#[test]
fn handshake_measures_and_survives_loss() {
    let config = Config {
        rto_initial: Nanos::from_millis(10),
        ack_every: 1,
        ..Config::linux_2013(Algorithm::Cubic)
    };
    let mut net = Network::new(config.clone(), [Role::Client, Role::Server]);
    net.transfer(1_000);
    assert!(net.ends[0].is_open() && net.ends[1].is_open());
    assert!(net.ends[0].srtt().is_some_and(|srtt| srtt < Nanos::from_millis(1)));

    let mut net = Network::new(config, [Role::Client, Role::Server]);
    let mut left = [2, 2];
    net.rule = Box::new(move |from, segment| {
        if segment.flags.contains(Flags::SYN) && left[from] > 0 {
            left[from] -= 1;
            return Fate::Lost;
        }
        IN_TIME
    });
    net.transfer(100_000);
    let syns = net.sent.iter().filter(|(_, s)| s.flags.contains(Flags::SYN)).count();
    assert!(syns >= 3, "two lost, and one or more whose answer was lost");
    assert_eq!(net.ends[0].stats().retransmissions, 0);
}

#[test]
fn both_ways_of_sampling_find_the_round_trip() {
    for rtt_sampling in [RttSampling::OneSegment, RttSampling::EveryAck] {
        let config = Config { rtt_sampling, ack_every: 1, ..Config::freebsd9(Algorithm::NewReno) };
        let mut net = Network::established(Config { send_buffer: 1_460, ..config });
        net.transfer(100_000);
        let srtt = net.ends[0].srtt().expect("many samples").0;
        assert!((100_000..105_000).contains(&srtt), "{srtt} ns");
    }
}

#[test]
fn both_directions_at_once() {
    for algorithm in ALGORITHMS {
        let mut net = Network::established(Config::linux_2013(algorithm));
        net.ends[1].write(Nanos::ZERO, 3_000_000);
        net.transfer(3_000_000);
        assert_eq!(net.ends[0].delivered(), 3_000_000);
        assert_eq!(net.ends[0].stats().retransmissions + net.ends[1].stats().retransmissions, 0);
    }
}

/// RFC 7661: an application that writes little at a time does not let the window grow without
/// bound; without validation it grows to the peer's.
#[test]
fn a_modest_application_gets_a_modest_window() {
    for (window_validation, modest) in [(true, true), (false, false)] {
        let config = Config {
            window_validation,
            idle_restart: false,
            ..Config::linux_2013(Algorithm::NewReno)
        };
        let mut net = Network::established(config);
        for _ in 0..200 {
            net.transfer(8 * 1_460);
        }
        assert_eq!(net.ends[0].cwnd() <= 17 * 1_460, modest, "{}", net.ends[0].cwnd());
    }
}
