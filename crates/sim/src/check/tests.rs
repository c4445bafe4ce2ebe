use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};

use super::Checked;
use crate::events::Ties;
use crate::net::{Buffering, NetConfig};
use crate::tcp::{Algorithm, Config};
use crate::topology::{Cable, Node, Topology};
use crate::workload::Permutation;
use crate::world::{End, WorldConfig};

/// `count` switches in a ring with a host each, every cable alike.
fn ring(count: u32) -> WorldConfig {
    let (rate, delay) = (BitRate::from_gbps(10), Nanos(500));
    let hosts = (0..count).map(|at| (Node::Host(at), Node::Switch(at)));
    let around = (0..count).map(|at| (Node::Switch(at), Node::Switch((at + 1) % count)));
    let cables = hosts.chain(around).map(|(a, b)| Cable { a, b, rate, delay }).collect();
    WorldConfig {
        topology: Topology { hosts: count, switches: count, cables },
        net: NetConfig {
            lossless: PriorityMask::ALL,
            buffer: ByteCount(20_000),
            buffering: Buffering::Input,
            xoff: ByteCount(6_000),
            xon: ByteCount(3_000),
            mark: None,
            latency: Nanos::ZERO,
            pause_response: Nanos::ZERO,
            overhead: 24,
            frame_max: 1_514,
        },
        overlay: None,
        send_latency: Nanos::ZERO,
        receive_latency: Nanos::ZERO,
        seed: 1,
        ties: Ties::Fifo,
    }
}

fn run(count: u32, shift: u32) -> Result<End, Box<super::Report>> {
    let mut tcp = Config::linux_2013(Algorithm::NewReno);
    tcp.mss = 1_448;
    let tcp = Arc::new(tcp);
    let priority = Priority::ZERO;
    let mut flows = Permutation { tcp, hosts: count, shift, priority, seed: 1 };
    let mut checked = Checked::new(&ring(count), 50, "this test".to_owned()).unwrap();
    checked.run_all(&mut [&mut flows], Nanos::from_millis(30))
}

/// Each flow passes two links of a ring of five, all the same way round, so that each link waits
/// for the next one: the deadlock of lossless networks (Dally and Seitz 1987).
#[test]
fn a_ring_of_paused_links_is_found() {
    let report = run(5, 2).unwrap_err();
    assert_eq!(report.violation.checker, "cycle", "{report}");
    let text = report.to_string();
    for part in ["have waited for each other", "to repeat: this test", "LinkEnd", "pauses 0x01"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn one_hop_flows_on_ring_report_no_deadlock() {
    assert_eq!(run(5, 1).unwrap(), End::Time);
}
