//! Losses: the cases of Fall and Floyd, time-outs, limited transmit, rescue.

use sluice_base::Nanos;

use super::network::{Network, drop_data};
use super::small::ALGORITHMS;
use crate::tcp::{Algorithm, Config};

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
