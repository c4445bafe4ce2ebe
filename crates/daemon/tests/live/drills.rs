//! Faults of a running fabric: each drill prints the time to recovery.
//!
//! The hosts and containers are those of `rig/pair.rs`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rig::pair::Pair;
use crate::rig::ping::{Pinger, Pings};
use crate::rig::raw::Sender;
use crate::rig::{Daemon, are_connected, say, skip};
use sluice_testkit::bound::{at_most, is_soak};

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
/// A machine that moves keeps its MAC.
const MOVER: &str = "02:42:00:00:00:33";
const MOVES: usize = 100;
/// Endpoints that a port may announce, unless configured.
const LEARN_MAX: usize = 1024;

/// Returns the time until a ping is answered.
fn healed(pair: &Pair, from: usize, to: Ipv4Addr) -> Duration {
    let begin = Instant::now();
    let mut pinger = Pinger::with_patience(&pair.containers[from], to, Duration::from_millis(50));
    while !pinger.ping(84) {
        assert!(begin.elapsed() < Duration::from_secs(20), "{to} is reached again");
    }
    begin.elapsed()
}

#[test]
#[ignore = "live: needs root"]
fn whole_daemons_are_killed_and_come_back() {
    if skip("live::drills", &[]) {
        return;
    }
    let mut pair = Pair::new("killed", 8);
    pair.add(0, 0, C1);
    pair.add(1, 1, C2);
    pair.containers[0].ping(C2, 3);
    for own in [1, 0] {
        pair.daemons[own].kill_both();
        std::thread::sleep(Duration::from_millis(700));
        let begin = Instant::now();
        pair.daemons[own].restart_control();
        let started = begin.elapsed();
        healed(&pair, 0, C2);
        say(&format!(
            "host {own} alone: it answers after {started:?}, a ping after {:?}",
            begin.elapsed()
        ));
    }
    pair.daemons.iter_mut().for_each(Daemon::kill_both);
    let begin = Instant::now();
    pair.daemons.iter_mut().for_each(Daemon::restart_control);
    healed(&pair, 0, C2);
    say(&format!("both at once: a ping after {:?}", begin.elapsed()));
    for ip in [C1, C2] {
        pair.both_know(ip, true);
    }
    pair.containers[1].ping(C1, 20);
    for daemon in &pair.daemons {
        daemon.drained();
        daemon.assert_lossless();
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_cable_is_cut_and_joined() {
    if skip("live::drills", &[]) {
        return;
    }
    let pair = Pair::new("cut", 8);
    pair.add(0, 0, C1);
    pair.add(1, 1, C2);
    pair.add(1, 2, C3);
    pair.containers[0].ping(C2, 3);
    // After a long cut the kernel asks again only now and then: the fabric must not wait for that.
    let long: &[(u64, usize)] = if is_soak() { &[(20_000, 0), (20_000, 1)] } else { &[] };
    for &(cut, host) in [(50, 0), (3000, 0), (3000, 1)].iter().chain(long) {
        pair.hosts[host].ip("link set up0 down");
        // Behind the same host nothing is cut.
        pair.containers[1].ping(C3, 1);
        std::thread::sleep(Duration::from_millis(cut));
        pair.hosts[host].ip("link set up0 up");
        let joined = Instant::now();
        let took = healed(&pair, 0, C2);
        are_connected(&pair.daemons);
        let connected = joined.elapsed();
        at_most("connected after the cable is back", connected, Duration::from_millis(1_200));
        say(&format!(
            "a cut of {cut} ms at host {host}: a ping is answered {took:?} after it, the hosts are \
             connected after {connected:?}"
        ));
        pair.containers[0].ping(C2, 20);
    }
    for ip in [C1, C2, C3] {
        pair.both_know(ip, true);
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_machine_moves_a_hundred_times_under_traffic() {
    if skip("live::drills", &[]) {
        return;
    }
    let pair = Pair::new("moves", 8);
    pair.add(0, 0, C1);
    pair.add(1, 1, C2);
    let beside = Pings::start(&pair.containers[0], C2);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, mut pinger) = (
        Arc::clone(&stop),
        Pinger::with_patience(&pair.containers[0], C3, Duration::from_millis(5)),
    );
    // Time of each answer.
    let traffic = std::thread::spawn(move || {
        let (mut sent, mut answered) = (0_u32, Vec::new());
        while !stopped.load(Ordering::Relaxed) {
            sent += 1;
            if pinger.ping(84) {
                answered.push(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (sent, answered)
    });
    let netns = pair.containers[2].name();
    let add = |own: usize, step: usize| {
        let (name, device) = (format!("at-{step}"), format!("t{step}"));
        pair.daemons[own].ask(&[
            "port",
            "add",
            "--netns",
            netns,
            "--vnet",
            "blue",
            "--ip",
            "10.42.0.3/24",
            "--mac",
            MOVER,
            "--move",
            "--name",
            &name,
            "--device",
            &device,
        ]);
    };
    add(1, 0);
    let mut moved = Vec::new();
    for step in 1..=MOVES {
        // As in a live migration: the machine is there first, and then not here any more.
        let (from, to) = (step % 2, 1 - step % 2);
        pair.containers[2].ip(&format!("link set t{} down", step - 1));
        moved.push(Instant::now());
        add(to, step);
        pair.delete(from, &format!("at-{}", step - 1));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    stop.store(true, Ordering::Relaxed);
    let (sent, answered) = traffic.join().unwrap();
    let mut gaps: Vec<Duration> = moved
        .iter()
        .map(|begin| {
            let next = answered.iter().find(|at| *at > begin);
            next.expect("it is reached after the last move").duration_since(*begin)
        })
        .collect();
    gaps.sort_unstable();
    say(&format!(
        "{MOVES} moves: reached again after {:?} (median), {:?} (95 %), {:?} (most); of {sent} \
         pings {} were answered",
        gaps[MOVES / 2],
        gaps[MOVES * 95 / 100],
        gaps[MOVES - 1],
        answered.len(),
    ));
    let (sent, answered) = beside.stop();
    assert_eq!(sent, answered, "pings beside it");
    for daemon in &pair.daemons {
        let vport = daemon.ask(&["vport", "show", MOVER])["vport"].take();
        assert_eq!(vport["host"], "h2", "{vport}");
        daemon.drained();
        assert_eq!(daemon.show("audit")["closed"], true);
    }
}

#[test]
#[ignore = "live: needs root"]
fn arp_flood_from_one_port_leaves_others_unaffected() {
    if skip("live::drills", &[]) {
        return;
    }
    let pair = Pair::new("flood", 8);
    let netns = pair.containers[0].name();
    pair.daemons[0].ask(&["port", "add", "--netns", netns, "--vnet", "blue"]);
    pair.containers[0].ip(&format!("addr add {C1}/24 dev eth0"));
    pair.add(1, 1, C2);
    let mut raw = Sender::new(&pair.containers[0], "eth0");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let flood = std::thread::spawn(move || {
        let mut sent = 0_u32;
        while !stopped.load(Ordering::Relaxed) {
            // Each frame comes from another machine, for another unknown address.
            let [_, a, b, c] = sent.to_be_bytes();
            let mac = [0x02, 0xf1, 0, a, b, c];
            let mut frame = [&[0xff; 6][..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &mac].concat();
            frame.extend([10, 42, 1 | b & 0x7f, c, 0, 0, 0, 0, 0, 0, 10, 43, b, c]);
            frame.resize(60, 0);
            _ = raw.send(&frame);
            sent += 1;
        }
        sent
    });
    std::thread::sleep(Duration::from_millis(300));
    // Other machines come, are resolved, and lose nothing.
    let begin = Instant::now();
    pair.add(0, 2, C3);
    pair.both_know(C3, true);
    pair.containers[2].ping(C2, 1);
    let found = begin.elapsed();
    let mut slowest = Duration::ZERO;
    let mut pinger = Pinger::new(&pair.containers[2], C2);
    for _ in 0..200 {
        let begin = Instant::now();
        assert!(pinger.ping(84), "a ping beside the flood");
        slowest = slowest.max(begin.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    let sent = flood.join().unwrap();
    let known = pair.daemons[1].ask(&["vport", "list"])["vports"].as_array().unwrap().len();
    say(&format!(
        "beside {sent} questions in {:?} a new machine is reached in {found:?}; slowest of 200 \
         pings {slowest:?}; the flood made {known} endpoints known",
        begin.elapsed()
    ));
    // The port's quota, the two others, and the two of the files.
    assert!(known <= LEARN_MAX + 4, "a port learns no more than its quota");
    for daemon in &pair.daemons {
        let lines = daemon.log().lines().count();
        assert!(lines < 200, "{lines} lines in the log");
        assert!(daemon.is_connected());
    }
}
