use proptest::prelude::*;

use super::*;
use crate::tcp::Algorithm;

const MSS: u64 = 1_500;

fn config() -> Config {
    Config {
        mss: 1_500,
        // RFC 8312 clause 5.1 derives the averages without fast convergence.
        cubic_fast_convergence: false,
        ..Config::linux_2013(Algorithm::Cubic)
    }
}

/// One flow that loses every `period`-th segment: the average window in segments over many losses.
/// It begins with a loss at `w_max` segments: regular losses let the window come to rest only after
/// hundreds of them, so it begins near the rest and must stay there.
fn average_window(rtt_ms: u64, period: u64, w_max: u64) -> u64 {
    let config = config();
    let rtt = Nanos::from_millis(rtt_ms);
    let mut cubic = Cubic::default();
    let mut window = Window { cwnd: w_max * MSS, ssthresh: 0 };
    window.ssthresh = cubic.reduce(&window, window.cwnd, &config);
    window.cwnd = window.ssthresh;
    let (mut now, mut until_loss, mut losses) = (Nanos::ZERO, period, 0);
    let (mut sum, mut rounds) = (0, 0);
    while losses < 60 {
        let segments = window.cwnd / MSS;
        if losses >= 20 {
            sum += window.cwnd;
            rounds += 1;
        }
        let mut lost = false;
        for i in 0..segments {
            until_loss -= 1;
            if until_loss == 0 {
                until_loss = period;
                losses += 1;
                lost = true;
            }
            if lost {
                // Segments after the loss still arrive, but let nothing grow.
                continue;
            }
            let ack = Progress {
                now: now.after(Nanos(rtt.0 * i / segments)),
                acked: MSS,
                una: 0,
                nxt: 0,
                srtt: rtt,
            };
            cubic.acknowledged(&mut window, &ack, &config);
        }
        if lost {
            window.ssthresh = cubic.reduce(&window, window.cwnd, &config);
            window.cwnd = window.ssthresh;
        }
        now = now.after(rtt);
    }
    (sum + rounds * MSS / 2) / (rounds * MSS)
}

/// RFC 8312 clause 5.1 (kept in RFC 9438 clause 5.1), tables 1 and 2, column CUBIC with C = 0.4:
/// round trip time in ms, segments per loss, average window in segments. If the Reno-friendly
/// window is the larger one, the table gives that. Tolerance 2 %, a segment at least: the table is
/// of a fluid model, here windows are whole segments and a loss is answered at the end of its
/// round.
#[test]
fn rfc8312_average_windows() {
    let table = [
        (100, 100, 12),
        (100, 1_000, 38),
        (100, 10_000, 187),
        (100, 100_000, 1_054),
        (100, 1_000_000, 5_926),
        (10, 100, 12),
        (10, 1_000, 38),
        (10, 10_000, 120),
        (10, 100_000, 379),
    ];
    for (rtt_ms, period, expected) in table {
        // A cycle from beta W_max to W_max averages (3 + beta) / 4 of it.
        let average = average_window(rtt_ms, period, expected * 40 / 37);
        let tolerance = (expected * 2 / 100).max(1);
        assert!(average.abs_diff(expected) <= tolerance, "{rtt_ms} ms 1/{period}: {average}");
    }
}

/// RFC 9438 clauses 4.6 and 4.7.
#[test]
fn reduction_and_fast_convergence() {
    let config = Config { cubic_fast_convergence: true, ..config() };
    let mut cubic = Cubic::default();
    let window = Window { cwnd: 1_024_000, ssthresh: 0 };
    assert_eq!(cubic.reduce(&window, window.cwnd, &config), 717_000);
    assert_eq!(cubic.w_max, 1_024_000);
    let window = Window { cwnd: 1_000_000, ssthresh: 0 };
    cubic.reduce(&window, window.cwnd, &config);
    assert_eq!(cubic.w_max, 1_000_000 * 1_741 / 2_048, "it yields to a newcomer");
    assert_eq!(cubic.prior, 1_000_000);
}

/// Clause 4.2: at the start of the epoch the curve is at the window, after K at W_max.
#[test]
fn the_curve_passes_its_points() {
    for (w_max, cwnd) in [(1_000, 700), (100, 70), (20, 14), (5_000, 100)] {
        let mut cubic = Cubic { w_max: w_max * MSS, ..Cubic::default() };
        cubic.start(cwnd * MSS, Nanos::ZERO, MSS);
        assert!(cubic.curve(0, MSS).abs_diff(cwnd * MSS) <= MSS / 10);
        assert_eq!(cubic.curve(cubic.k, MSS), w_max * MSS);
        assert!(cubic.curve(2 * cubic.k, MSS).abs_diff((2 * w_max - cwnd) * MSS) <= MSS / 10);
    }
}

