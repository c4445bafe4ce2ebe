//! The congestion window after one loss, by its trace: CUBIC's curve and its Reno-friendly region,
//! and the straight line of Reno.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::trace::{Kinds, Sample, Trace};
use sluice_sim::workload::{Gaps, Source, Sources};
use sluice_sim::world::{World, WorldConfig};

use crate::network::{ACK_WIRE, Chain, FULL_WIRE, Flows, tcp};

/// C of RFC 9438 clause 4.1, in segments per second cubed.
const C: f64 = 0.4;
/// beta of clause 4.6.
const BETA: f64 = 0.7;
/// Interval of the trace.
const STEP: Nanos = Nanos::from_millis(1);
/// A path with one flow, from host 0 to host 2, and a neighbour of the sender.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// The delay of the middle link; those of the other two are 0.5 ms.
    delay: Nanos,
    /// The window at which slow start ends, in segments: less than the path holds.
    window: u64,
    /// Time at which the window is disturbed.
    loss: Nanos,
}

/// 10 ms: the Reno-friendly region of CUBIC.
const SHORT: Path =
    Path { delay: Nanos::from_millis(4), window: 30, loss: Nanos::from_millis(200) };

/// 100 ms: the curve of CUBIC.
const LONG: Path =
    Path { delay: Nanos::from_millis(49), window: 500, loss: Nanos::from_millis(3_030) };

/// The window of a flow after its one loss.
#[derive(Debug)]
struct Seen {
    /// The window before the loss, and after it.
    before: f64,
    after: f64,
    /// Seconds since the recovery's end, one round trip after the loss, and the window in segments.
    windows: Vec<(f64, f64)>,
}

impl Path {
    /// The least round trip of a full segment and its acknowledgement, in seconds.
    fn round(&self) -> f64 {
        let wire = (FULL_WIRE + ACK_WIRE) as f64 * 8.0 * (1.0 / 9e7 + 1.0 / 1e8 + 1.0 / 1e9);
        let delays = self.delay.0 as f64 + 2.0 * 500_000.0;
        wire + 2.0 * delays / 1e9
    }

    /// Returns two pairs of hosts around two switches. The flow's sender is slower than the middle
    /// link, so that the flow alone has its queue at its own card and loses nothing. At the same
    /// rate its segments would come just when the full queue has a place again, and none be lost.
    fn config(&self) -> WorldConfig {
        let (rate, delay) = (BitRate::from_gbps(1), Nanos(500_000));
        let chain = Chain { pairs: 2, links: 3, rate, delay, buffer: ByteCount(15_000) };
        let mut config = chain.config();
        let cables = &mut config.topology.cables;
        cables[0].rate = BitRate::from_mbps(90);
        cables[4].rate = BitRate::from_mbps(100);
        cables[4].delay = self.delay;
        config
    }

    /// Runs one flow for `seconds`. The neighbour sends a burst of datagrams that fills the middle
    /// link's buffer for a moment: the flow loses a few segments of one window.
    fn run(&self, algorithm: Algorithm, seconds: u64) -> Seen {
        let tcp = Config { initial_ssthresh: self.window * 1_448, ..(*tcp(algorithm)).clone() };
        let burst = Source {
            from: 1,
            to: 3,
            bytes: 1_472,
            gaps: Gaps::Constant,
            gap: Nanos(FULL_WIRE * 8),
            first: self.loss,
            datagrams: 120,
            priority: Priority::ZERO,
        };
        let end = Nanos::from_millis(seconds * 1_000);
        let mut flow = Flows::new(Arc::new(tcp), vec![(0, 2)], end.after(STEP));
        let mut burst = Sources::new(vec![burst], 1);
        let mut world = World::new(&self.config()).expect("a chain that works");
        let mut windows = Vec::new();
        let kinds = Kinds { window: true, ..Kinds::default() };
        let mut trace = Trace::new(kinds, STEP, |sample: &Sample| {
            if let Sample::Flow(flow) = sample
                && let Some(window) = flow.window
            {
                windows.push((flow.at.0 as f64 / 1e9, window as f64 / 1_448.0));
            }
        });
        world.run_observed(&mut [&mut flow, &mut burst], end, STEP, &mut trace);
        let stats = world.tcp_stats(flow.senders[0]);
        let (losses, recoveries) = (stats.retransmissions, stats.fast_recoveries);
        println!("{algorithm:?}: {losses} segments sent again in {recoveries} recoveries");
        assert!(losses > 0, "the burst met no segment");
        assert_eq!((recoveries, stats.timeouts), (1, 0));
        self.seen(&windows)
    }

