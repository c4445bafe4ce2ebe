use std::collections::{BTreeMap, BTreeSet};

use sluice_base::{BitRate, Nanos, Priority};
use sluice_placement::{Config, ConfigError, CoreIndex, Mode};

use super::core::Doing;
use super::host::Host;
use super::work::{Item, Segment};
use super::*;

const PARAMS: Params = Params {
    segment_ns: 11_000,
    datagram_ns: 500,
    byte_ps: 250,
    guest_ns: 3_000,
    interrupt_ns: 1_000,
    softirq_run_ns: 2_000_000,
    thread_run_ns: 1_000,
    quantum_ns: 1_000_000,
    descriptors: 256,
    refill: 16,
    guest_ring: 256,
    jitter_percent: 50,
};

fn flow(vm: usize, bytes: u64, mbps: u64) -> Flow {
    let entry = u32::try_from(vm).unwrap();
    Flow { vm, bytes, rate: BitRate::from_mbps(mbps), entry, priority: Priority::ZERO }
}

/// A host of four cores; machines are pinned to the first ones, or all float.
fn host(mode: Mode, flows: Vec<Flow>, policy: Policy) -> Scenario {
    let vms = flows.iter().map(|flow| flow.vm + 1).max().unwrap_or(0);
    Scenario {
        cores: 4,
        excluded: Vec::new(),
        vms: (0..vms).map(|vm| Some(u16::try_from(vm % 4).unwrap())).collect(),
        flows,
        steering: Config::new(mode, 128),
        policy,
        link: BitRate::from_gbps(10),
        seed: 1,
        warm_up: Nanos::from_millis(20),
        span: Nanos::from_millis(100),
        params: PARAMS,
    }
}

/// One flow of 1 Gbit/s that is processed on a core, its machine on core 0.
fn alone_on(core: u16, bytes: u64, mbps: u64) -> Report {
    let mut scenario = host(Mode::Predetermined, vec![flow(0, bytes, mbps)], Policy::Drop);
    scenario.steering.reserved = vec![(Priority::ZERO, CoreIndex(core))];
    run(&scenario).unwrap()
}

fn overload(mode: Mode, policy: Policy) -> Scenario {
    let flows = vec![
        flow(0, 64, 40),
        flow(1, 1400, 800),
        flow(2, 8192, 1000),
        flow(3, 8192, 1000),
        flow(0, 1400, 800),
    ];
    let mut scenario = host(mode, flows, policy);
    scenario.flows[4].entry = 4;
    scenario
}

/// Number of whole datagrams of each flow, found by a look at every place.
fn walk(host: &Host<'_>) -> Vec<u64> {
    let mut waiting: BTreeMap<(usize, u64), BTreeSet<u64>> = BTreeMap::new();
    let mut whole: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut wait = |segment: Segment| {
        let of = waiting.entry((segment.flow, segment.datagram)).or_default();
        assert!(of.insert(segment.index), "{segment:?} is in two places");
    };
    host.senders.iter().flat_map(|sender| &sender.wire).for_each(|segment| wait(*segment));
    for core in &host.cores {
        let doing = match core.doing {
            Doing::Softirq(item) => Some(item),
            Doing::Idle | Doing::Thread(_) => None,
        };
        for item in core.queue.iter() {
            match *item {
                Item::Receive(segment, _) => wait(segment),
                Item::Deliver(segment) => assert!(whole.insert((segment.flow, segment.datagram))),
            }
        }
        if let Some(item) = doing {
            let segment = item.segment();
            let sender = &host.senders[segment.flow];
            let is_whole = sender.partial == (segment.datagram, sender.segments);
            if matches!(item, Item::Deliver(_)) || is_whole {
                assert!(whole.insert((segment.flow, segment.datagram)));
            }
        }
    }
    for guest in &host.guests {
        guest.ring.iter().for_each(|found| assert!(whole.insert(*found), "{found:?} twice"));
    }
    for ((flow, datagram), indexes) in waiting {
        let sender = &host.senders[flow];
        // A datagram that misses a segment in the middle counts as no number of segments.
        let received = if sender.partial.0 == datagram { sender.partial.1 } else { 0 };
        let rest: BTreeSet<u64> = (received..sender.segments).collect();
        if !rest.is_empty() && indexes == rest {
            whole.insert((flow, datagram));
        }
    }
    let count = |flow| whole.iter().filter(|found| found.0 == flow).count() as u64;
    (0..host.senders.len()).map(count).collect()
}

