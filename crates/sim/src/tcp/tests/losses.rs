//! Losses: the cases of Fall and Floyd, time-outs, limited transmit, rescue.

use sluice_base::{Nanos, Prng};

use super::network::{Fate, IN_TIME, Network, drop_data};
use super::small::ALGORITHMS;
use crate::tcp::{Algorithm, Config, RttSampling};

const MSS: u64 = 1_000;

fn config(algorithm: Algorithm, sack: bool) -> Config {
    Config {
        mss: 1_000,
        sack,
        initial_window: 16,
        initial_ssthresh: 16_000,
        ack_every: 1,
        window_validation: false,
        send_buffer: 1 << 20,
        ..Config::freebsd9(algorithm)
    }
}

/// Fall and Floyd, "Simulation-based Comparisons of Tahoe, Reno, and SACK TCP", 1996, clause 6: one
/// to four segments of a window are dropped. SACK and NewReno recover without a time-out, SACK in
/// about one round trip, NewReno with one retransmission per round trip.
#[test]
fn fall_and_floyd() {
    for algorithm in ALGORITHMS {
        for sack in [false, true] {
            for drops in 1..=4_u64 {
                let mut net = Network::established(config(algorithm, sack));
                net.rule = drop_data((0..drops).map(|i| ((20 + 2 * i) * MSS, 1)).collect());
                net.transfer(200 * MSS);
                let stats = *net.ends[0].stats();
                let what = format!("{algorithm:?} sack {sack} drops {drops}: {stats:?}");
                assert_eq!(stats.timeouts, 0, "{what}");
                assert_eq!(stats.retransmissions, drops, "{what}");
                assert_eq!(stats.fast_recoveries, 1, "{what}");
                let again: Vec<_> = net
                    .sent
                    .windows(2)
                    .filter(|w| w[1].1.len > 0 && w[1].1.seq < w[0].1.seq)
                    .map(|w| w[1].0)
                    .collect();
                let span = again.last().unwrap().since(again[0]);
                let rounds = if sack { 1 } else { drops };
                assert!(span < Nanos(rounds * 120_000), "{what}: {span}");
                assert!(sack || span >= Nanos((drops - 1) * 100_000), "{what}: {span}");
            }
        }
    }
}

/// ns-3, src/internet/test/tcp-rtt-estimation.cc: segments written and the offsets that are dropped
/// (500 bytes a segment, 50 ms one way, offsets less the SYN's one). The estimate is never from a
/// segment that was sent twice: it stays between the path's time and the time with a full queue.
#[test]
fn ns3_estimation_with_losses() {
    let many = [(500, 2), (54_000, 1), (58_000, 1), (58_500, 1), (60_000, 1), (68_500, 1)];
    let cases: [(u64, &[(u64, u32)]); 4] =
        [(10, &[]), (10, &[(500, 1)]), (10, &[(500, 2)]), (1_000, &many)];
    for (segments, drops) in cases {
        for rtt_sampling in [RttSampling::OneSegment, RttSampling::EveryAck] {
            let config = Config {
                mss: 500,
                rtt_sampling,
                ack_every: 1,
                ..Config::freebsd9(Algorithm::NewReno)
            };
            let mut net = Network::established(config);
            net.delay = Nanos::from_millis(50);
            net.rule = drop_data(drops.to_vec());
            net.transfer(segments * 500);
            let srtt = net.ends[0].srtt().expect("a sample");
            assert!(srtt >= Nanos::from_millis(99) && srtt < Nanos::from_millis(115), "{srtt}");
            assert!(drops.is_empty() || net.ends[0].stats().retransmissions > 0);
        }
    }
}

/// ns-3, src/internet/test/tcp-rto-test.cc, third test: the first data segment is dropped seven
/// times; the time-out doubles with each, to the bound of 60 s.
#[test]
fn ns3_time_out_doubles() {
    let config = Config {
        rto_initial: Nanos::from_millis(1_000),
        rto_max: Nanos::from_millis(60_000),
        ..Config::linux_2013(Algorithm::NewReno)
    };
    let mut net = Network::established(config);
    net.rule = drop_data(vec![(0, 7)]);
    net.transfer(1_000);
    let times: Vec<u64> = net.sent.iter().map(|s| s.0.0 / 1_000_000_000).collect();
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123]);
    assert_eq!(net.ends[0].stats().timeouts, 7);
}