    /// Finds the loss in the trace.
    fn seen(&self, windows: &[(f64, f64)]) -> Seen {
        let fell = windows.windows(2).position(|pair| pair[1].1 < 0.9 * pair[0].1);
        let fell = fell.expect("a loss") + 1;
        let (at, after) = windows[fell];
        let begin = at - STEP.0 as f64 / 2e9 + self.round();
        let later = windows.iter().filter(|(at, _)| *at > begin);
        Seen {
            before: windows[fell - 1].1,
            after,
            windows: later.map(|(at, window)| (at - begin, *window)).collect(),
        }
    }
}

impl Seen {
    /// Holds the window against `form`, the window at a time since the recovery; returns the
    /// largest difference.
    fn check(&self, to: f64, form: impl Fn(f64) -> f64) -> f64 {
        let within = self.windows.iter().filter(|(at, _)| *at <= to);
        let off = within.map(|(at, window)| (window - form(*at)).abs());
        let most = off.fold(0.0, f64::max);
        println!(
            "window {:.1} before the loss, {:.1} after; {most:.2} off at most in {to:.1} s",
            self.before, self.after
        );
        most
    }

    /// Returns the segments by which the window grows in a round trip, by least squares over a
    /// span: it grows in steps of a segment.
    fn slope(&self, path: &Path, from: f64, to: f64) -> f64 {
        let within = || self.windows.iter().filter(|(at, _)| (from..=to).contains(at));
        let count = within().count() as f64;
        let mean_of = |of: fn(&(f64, f64)) -> f64| within().map(of).sum::<f64>() / count;
        let (at, window) = (mean_of(|point| point.0), mean_of(|point| point.1));
        let both = within().map(|point| (point.0 - at) * (point.1 - window)).sum::<f64>();
        let squares = within().map(|point| (point.0 - at).powi(2)).sum::<f64>();
        let slope = both / squares * path.round();
        println!("{slope:.3} segments a round from {from:.2} to {to:.2} s");
        slope
    }

    /// The time K of clause 4.2, at which the window is what it was before the loss.
    fn inflection(&self) -> f64 {
        ((self.before - self.after) / C).cbrt()
    }
}

/// RFC 9438 clause 4.2: `W(t) = C (t - K)^3 + W_max` with `K = cbrt((W_max - cwnd_epoch) / C)`,
/// both before and behind the inflection; clause 4.6: the window falls to 0.7 of itself. The round
/// trip of 100 ms makes the Reno-friendly window slower than that all the time.
#[test]
fn cubic_window_follows_its_curve() {
    let seen = LONG.run(Algorithm::Cubic, 18);
    let fall = seen.after / seen.before;
    assert!((fall - BETA).abs() < 0.005, "{fall:.4} of the window is left");
    let k = seen.inflection();
    let until = 1.8 * k;
    let last = seen.windows.last().expect("samples").0;
    assert!(until < last, "K is {k:.2} s, and the trace has {last:.2} s");
    let off = seen.check(until, |t| C * (t - k).powi(3) + seen.before);
    assert!(off < 0.01 * seen.before, "{off:.2} segments off the curve");
}

/// Clause 4.3: over a round trip of 10 ms the window grows by `3 (1 - beta) / (1 + beta)` segments
/// a round until it is what it was before the loss, then by 1, as Reno's.
#[test]
fn cubic_window_grows_reno_friendly() {
    let seen = SHORT.run(Algorithm::Cubic, 2);
    let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
    let round = SHORT.round();
    let reached = (seen.before - seen.after) / alpha * round;
    let k = seen.inflection();
    let below = C * (reached - k).powi(3) + seen.before;
    assert!(below < 0.9 * seen.before, "the curve is far below: {below:.1}");
    let off = seen.check(reached, |t| seen.after + alpha * t / round);
    assert!(off < 2.0, "{off:.2} segments off the line");
    let slope = seen.slope(&SHORT, 0.0, reached);
    assert!((slope / alpha - 1.0).abs() < 0.06, "{slope:.3} of {alpha:.3} segments a round");
    let later = seen.slope(&SHORT, reached + 5.0 * round, reached + 20.0 * round);
    assert!((later - 1.0).abs() < 0.06, "{later:.3} segments a round");
}

/// RFC 5681 clause 3.1 and equation 4: half of the window, then a segment more each round.
#[test]
fn new_reno_window_halves_and_grows_linearly() {
    let seen = SHORT.run(Algorithm::NewReno, 2);
    let fall = seen.after / seen.before;
    assert!((fall - 0.5).abs() < 0.02, "{fall:.4} of the window is left");
    let round = SHORT.round();
    let until = (seen.before - seen.after) * round;
    let off = seen.check(until, |t| seen.after + t / round);
    assert!(off < 3.0, "{off:.2} segments off the line");
    let slope = seen.slope(&SHORT, 0.0, until);
    assert!((slope - 1.0).abs() < 0.06, "{slope:.3} segments a round");
}
