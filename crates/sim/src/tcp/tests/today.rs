//! A Linux of today: losses found by time, probes of a lost tail (RFC 8985).

use sluice_base::Nanos;

use super::network::{Network, drop_data};
use crate::tcp::{Algorithm, Config};

const MSS: u64 = 1_000;

fn config(profile: fn(Algorithm) -> Config) -> Config {
    Config { mss: 1_000, initial_window: 20, ack_every: 1, ..profile(Algorithm::NewReno) }
}

/// Sends 100 segments, of which these are lost; the network and the time until all arrived.
fn transfer(config: Config, lost: &[(u64, u32)]) -> (Network, Nanos) {
    let mut net = Network::established(config);
    net.rule = drop_data(lost.iter().map(|&(at, times)| (at * MSS, times)).collect());
    let done = net.transfer(100 * MSS);
    (net, done)
}

#[test]
fn lost_tail_is_probed_not_timed_out() {
    let tail = [(97, 1), (98, 1), (99, 1)];
    let (net, done) = transfer(config(Config::linux_now), &tail);
    let stats = net.ends[0].stats();
    assert_eq!((stats.timeouts, net.ends[0].tail_probes(), stats.fast_recoveries), (0, 1, 1));
    // The probe repeats the last segment; the other two follow it.
    assert_eq!(stats.retransmissions, 3);
    // Two round trips of 0.1 ms and 2 ms are a tick of 4 ms, after the last acknowledgement.
    assert!((4_000_000..6_000_000).contains(&done.0), "{done}");
    let (net, done) = transfer(config(Config::linux_2013), &tail);
    assert_eq!((net.ends[0].stats().timeouts, net.ends[0].tail_probes()), (1, 0));
    assert!(done > Nanos::from_millis(200), "{done}");
}

#[test]
fn lost_last_segment_repaired_by_its_probe() {
    let (mut net, done) = transfer(config(Config::linux_now), &[(99, 1)]);
    let stats = *net.ends[0].stats();
    assert_eq!((stats.timeouts, net.ends[0].tail_probes(), stats.retransmissions), (0, 1, 1));
    assert!(done < Nanos::from_millis(210), "{done}");
    // The loss counts as one when the next acknowledgement shows it (clause 7.4.2).
    let before = net.ends[0].cwnd();
    assert_eq!(stats.fast_recoveries, 0);
    net.transfer(20 * MSS);
    assert!(net.ends[0].cwnd() < before, "{} of {before}", net.ends[0].cwnd());
}

#[test]
fn few_duplicates_are_enough_after_a_window() {
    // Two segments follow the lost one: no third duplicate.
    let (net, done) = transfer(config(Config::linux_now), &[(97, 1)]);
    let stats = net.ends[0].stats();
    assert_eq!((stats.timeouts, net.ends[0].tail_probes(), stats.fast_recoveries), (0, 0, 1));
    // A quarter of 0.1 ms and 2 ms are a tick of 4 ms.
    assert!((4_000_000..6_000_000).contains(&done.0), "{done}");
}

#[test]
fn lost_retransmission_is_sent_again() {
    let (net, done) = transfer(config(Config::linux_now), &[(30, 2)]);
    let stats = net.ends[0].stats();
    let again = stats.retransmissions - u64::from(stats.rescues);
    assert_eq!((stats.timeouts, again), (0, 2), "{stats:?}");
    assert!(done < Nanos::from_millis(5), "{done}");
    let (net, _) = transfer(config(Config::linux_2013), &[(30, 2)]);
    assert_eq!(net.ends[0].stats().timeouts, 1);
}

#[test]
fn no_loss_no_probe() {
    let (net, _) = transfer(config(Config::linux_now), &[]);
    let stats = net.ends[0].stats();
    assert_eq!((net.ends[0].tail_probes(), stats.retransmissions, stats.timeouts), (0, 0, 0));
}

#[test]
fn probe_that_was_not_needed_costs_nothing() {
    let config = Config { rto_min: Nanos::from_millis(5), ..config(Config::linux_now) };
    let mut net = Network::established(config);
    net.transfer(50 * MSS);
    let before = net.ends[0].cwnd();
    // All acknowledgements wait for 6 ms: longer than the probe, shorter than the time-out.
    net.pause = (net.now, net.now.after(Nanos::from_millis(6)));
    net.transfer(5 * MSS);
    let stats = *net.ends[0].stats();
    assert_eq!((net.ends[0].tail_probes(), stats.timeouts), (1, 0), "{stats:?}");
    net.pause = (Nanos::MAX, Nanos::MAX);
    net.transfer(5 * MSS);
    assert!(net.ends[0].cwnd() >= before, "{} of {before}", net.ends[0].cwnd());
}
