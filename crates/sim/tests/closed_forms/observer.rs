//! A run is the same with an observer and without.

use sluice_base::{BitRate, ByteCount, Nanos, Priority};
use sluice_sim::tcp::Algorithm;
use sluice_sim::trace::{Kinds, Sample, Trace};
use sluice_sim::workload::{Gaps, Source, SourceCounts, Sources};
use sluice_sim::world::{Summary, World};

use crate::network::{Chain, Flows, tcp};

/// Time of the run.
const END: Nanos = Nanos::from_millis(30);

/// Runs four flows and a source over a link that loses frames; returns all that can be counted.
fn run(observed: Option<&mut Vec<Sample>>) -> (Summary, Vec<u64>, SourceCounts) {
    let (rate, delay) = (BitRate::from_gbps(1), Nanos::from_micros(20));
    let chain = Chain { pairs: 4, links: 3, rate, delay, buffer: ByteCount(60_000) };
    let ends = (0..4).map(|at| (at, at + 4)).collect();
    let mut flows = Flows::new(tcp(Algorithm::Cubic), ends, END.after(END));
    let source = Source {
        from: 0,
        to: 5,
        bytes: 700,
        gaps: Gaps::Poisson,
        gap: Nanos::from_micros(40),
        first: Nanos::ZERO,
        datagrams: 500,
        priority: Priority::ZERO,
    };
    let mut sources = Sources::new(vec![source], 3);
    let mut world = World::new(&chain.config()).expect("a chain that works");
    match observed {
        Some(samples) => {
            let kinds = Kinds { window: true, rate: true, queue: true, wait: true };
            let every = Nanos::from_micros(7);
            let mut trace = Trace::new(kinds, every, |sample: &Sample| samples.push(*sample));
            world.run_observed(&mut [&mut flows, &mut sources], END, every, &mut trace);
        }
        None => {
            world.run_all(&mut [&mut flows, &mut sources], END);
        }
    }
    let delivered = flows.senders.iter().map(|id| world.delivered(id.peer())).collect();
    (world.summary(), delivered, sources.total(&world))
}

#[test]
fn observed_run_equals_plain_run() {
    let mut samples = Vec::new();
    let (plain, observed) = (run(None), run(Some(&mut samples)));
    assert_eq!(plain, observed);
    assert!(plain.0.drops_congestion > 0 && plain.2.arrived > 400, "{plain:?}");
    let rates = samples.iter().filter_map(|sample| match sample {
        Sample::Flow(flow) => flow.rate,
        Sample::Link(_) => None,
    });
    // 7 us of each sample; the last microseconds of the run have none.
    let bytes = rates.map(|rate| rate as f64 * 7e-6 / 8.0).sum::<f64>();
    let expected = (plain.1.iter().sum::<u64>() + plain.2.arrived * 700) as f64;
    assert!((0.998..=1.0).contains(&(bytes / expected)), "{bytes} of {expected} bytes sampled");
}
