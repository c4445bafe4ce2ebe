//! The grid: one small topology under each policy and load. Some hosts answer one asker at once,
//! one question after the other.
//!
//! Answers meet in two places: in the physical switch before the asker's host, and in the queue to
//! the asker's VM, which takes fewer bits per second than the link carries. The light load fits
//! into both, and no policy matters. The others fill both.

use std::fmt::Write as _;
use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{Limit, OverlayConfig, SAME_WEIGHT};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::LeafSpine;
use sluice_sim::workload::Aggregate;
use sluice_sim::world::WorldConfig;

use crate::run::run;
use crate::scenario::Scenario;
use crate::table::{policy, results, results_head};

/// The policies in their order: true if the virtual network is lossless, and the physical one.
const POLICIES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];
/// The loads, each with the number of hosts that answer at once.
const LOADS: [(&str, u32); 3] = [("light", 4), ("medium", 8), ("heavy", 16)];

const SEED: u64 = 1;
const LINK: BitRate = BitRate::from_gbps(10);
const DELAY: Nanos = Nanos(500);
const HOSTS_PER_LEAF: u32 = 8;
const FRAME: u64 = 1_514;
/// Bytes of an answer.
const ANSWER: u64 = 20_000;
const QUESTIONS: u32 = 100;

/// Returns the grid as text: a line for each policy and load.
pub(crate) fn grid() -> String {
    let head = format!("policy  {:6}  {:>5}  {}", "load", "hosts", results_head("p99 ms"));
    let mut text = head.trim_end().to_owned() + "\n";
    for (virtual_lossless, physical_lossless) in POLICIES {
        for (load, hosts) in LOADS {
            let cell = cell(virtual_lossless, physical_lossless, hosts);
            writeln!(text, "{}", row(&cell, load, hosts)).unwrap();
        }
    }
    text
}

fn row(cell: &Scenario, load: &str, hosts: u32) -> String {
    let again = "cargo test -p sluice-sim --test swarm digest";
    let outcome = run(cell, 100_000, again, |_| {}).unwrap();
    format!("{:6}  {load:6}  {hosts:5}  {}", policy(&cell.config), results(&outcome, 99))
}

/// Returns the scenario of a cell.
fn cell(virtual_lossless: bool, physical_lossless: bool, workers: u32) -> Scenario {
    let host = Nanos::from_micros(5);
    let net = net(physical_lossless);
    let config = WorldConfig {
        topology: LeafSpine {
            leaves: 3,
            hosts_per_leaf: HOSTS_PER_LEAF,
            spines: 2,
            host_rate: LINK,
            switch_rate: LINK,
            delay: DELAY,
        }
        .build(),
        net,
        overlay: Some(virtual_network(virtual_lossless, physical_lossless)),
        send_latency: host,
        receive_latency: host,
        seed: SEED,
        ties: Ties::Fifo,
    };
    Scenario {
        seed: SEED,
        shape: "spine",
        config,
        flows: Vec::new(),
        aggregate: Some(questions(workers)),
        waves: None,
        background: None,
    }
}

/// Buffers hold 50 frames and drop, or pause at 30 frames and have headroom above.
fn net(lossless: bool) -> NetConfig {
    let mut net = NetConfig {
        lossless: if lossless { PriorityMask::ALL } else { PriorityMask::NONE },
        buffer: ByteCount(50 * FRAME),
        buffering: Buffering::Output,
        xoff: ByteCount(30 * FRAME),
        xon: ByteCount(20 * FRAME),
        mark: None,
        latency: Nanos(500),
        pause_response: Nanos::ZERO,
        overhead: 24,
        frame_max: 1_514,
    };
    if lossless {
        net.buffer = net.xoff + net.headroom(LINK, DELAY);
    }
    net
}

fn frames(frames: u32) -> Limit {
    Limit { frames, bytes: ByteCount(u64::from(frames) * 1_600) }
}

/// Limits are those of an ordinary host (`docs/flow-control.md`).
fn virtual_network(lossless: bool, paused: bool) -> OverlayConfig {
    OverlayConfig {
        vms_per_host: 1,
        lossless: if lossless { PriorityMask::ALL } else { PriorityMask::NONE },
        service: SAME_WEIGHT,
        own_queues: PriorityMask::NONE,
        mtu: 1_450,
        vm_in: frames(64),
        vm_out: frames(64),
        vm_rate: Some(BitRate::from_gbps(4)),
        card_in: frames(256),
        card_out: frames(256),
        pool: frames(256),
        card_pause: paused.then_some((ByteCount(150 * FRAME), ByteCount(100 * FRAME))),
        card_priorities: PriorityMask::ALL,
    }
}

/// Host 0 asks the first hosts behind the other leaves.
fn questions(workers: u32) -> Aggregate {
    Aggregate {
        tcp: Arc::new(Config { mss: 1_398, ..Config::linux_2013(Algorithm::NewReno) }),
        aggregator: 0,
        workers: (0..workers).map(|worker| HOSTS_PER_LEAF + worker).collect(),
        request_bytes: 100,
        response_bytes: ANSWER,
        queries: QUESTIONS,
        warm_up: 1,
        gap: Nanos::ZERO,
        priority: Priority::ZERO,
        seed: SEED,
    }
}
