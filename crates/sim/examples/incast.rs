//! 16 hosts answer one at the same time, over switches that drop and over switches that pause.
use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::workload::{Aggregate, Aggregating};
use sluice_sim::{events::Ties, net::*, tcp, topology::FatTree, world::*};

fn main() {
    for (policy, lossless) in [("drop", PriorityMask::NONE), ("pause", PriorityMask::ALL)] {
        let (buffering, frame_max) = (Buffering::Output, 1514);
        let (buffer, xoff, xon) = (ByteCount(150_000), ByteCount(100_000), ByteCount(90_000));
        let (latency, pause_response, overhead, mark) = (Nanos(500), Nanos(1_000), 24, None);
        #[rustfmt::skip]
        let net = NetConfig { lossless, buffer, buffering, xoff, xon, mark, latency,
            pause_response, overhead, frame_max };
        let topology = FatTree::racks_256(BitRate::from_gbps(10), Nanos(1_000)).build();
        let host = Nanos::from_micros(10);
        #[rustfmt::skip]
        let config = WorldConfig { topology, net, overlay: None, send_latency: host,
            receive_latency: host, seed: 1, ties: Ties::Fifo };
        let mut work = Aggregating::new(Aggregate {
            tcp: Arc::new(tcp::Config::freebsd9(tcp::Algorithm::NewReno)),
            aggregator: 0,
            workers: (0..16).map(|worker| 16 + 15 * worker).collect(),
            request_bytes: 64,
            response_bytes: 100_000,
            queries: 100,
            warm_up: 1,
            gap: Nanos::from_millis(1),
            priority: Priority::ZERO,
            seed: 1,
        });
        let mut world = World::new(&config).expect("a network that keeps its promise");
        let end = world.run(&mut work, Nanos::from_millis(60_000));
        let mut fct = work.completion_times().to_vec();
        fct.sort();
        println!("{policy}: {end:?}, median {}, {} drops", fct[50], world.drops());
    }
}
