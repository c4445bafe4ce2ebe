//! Clients at the uplinks of a data centre, which send the queries of a search engine.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::check::Checked;
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{Limit, OverlayConfig, SAME_WEIGHT};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::FatTree;
use sluice_sim::workload::{Search, Searching};
use sluice_sim::world::{ConnectionId, WorldConfig};

const LINK: BitRate = BitRate::from_gbps(10);
/// Bytes of every message.
const BYTES: u64 = 20_000;
const TREE: FatTree = FatTree {
    pods: 2,
    edges_per_pod: 2,
    hosts_per_edge: 2,
    middles_per_pod: 2,
    cores_per_middle: 1,
    rate: LINK,
    delay: Nanos(500),
};

fn config(clients: u32) -> WorldConfig {
    let limit = |kb: u64| Limit { frames: 256, bytes: ByteCount(kb * 1_000) };
    WorldConfig {
        topology: TREE.build().with_clients(clients, TREE.cores(), LINK, Nanos(500)),
        net: NetConfig {
            lossless: PriorityMask::ALL,
            buffer: ByteCount(103_000),
            buffering: Buffering::Input,
            xoff: ByteCount(80_000),
            xon: ByteCount(60_000),
            mark: None,
            latency: Nanos(100),
            pause_response: Nanos::ZERO,
            overhead: 24,
            frame_max: 1_518,
        },
        overlay: Some(OverlayConfig {
            vms_per_host: 3,
            lossless: PriorityMask::ALL,
            service: SAME_WEIGHT,
            own_queues: PriorityMask::NONE,
            mtu: 1_446,
            vm_in: limit(100),
            vm_out: limit(100),
            vm_rate: None,
            card_in: limit(512),
            card_out: limit(100),
            pool: limit(400),
            card_pause: Some((ByteCount(400_000), ByteCount(300_000))),
            card_priorities: PriorityMask::ALL,
        }),
        send_latency: Nanos::from_micros(9),
        receive_latency: Nanos::from_micros(24),
        seed: 1,
        ties: Ties::Fifo,
    }
}

fn search(clients: u32) -> Searching {
    let tcp = Config { mss: 1_394, ..Config::freebsd9(Algorithm::NewReno) };
    Searching::new(Search {
        tcp: Arc::new(tcp),
        hosts: TREE.host_count(),
        clients,
        rack: TREE.hosts_per_edge,
        bytes: BYTES,
        gap: Nanos::from_micros(500),
        queries: 30,
        warm_up: 0,
        priority: Priority::ZERO,
        seed: 3,
    })
}

#[test]
fn query_and_answer_pass_between_client_and_aggregator() {
    let mut searching = search(3);
    let mut checked = Checked::new(&config(3), 50, "this test".to_owned()).unwrap();
    checked.run_all(&mut [&mut searching], Nanos::from_millis(1_000)).unwrap();
    assert_eq!(searching.completion_times().len(), 30);
    // The first connection is the first query's: one message each way at least.
    let first = ConnectionId(0);
    assert!(checked.world().delivered(first.server()) >= BYTES);
    assert!(checked.world().delivered(first.client()) >= BYTES);
    assert_eq!(checked.world().summary().drops_congestion, 0);
}

#[test]
fn time_of_query_begins_at_aggregator() {
    let times = |clients: u32| {
        let mut searching = search(clients);
        let mut checked = Checked::new(&config(clients), 50, "this test".to_owned()).unwrap();
        checked.run_all(&mut [&mut searching], Nanos::from_millis(1_000)).unwrap();
        let mut times = searching.completion_times().to_vec();
        times.sort();
        times[15]
    };
    let (without, with) = (times(0), times(3));
    // The way from the client takes at least 20 KB at the link's rate, and both latencies: that is
    // not in the time.
    let way = LINK.time_for(ByteCount(BYTES)).0 + 33_000;
    assert!(with.0.abs_diff(without.0) < way, "{with} with clients, {without} without");
}