/// Clause 5.8: a pause moves the epoch, and without one it is harmless.
#[test]
fn a_pause_does_not_climb() {
    let mut cubic = Cubic::default();
    cubic.idle(Nanos(5));
    assert_eq!(cubic.epoch, Nanos::MAX);
    cubic.start(MSS, Nanos(10), MSS);
    cubic.idle(Nanos(5));
    assert_eq!(cubic.epoch, Nanos(15));
}

/// RFC 9438 clause 4.3: the friendly window grows by alpha = 3 (1 - beta) / (1 + beta) = 0.529
/// segments per round until it reaches the window before the loss, then by one.
#[test]
fn the_friendly_window() {
    let config = config();
    assert_eq!(friendly_alpha(&config), 541, "0.529 in 1024ths");
    let window = Window { cwnd: 100 * MSS, ssthresh: 0 };
    let mut cubic = Cubic::default();
    let reduced = cubic.reduce(&window, window.cwnd, &config);
    cubic.start(reduced, Nanos::ZERO, MSS);
    // The price of a segment is held at one window, so that rounds can be counted.
    cubic.prior = u64::MAX;
    let before = cubic.friendly;
    for _ in 0..1_000 {
        cubic.grow_friendly(reduced, reduced, &config);
    }
    assert_eq!((cubic.friendly - before) / MSS, 528);
    cubic.prior = cubic.friendly;
    let before = cubic.friendly;
    for _ in 0..100 {
        cubic.grow_friendly(reduced, reduced, &config);
    }
    assert_eq!(cubic.friendly - before, 100 * MSS);
}

/// RFC 9438 clause 4.4: the window aims at the curve one round trip ahead, at most at half as much
/// again.
#[test]
fn the_window_aims_a_round_trip_ahead() {
    let config = config();
    let after_a_window = |srtt: Nanos| {
        let w_max = 1_000 * MSS;
        let mut cubic = Cubic { w_max, prior: w_max, ..Cubic::default() };
        let mut window = Window { cwnd: 700 * MSS, ssthresh: 0 };
        let ack = Progress { now: Nanos::ZERO, acked: 700 * MSS, una: 0, nxt: 0, srtt };
        cubic.acknowledged(&mut window, &ack, &config);
        window.cwnd / MSS
    };
    assert_eq!(after_a_window(Nanos::ZERO), 700);
    // K is cbrt(300 / 0.4) = 9.086 s; one second ahead the curve is at 1000 - 0.4 * 8.086^3.
    assert_eq!(after_a_window(Nanos::from_millis(1_000)), 788);
    assert_eq!(after_a_window(Nanos::from_millis(60_000)), 1_050);
}

proptest! {
    #[test]
    fn cube_roots(cube in 0..1_u128 << 120) {
        let root = u128::from(cube_root(cube));
        prop_assert!(root * root * root <= cube);
        prop_assert!((root + 1) * (root + 1) * (root + 1) > cube);
    }

    /// The integers against the formula in floating point.
    #[test]
    fn the_curve_against_floats(
        w_max in 2..100_000_u64,
        part in 1..1_024_u64,
        nanos in 0..100_000_000_000_u64,
    ) {
        #[expect(clippy::cast_precision_loss, reason = "the reference is approximate")]
        let float = |x: u64| x as f64;
        let (w_max, cwnd) = (w_max * MSS, (w_max * part / 1_024).max(1) * MSS);
        let mut cubic = Cubic { w_max, ..Cubic::default() };
        cubic.start(cwnd, Nanos::ZERO, MSS);
        let c = float(C) / 1_024.0;
        let k = (float(w_max.saturating_sub(cwnd)) / float(MSS) / c).cbrt();
        let t = float(nanos) / 1e9;
        let expected = c * (t - k).powi(3) * float(MSS) + float(w_max);
        let expected = expected.clamp(0.0, float(WINDOW_MAX));
        let curve = float(cubic.curve(units(Nanos(nanos)), MSS));
        let slack = expected / 1e4 + float(MSS);
        prop_assert!((curve - expected).abs() <= slack, "{curve} {expected}");
    }
}