/// ns-3, src/internet/test/tcp-rto-test.cc, second test: a segment is dropped three times, so that
/// its retransmission times out: the threshold is half of the flight, two segments at least.
#[test]
fn ns3_threshold_after_a_time_out() {
    for sack in [false, true] {
        for segments in [5, 20, 60] {
            let mut net = Network::established(config(Algorithm::NewReno, sack));
            net.rule = drop_data(vec![(2_000, 3)]);
            net.ends[0].write(Nanos::ZERO, segments * MSS);
            let mut flight = 0;
            while net.ends[0].stats().timeouts == 0 {
                flight = net.ends[0].sender.nxt - net.ends[0].sender.una;
                net.step();
            }
            assert_eq!(net.ends[0].ssthresh(), (flight / 2).max(2 * MSS), "sack {sack}");
            net.transfer(1);
        }
    }
}

/// The tail of a message is lost: only the timer can detect that.
#[test]
fn a_lost_tail_times_out() {
    for algorithm in ALGORITHMS {
        let mut net = Network::established(config(algorithm, true));
        net.rule = drop_data(vec![(9_000, 1)]);
        net.transfer(10 * MSS);
        let stats = net.ends[0].stats();
        assert_eq!((stats.timeouts, stats.retransmissions), (1, 1));
    }
}

/// A whole window is lost: slow start sends it again, each segment once.
#[test]
fn a_lost_window_is_sent_again_once() {
    for sack in [false, true] {
        let mut net = Network::established(config(Algorithm::Cubic, sack));
        net.rule = drop_data((0..16).map(|i| (i * MSS, 1)).collect());
        net.transfer(100 * MSS);
        let stats = net.ends[0].stats();
        assert_eq!((stats.timeouts, stats.retransmissions), (1, 16));
        assert_eq!(net.ends[1].stats().useless_received, 0);
    }
}

/// Mathis, Semke, Mahdavi and Ott, "The Macroscopic Behavior of the TCP Congestion Avoidance
/// Algorithm", 1997: with random losses of probability p and an ACK for each segment the window of
/// Reno averages `sqrt(3/2 / p)` segments. Given: one in so many is lost, the window. Tolerance
/// 15 %: that is a model too, and time-outs are not in it.
#[test]
fn mathis() {
    for (period, window) in [(400, 24), (1_600, 49), (6_400, 98)] {
        let mut net = Network::established(Config {
            receive_buffer: 1 << 20,
            // Retransmissions that are lost cost a time-out: here hardly more than a round trip.
            rto_slop: Nanos::ZERO,
            rto_min: Nanos::from_micros(300),
            ..config(Algorithm::NewReno, true)
        });
        // No queue on the path.
        net.spacing = Nanos(100);
        let mut random = Prng::new(period);
        net.rule = Box::new(move |_, segment| {
            if segment.len > 0 && random.chance(1, period) { Fate::Lost } else { IN_TIME }
        });
        let segments = period * 100;
        let time = net.transfer(segments * MSS);
        let average = segments * 100_250 / time.0;
        assert!(average.abs_diff(window) * 100 <= window * 15, "1/{period}: {average}");
    }
}

/// Disorder of up to two segments is no loss (DupThresh of RFC 5681).
#[test]
fn a_little_disorder_is_no_loss() {
    for algorithm in ALGORITHMS {
        for sack in [false, true] {
            let mut net = Network::established(config(algorithm, sack));
            let mut count = 0;
            net.rule = Box::new(move |_, segment| {
                count += u64::from(segment.len > 0);
                let late = segment.len > 0 && count % 10 == 0;
                if late { Fate::Late(Nanos(2_500)) } else { IN_TIME }
            });
            net.transfer(2_000 * MSS);
            assert!(net.ends[1].stats().disordered_received > 100);
            assert_eq!(net.ends[0].stats().retransmissions, 0, "{algorithm:?} {sack}");
        }
    }
}

/// A path that stands still for longer than a time-out, as with priority flow control, loses
/// nothing: with undo and time stamps the window comes back, and one segment was sent in vain.
/// Without stamps a pause that ends long after the time-out cannot be distinguished from a loss.
#[test]
fn a_pause_of_the_path_is_no_loss() {
    for algorithm in ALGORITHMS {
        for rtt_sampling in [RttSampling::OneSegment, RttSampling::EveryAck] {
            for undo in [false, true] {
                let config = Config { undo, rtt_sampling, ..config(algorithm, true) };
                let mut net = Network::established(config);
                net.pause = (Nanos::from_millis(1), Nanos::from_millis(31));
                net.transfer(2_000 * MSS);
                let stats = net.ends[0].stats();
                let what = format!("{algorithm:?} {rtt_sampling:?} {undo}: {stats:?}");
                let undone = undo && rtt_sampling == RttSampling::EveryAck;
                assert_eq!(stats.timeouts, 1, "{what}");
                assert_eq!(stats.timeouts_undone, u32::from(undone), "{what}");
                assert_eq!(stats.retransmissions == 1, undone, "{what}");
            }
        }
    }
}
