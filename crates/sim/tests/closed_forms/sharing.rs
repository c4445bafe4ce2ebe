//! Flows that share one link: Jain's index, and the shares of flows with different round trips.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::LinkId;
use sluice_sim::trace::{Kinds, Sample, Trace};
use sluice_sim::world::{World, WorldConfig};

use crate::network::{Chain, Flows, tcp};

/// Rates of flows and the mean wait at the link that they share.
#[derive(Debug)]
struct Shares {
    /// Bits of payload a second, by flow.
    rates: Vec<f64>,
    /// Mean wait in seconds.
    wait: f64,
}

impl Shares {
    /// Jain, Chiu and Hawe 1984: `(sum x)^2 / (n sum x^2)`; 1 if all have the same.
    fn jain(&self) -> f64 {
        let sum: f64 = self.rates.iter().sum();
        let squares: f64 = self.rates.iter().map(|rate| rate * rate).sum();
        sum * sum / (self.rates.len() as f64 * squares)
    }
}

/// Runs an endless flow from host `n` to host `n + pairs` for each pair, and takes the means of the
/// samples after `warm` seconds.
fn share(
    config: &WorldConfig,
    algorithm: Algorithm,
    shared: LinkId,
    (warm, seconds): (u64, u64),
) -> Shares {
    let pairs = config.topology.hosts / 2;
    let every = Nanos::from_millis(100);
    let tcp = Config { initial_ssthresh: 64 * 1_448, ..(*tcp(algorithm)).clone() };
    let ends = (0..pairs).map(|at| (at, at + pairs)).collect();
    let end = Nanos::from_millis(seconds * 1_000);
    let mut flows = Flows::new(Arc::new(tcp), ends, end.after(every));
    let mut world = World::new(config).expect("a chain that works");
    let mut rates = vec![0.0; pairs as usize];
    let (mut frames, mut wait) = (0, 0);
    let kinds = Kinds { rate: true, wait: true, ..Kinds::default() };
    let begin = Nanos::from_millis(warm * 1_000);
    let mut trace = Trace::new(kinds, every, |sample: &Sample| match sample {
        Sample::Flow(flow) if flow.at > begin => {
            rates[flow.from as usize] += flow.rate.unwrap_or(0) as f64;
        }
        Sample::Link(link) if link.at > begin && link.link == shared => {
            let waits = link.wait.unwrap_or_default();
            (frames, wait) = (frames + waits.frames, wait + waits.sum.0);
        }
        _ => {}
    });
    world.run_observed(&mut [&mut flows], end, every, &mut trace);
    let samples = (seconds - warm) as f64 * 10.0;
    let wait = wait as f64 / frames as f64 / 1e9;
    Shares { rates: rates.iter().map(|sum| sum / samples).collect(), wait }
}

/// Chiu and Jain 1989: additive increase and multiplicative decrease lead to equal shares. Vegas is
/// left out: its flows keep two to four packets each, so that shares differ by up to two.
#[test]
fn flows_of_one_kind_share_equally() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        for pairs in [2, 8] {
            let rate = BitRate::from_mbps(200);
            let delay = Nanos::from_micros(500);
            let chain = Chain { pairs, links: 3, rate, delay, buffer: ByteCount(150_000) };
            let config = chain.config();
            let shared = LinkId(4 * pairs);
            let shares = share(&config, algorithm, shared, (5, 30));
            let (jain, all) = (shares.jain(), shares.rates.iter().sum::<f64>());
            let full = all / 8.0 / chain.goodput();
            println!("{pairs} flows of {algorithm:?}: Jain {jain:.4}, {full:.3} of the link");
            assert!(jain >= 0.95, "{pairs} flows of {algorithm:?}: {:?}", shares.rates);
            assert!((0.9..1.001).contains(&full), "{full} of the link");
        }
    }
}

/// Returns the exponent `a` in `rate_0 / rate_1 = (rtt_1 / rtt_0)^a` of two flows, whose round
/// trips without a queue are 80 and 160 ms.
fn exponent(algorithm: Algorithm) -> f64 {
    let (rate, delay) = (BitRate::from_gbps(1), Nanos::from_millis(1));
    let buffer = ByteCount(150_000);
    let mut config = Chain { pairs: 2, links: 3, rate, delay, buffer }.config();
    let cables = &mut config.topology.cables;
    cables[0].delay = Nanos::from_millis(29);
    cables[1].delay = Nanos::from_millis(69);
    cables[4].delay = Nanos::from_millis(10);
    cables[4].rate = BitRate::from_mbps(50);
    let shares = share(&config, algorithm, LinkId(8), (40, 240));
    let rtt = |least: f64| least + shares.wait;
    let ratio = shares.rates[0] / shares.rates[1];
    let exponent = ratio.ln() / (rtt(0.16) / rtt(0.08)).ln();
    println!(
        "{algorithm:?}: shares {:.1} and {:.1} Mbit/s, ratio {ratio:.2}, mean wait {:.1} ms, \
         exponent {exponent:.2}",
        shares.rates[0] / 1e6,
        shares.rates[1] / 1e6,
        shares.wait * 1e3,
    );
    exponent
}

/// Lakshman and Madhow 1997: with a queue that drops its tail the share of Reno goes by the round
/// trip to the power of -1 to -2; the latter if both lose at the same time. RFC 9438 clause 3.3:
/// CUBIC's goes by the power of -1, since its window does not hang on the round trip.
#[test]
fn share_falls_with_round_trip() {
    let reno = exponent(Algorithm::NewReno);
    let cubic = exponent(Algorithm::Cubic);
    assert!((1.0..=2.2).contains(&reno), "Reno: {reno:.2}");
    assert!((0.7..=1.4).contains(&cubic), "CUBIC: {cubic:.2}");
    assert!(cubic < reno, "CUBIC {cubic:.2}, Reno {reno:.2}");
}
