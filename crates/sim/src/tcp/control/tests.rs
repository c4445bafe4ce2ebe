use super::*;

pub(super) fn progress(acked: u64, una: u64, nxt: u64) -> Progress {
    Progress { now: Nanos::ZERO, acked, una, nxt, srtt: Nanos::ZERO }
}

fn config(algorithm: Algorithm, mss: u32) -> Config {
    Config { mss, ..Config::linux_2013(algorithm) }
}

/// The cases of ns-3, src/internet/test/tcp-vegas-test.cc: segment size, window and threshold
/// in segments, round trip time in ms if the least ever is 100 ms; then the window in segments and
/// the threshold in bytes. The threshold follows from the rules in that file, which are Linux's.
#[test]
fn ns3_vegas() {
    let table = [
        // Slow start, 2 queued > gamma: it ends at the expected window + 1.
        (1_446, 38, 40, 106, 36, 35 * 1_446),
        // Slow start, 1 queued: as NewReno.
        (536, 5, 10, 118, 6, 10 * 536),
        // 31 queued > beta.
        (346, 60, 40, 206, 59, 59 * 346 * 3 / 4),
        // 1 queued < alpha.
        (1_446, 15, 10, 106, 16, 16 * 1_446 * 3 / 4),
        // 2.1 queued: alpha <= 2.1 <= beta.
        (746, 20, 10, 112, 20, 20 * 746 * 3 / 4),
        // The fifth case of ns-3, 1.65 queued: less than alpha by the paper and by Linux. ns-3
        // rounds up to 2, and stays at 20.
        (746, 20, 10, 109, 21, 21 * 746 * 3 / 4),
    ];
    for (mss, cwnd, ssthresh, rtt, cwnd_after, ssthresh_after) in table {
        let config = config(Algorithm::Vegas, mss);
        let mss = u64::from(mss);
        let mut window = Window { cwnd: cwnd * mss, ssthresh: ssthresh * mss };
        let mut control = Control::new(Algorithm::Vegas);
        control.sampled(Nanos::from_millis(100), 0);
        control.reopened(mss);
        for _ in 0..3 {
            control.sampled(Nanos::from_millis(rtt), mss);
        }
        control.acknowledged(&mut window, &progress(mss, mss, 2 * mss), &config);
        let after = Window { cwnd: cwnd_after * mss, ssthresh: ssthresh_after };
        assert_eq!(window, after, "{mss} {rtt}");
    }
}

/// Brakmo and Peterson 1995: alone on a path with room, between alpha and beta segments wait.
#[test]
fn vegas_settles_between_alpha_and_beta() {
    let config = config(Algorithm::Vegas, 1_000);
    let (path, base) = (50_000_u64, 100_000_u64);
    let mut window = Window { cwnd: 10_000, ssthresh: u64::MAX };
    let mut control = Control::new(Algorithm::Vegas);
    control.sampled(Nanos(base), 0);
    let mut una = 0;
    for round in 0..200 {
        let flight = window.cwnd;
        // Segments that do not fit on the path wait, and add their time.
        let rtt = Nanos(base * flight.max(path) / path);
        let nxt = una + flight;
        while una < nxt {
            una += 1_000;
            control.sampled(rtt, una);
            control.acknowledged(&mut window, &progress(1_000, una, nxt + 1_000), &config);
        }
        let queued = (window.cwnd.saturating_sub(path)) / 1_000;
        assert!(round < 100 || (1..=5).contains(&queued), "{queued} in round {round}");
    }
}

/// RFC 5681 equation 4: `ssthresh = max(FlightSize / 2, 2 SMSS)`.
#[test]
fn rfc5681_threshold() {
    for algorithm in [Algorithm::NewReno, Algorithm::Vegas] {
        let config = config(algorithm, 1_000);
        for (flight, expected) in [(20_000, 10_000), (4_001, 2_000), (3_000, 2_000), (0, 2_000)] {
            let window = Window { cwnd: flight, ssthresh: u64::MAX };
            assert_eq!(Control::new(algorithm).reduce(&window, flight, &config), expected);
        }
    }
}

/// RFC 3465 clause 2.2: an ACK counts for L segments at most in slow start; and slow start stops
/// at the threshold, the rest counts for avoidance.
#[test]
fn slow_start_counts_bytes() {
    let linux = config(Algorithm::NewReno, 1_000);
    let freebsd = Config { abc_limit: 2, ..linux.clone() };
    for (config, acked, cwnd) in
        [(&linux, 5_000, 15_000), (&freebsd, 5_000, 12_000), (&linux, 9_000, 16_000)]
    {
        let mut window = Window { cwnd: 10_000, ssthresh: 16_000 };
        Control::new(Algorithm::NewReno).acknowledged(&mut window, &progress(acked, 0, 0), config);
        assert_eq!(window.cwnd, cwnd);
    }
}

/// RFC 5681 clause 3.1: one segment more per round trip, for any size of acknowledgements.
#[test]
fn avoidance_adds_a_segment_per_window() {
    let config = config(Algorithm::NewReno, 1_000);
    for step in [500, 1_000, 2_000, 3_000] {
        let mut window = Window { cwnd: 12_000, ssthresh: 12_000 };
        let mut control = Control::new(Algorithm::NewReno);
        for expected in 13..20 {
            let mut acked = 0;
            while acked < (expected - 1) * 1_000 {
                control.acknowledged(&mut window, &progress(step, 0, 0), &config);
                acked += step;
            }
            assert!(window.cwnd.abs_diff(expected * 1_000) <= 1_000);
        }
    }
}
