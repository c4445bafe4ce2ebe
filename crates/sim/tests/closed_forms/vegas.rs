//! One flow fills an idle link, under every congestion control; the queue of Vegas.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos};
use sluice_sim::tcp::{Algorithm, Config};

use crate::network::{Chain, FULL_WIRE, Flows, tcp};

const EVERY: [Algorithm; 3] = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Vegas];

/// Steps of a run, and the first one that counts.
const STEPS: u64 = 20;
const WARM: usize = 4;

fn chain(pairs: u32, links: u32, gbps: u64) -> Chain {
    Chain {
        pairs,
        links,
        rate: BitRate::from_gbps(gbps),
        delay: Nanos::from_micros(1),
        buffer: ByteCount(1_000_000),
    }
}

/// Runs flows over a chain, and returns the part of its goodput that they have.
fn part(chain: &Chain, flows: &mut Flows) -> f64 {
    flows.run(chain, STEPS);
    let last = flows.seen.len() - 1;
    flows.rate(WARM, last) / chain.goodput()
}

/// Runs one flow of every kind over every chain, prepared by `with`.
fn each_fills(algorithms: &[Algorithm], with: impl Fn(&mut Flows)) {
    let mut wrong = Vec::new();
    for links in [2, 6] {
        for gbps in [1, 10, 100] {
            for &algorithm in algorithms {
                let chain = chain(1, links, gbps);
                let step = Nanos(25_000_000 / gbps);
                let mut flows = Flows::new(tcp(algorithm), vec![(0, 1)], step);
                with(&mut flows);
                let part = part(&chain, &mut flows);
                println!("{links} links, {gbps} Gbit/s, {algorithm:?}: {part:.4}");
                if !(0.98..1.001).contains(&part) {
                    wrong.push((links, gbps, algorithm, part));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Headers leave 1,448 of 1,538 bytes for payload: 9.41 Gbit/s of 10.
#[test]
fn one_flow_fills_an_idle_link() {
    each_fills(&EVERY, |_| {});
}

/// A request goes ahead of the data: its round trip is shorter than that of a full segment, as the
/// one of a SYN is.
#[test]
fn short_segment_ahead_leaves_rate_full() {
    each_fills(&EVERY, |flows| flows.first = 100);
}

/// Brakmo and Peterson 1995: in equilibrium alpha (2) to beta (4) packets of each flow wait. Flows
/// that begin together have seen the path without a queue before the slow start of all has filled
/// it.
#[test]
fn vegas_queue_settles_between_alpha_and_beta() {
    for (pairs, links, gbps) in
        [(1, 2, 10), (1, 6, 10), (1, 6, 100), (2, 3, 10), (4, 3, 10), (8, 6, 10)]
    {
        let chain = chain(pairs, links, gbps);
        let ends = (0..pairs).map(|at| (at, at + pairs)).collect();
        let tcp = Arc::new(Config { ack_every: 1, ..(*tcp(Algorithm::Vegas)).clone() });
        let mut flows = Flows::new(tcp, ends, Nanos(25_000_000 / gbps));
        let part = part(&chain, &mut flows);
        let last = flows.seen.last().expect("steps");
        let windows = last.iter().map(|(_, cwnd)| cwnd / 1_448).sum::<u64>();
        let queued = (windows as f64 - chain.path_segments()) / f64::from(pairs);
        println!("{pairs} flows, {links} links, {gbps} Gbit/s: {queued:.2} each, {part:.4}");
        assert!((0.98..1.001).contains(&part), "{part}");
        // A time stamp has a step of 64 ns, and the time of a round and the least ever are two.
        let slack = 128.0 * chain.rate.0 as f64 / 8e9 / FULL_WIRE as f64;
        assert!((2.0 - slack..=4.0 + slack).contains(&queued), "{queued}");
    }
}