#[test]
fn every_datagram_is_delivered_lost_or_somewhere() {
    for policy in [Policy::Drop, Policy::Hold] {
        for mode in [Mode::Rss, Mode::RssPlusPlus, Mode::OnTheFly, Mode::Adaptive] {
            let scenario = overload(mode, policy);
            let mut host = Host::new(&scenario).unwrap();
            for step in 1..=300 {
                host.run_until(step * 1_377_001);
                for (sender, found) in host.senders.iter().zip(walk(&host)) {
                    let counts = sender.counts;
                    assert_eq!(
                        counts.offered,
                        counts.delivered + counts.lost() + found,
                        "{mode:?} {policy:?} step {step}: {counts:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn core_time_splits_into_softirq_user_and_idle() {
    for mode in [Mode::Rss, Mode::Adaptive] {
        let scenario = overload(mode, Policy::Drop);
        let report = run(&scenario).unwrap();
        for core in &report.cores {
            assert_eq!(core.softirq_ns + core.user_ns + core.idle_ns, scenario.span.0, "{core:?}");
        }
        let user: u64 = report.cores.iter().map(|core| core.user_ns).sum();
        let least: u64 = (report.flows.iter().zip(&scenario.flows))
            .map(|(found, flow)| found.delivered * PARAMS.guest_work_ns(flow.bytes))
            .sum();
        assert!(user.abs_diff(least) < 50_000, "{user} ns in vCPUs, {least} ns of work done");
    }
}

#[test]
fn one_seed_one_result() {
    let scenario = overload(Mode::Adaptive, Policy::Drop);
    let mut other = scenario.clone();
    other.seed = 2;
    assert_eq!(run(&scenario), run(&scenario));
    assert_ne!(run(&scenario), run(&other));
}

#[test]
fn where_senders_are_held_nothing_is_lost() {
    // On the cores of their own machines, and on the cores of others, where no work stops with
    // them.
    for (mode, shift) in [(Mode::Rss, 0), (Mode::Rss, 1), (Mode::Adaptive, 0)] {
        let run_with = |policy| {
            let mut scenario = overload(mode, policy);
            scenario.flows.iter_mut().for_each(|flow| flow.entry += shift);
            run(&scenario).unwrap()
        };
        let report = run_with(Policy::Hold);
        assert!(report.flows.iter().all(|flow| flow.lost() == 0), "{report:?}");
        let lossy = run_with(Policy::Drop);
        assert!(lossy.flows.iter().any(|flow| flow.lost() > 0), "no overload");
        assert!(report.total_bps() > lossy.total_bps());
    }
}

#[test]
fn flow_without_contention_gets_offered_rate() {
    let report = alone_on(3, 1400, 750);
    assert_eq!(report.flows[0].lost(), 0);
    assert!(report.flows[0].throughput_bps.abs_diff(750_000_000) < 8_000_000, "{report:?}");
    assert!(report.cores[3].softirq_ns > 0 && report.cores[0].user_ns > 0);
    assert_eq!(report.cores[0].softirq_ns + report.cores[3].user_ns, 0);
}

#[test]
fn flow_sharing_core_with_vm_gets_less() {
    let (apart, together) = (alone_on(3, 1400, 750), alone_on(0, 1400, 750));
    assert!(together.total_bps() * 10 < apart.total_bps() * 9, "{together:?}");
    assert!(together.flows[0].lost_guest > 0, "the guest's ring overflows");
}

#[test]
fn softirq_work_takes_the_core_from_a_vcpu() {
    let mut scenario = host(Mode::Rss, vec![flow(0, 1400, 750)], Policy::Drop);
    // During one turn of the guest more segments come than there are descriptors.
    scenario.params.guest_ns = 5_000_000;
    let report = run(&scenario).unwrap();
    assert_eq!(report.flows[0].lost_descriptor, 0);
    assert!(report.flows[0].lost_guest > 0 && report.cores[0].user_ns > 0);
}

#[test]
fn softirq_saturated_core_leaves_only_granted_thread_turn() {
    let report = alone_on(0, 8192, 1200);
    let share = report.cores[0].user_ns * 1_000_000 / 100_000_000;
    let turn = PARAMS.thread_run_ns * 1_000_000 / (PARAMS.softirq_run_ns + PARAMS.thread_run_ns);
    assert!(share.abs_diff(turn) <= turn / 10, "{share} ppm, not {turn}");
}

#[test]
fn a_datagram_that_misses_a_segment_is_lost() {
    let report = alone_on(3, 8192, 2000);
    let segments = report.cores[3].softirq_ns / PARAMS.segment_ns;
    let flow = report.flows[0];
    assert!(flow.lost_descriptor > 0 && flow.delivered > 0);
    // The core was always busy, and a part of its work was of no use.
    assert!(flow.delivered * 6 < segments * 9 / 10, "{} of {segments}", flow.delivered * 6);
}

#[test]
fn an_excluded_core_does_no_tunnel_work() {
    let mut scenario = overload(Mode::Rss, Policy::Drop);
    scenario.excluded = vec![0, 2];
    let report = run(&scenario).unwrap();
    assert_eq!(report.cores[0].softirq_ns + report.cores[2].softirq_ns, 0);
    assert!(report.cores[1].softirq_ns > 0 && report.cores[3].softirq_ns > 0);
}

#[test]
fn floating_vcpu_moves_to_free_core_without_loss() {
    let mut scenario = host(Mode::Rss, vec![flow(0, 1400, 800)], Policy::Drop);
    let pinned = run(&scenario).unwrap();
    scenario.vms = vec![None];
    let floating = run(&scenario).unwrap();
    assert!(floating.total_bps() > pinned.total_bps());
    assert_eq!(floating.flows[0].lost_guest, 0);
}

#[test]
fn two_machines_of_a_core_have_equal_turns() {
    let flows = vec![flow(0, 1400, 300), flow(1, 1400, 300)];
    let mut scenario = host(Mode::Rss, flows, Policy::Drop);
    (scenario.vms, scenario.excluded) = (vec![Some(0), Some(0)], vec![0]);
    scenario.params.guest_ns = 60_000;
    let report = run(&scenario).unwrap();
    let [a, b] = [0, 1].map(|at| report.flows[at].delivered);
    assert!(a.abs_diff(b) * 20 <= a + b, "{a} and {b}");
    assert_eq!(report.cores[0].idle_ns, 0);
}

/// Time of vCPUs on core 0, and their wait for it, within 99 ms.
fn took_and_waited(mode: Mode, bytes: u64, mbps: u64) -> (u64, u64) {
    let mut scenario = host(mode, vec![flow(0, bytes, mbps)], Policy::Drop);
    scenario.excluded = if mode == Mode::Rss { vec![1, 2, 3] } else { vec![0] };
    let mut host = Host::new(&scenario).unwrap();
    host.run_until(99_000_000);
    host.settle_waits();
    host.steering.of_vcpus(0)
}

#[test]
fn vcpu_run_queue_delay_is_counted() {
    let (took, waited) = took_and_waited(Mode::Adaptive, 1400, 300);
    assert!(took > 5_000_000 && waited == 0, "alone: {took} ns, waited {waited} ns");
    let (took, waited) = took_and_waited(Mode::Rss, 8192, 1200);
    assert!(took < 1_000_000, "it starves: {took} ns");
    // Without a break, from the first datagram on.
    assert!((97_000_000..=99_000_000).contains(&(took + waited)), "{took} and {waited} ns");
}

#[test]
fn overcommitted_cores_starve_few_vms() {
    let mut scenario = host(Mode::Adaptive, Vec::new(), Policy::Drop);
    scenario.vms = (0..8).map(|vm| Some(vm % 4)).collect();
    scenario.flows = (0..8).map(|vm| flow(vm, 1400, 800)).collect();
    (scenario.warm_up, scenario.span) = (Nanos::from_millis(2_000), Nanos::from_millis(500));
    let report = run(&scenario).unwrap();
    let starved = |flow: &&FlowReport| flow.throughput_bps < 20_000_000;
    assert!(report.flows.iter().filter(starved).count() <= 2, "{report:?}");
    assert!(report.total_bps() > 1_200_000_000, "{report:?}");
}

#[test]
fn entries_move_and_their_datagrams_stay_in_order() {
    let mut scenario = host(Mode::RssPlusPlus, Vec::new(), Policy::Drop);
    scenario.vms = (0..4).map(|_| None).collect();
    scenario.flows = (0..4).map(|vm| flow(vm, 8192, 300)).collect();
    for (at, flow) in scenario.flows.iter_mut().enumerate() {
        flow.entry = u32::try_from(at).unwrap() * 4;
    }
    let mut host = Host::new(&scenario).unwrap();
    for step in 1..=20_000 {
        host.run_until(step * 50_000);
        for guest in &host.guests {
            let numbers: Vec<u64> = guest.ring.iter().map(|found| found.1).collect();
            assert!(numbers.is_sorted(), "{numbers:?}");
        }
    }
    let busy = host.cores.iter().filter(|core| core.times.softirq > 0).count();
    assert_eq!(busy, 4, "all began on core 0");
}

#[test]
fn what_cannot_run_is_said() {
    let good = host(Mode::Rss, vec![flow(0, 64, 1)], Policy::Drop);
    let fails = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = good.clone();
        change(&mut scenario);
        run(&scenario).unwrap_err()
    };
    assert_eq!(fails(&|s| s.params.refill = 0), Error::Parameter("refill"));
    assert_eq!(fails(&|s| s.params.refill = 257), Error::Parameter("refill"));
    assert_eq!(fails(&|s| s.params.jitter_percent = 101), Error::Parameter("jitter_percent"));
    assert_eq!(fails(&|s| s.vms[0] = Some(4)), Error::Core(4));
    assert_eq!(fails(&|s| s.flows[0].vm = 1), Error::Flow(0));
    assert_eq!(fails(&|s| s.flows[0].rate = BitRate(0)), Error::Flow(0));
    assert_eq!(fails(&|s| s.steering.entries = 0), Error::Flow(0));
    let none = fails(&|s| s.excluded = vec![0, 1, 2, 3]);
    assert_eq!(none, Error::Steering(ConfigError::Cores));
    assert!(none.to_string().contains("exclude fewer"));
}

#[test]
fn segments_of_a_datagram() {
    assert_eq!(
        [64, 1400, 1422, 1423, 8192].map(|bytes| flow(0, bytes, 1).segments()),
        [1, 1, 1, 2, 6]
    );
}
