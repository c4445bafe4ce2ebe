//! A host with two containers, for real: namespaces, TAPs, and both processes killed in turn.
//!
//! The test needs root, and reports it if it is skipped. Each test has namespaces and a directory
//! of its own, named after this process, and removes them in any case.

mod support;

use std::time::{Duration, Instant};

use sluice_testkit::bound::at_most;
use support::{Rig, cpu_time, percentile, say, skip};

/// Longest wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < until, "{what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn containers_reach_each_other_and_the_books_balance() {
    if skip("containers_reach_each_other_and_the_books_balance") {
        return;
    }
    let rig = Rig::new("reach", 2);
    let mut daemon = rig.start();
    let pinger = rig.pinger(0, 1);
    for _ in 0..50 {
        pinger.ping().expect("a ping comes back");
    }
    let ports = rig.show("ports");
    assert_eq!(ports["ports"][0]["port"], "c0");
    assert_eq!(ports["ports"][0]["kind"], "tap");
    assert!(ports["ports"][0]["rx_frames"].as_u64() >= Some(50), "{ports}");
    assert_eq!(rig.show("audit")["audit"]["closed"], true);
    assert_eq!(rig.show("mac")["mac"][0]["vnet"], "blue");
    for question in ["queues", "drops", "pauses", "tunnels"] {
        assert!(rig.show(question)[question].is_array(), "{question}");
    }
    let table = rig.show_table("ports");
    assert!(table.contains("c0") && table.contains("tap"), "{table}");
    daemon.stop();
}

#[test]
fn control_kill_loses_no_ping_successor_takes_over() {
    if skip("control_kill_loses_no_ping_successor_takes_over") {
        return;
    }
    let rig = Rig::new("control", 2);
    let mut first = rig.start();
    let data = rig.data_pid();
    let pinger = rig.pinger(0, 1);
    pinger.ping().expect("the first ping comes back");
    for count in 0..200 {
        if count == 50 {
            first.kill();
        }
        pinger.ping().unwrap_or_else(|| panic!("ping {count} was lost"));
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut second = rig.start();
    assert_eq!(rig.data_pid(), data, "data was taken over");
    assert_eq!(rig.show("audit")["audit"]["closed"], true);
    pinger.ping().expect("pings go on");
    second.stop();
    wait_for("the data process that an earlier control started ends", || !support::alive(data));
    assert_eq!(rig.sockets(), Vec::<String>::new());
}

#[test]
fn data_that_died_is_started_again() {
    if skip("data_that_died_is_started_again") {
        return;
    }
    let rig = Rig::new("data", 2);
    let mut daemon = rig.start();
    let pinger = rig.pinger(0, 1);
    pinger.ping().expect("the first ping comes back");
    for _ in 0..2 {
        let before = rig.data_pid();
        support::kill(before);
        let begin = Instant::now();
        wait_for("pings come back", || pinger.ping_within(Duration::from_millis(10)).is_some());
        say(&format!("data was killed; the first ping came back after {:?}", begin.elapsed()));
        wait_for("show works", || rig.try_show("audit").is_some());
        assert_ne!(rig.data_pid(), before);
    }
    daemon.stop();
}

#[test]
fn both_killed_leave_nothing_that_blocks_a_start() {
    if skip("both_killed_leave_nothing_that_blocks_a_start") {
        return;
    }
    let rig = Rig::new("both", 2);
    let mut first = rig.start();
    first.kill();
    support::kill(rig.data_pid());
    assert_eq!(rig.sockets(), ["data.sock", "http.sock", "show.sock"], "they are left behind");
    let mut second = rig.start();
    rig.pinger(0, 1).ping().expect("a ping comes back");
    let refused = rig.run_control();
    assert!(refused.contains("runs this host already"), "{refused}");
    second.stop();
}

#[test]
fn daemon_stop_drains_leaves_no_socket_or_process() {
    if skip("daemon_stop_drains_leaves_no_socket_or_process") {
        return;
    }
    let rig = Rig::new("stop", 2);
    let mut daemon = rig.start();
    let data = rig.data_pid();
    rig.pinger(0, 1).ping().expect("a ping comes back");
    let begin = Instant::now();
    daemon.stop();
    at_most("stopping", begin.elapsed(), Duration::from_secs(3));
    assert!(!support::alive(data));
    assert_eq!(rig.sockets(), Vec::<String>::new());
    assert!(rig.log().contains("drained; 0 frames held and 0 in drivers"), "{}", rig.log());
}

#[test]
fn a_changed_configuration_replaces_the_data_process() {
    if skip("a_changed_configuration_replaces_the_data_process") {
        return;
    }
    let rig = Rig::new("changed", 2);
    let mut first = rig.start();
    let before = rig.data_pid();
    first.kill();
    rig.change("policy = \"ZZ\"", "policy = \"ZL\"");
    let mut second = rig.start();
    assert_ne!(rig.data_pid(), before);
    assert!(!support::alive(before), "the old one was drained");
    assert_eq!(rig.show("audit")["policy"], "ZL");
    rig.pinger(0, 1).ping().expect("a ping comes back");
    second.stop();
}

#[test]
fn a_wrong_configuration_is_refused_with_its_line() {
    if skip("a_wrong_configuration_is_refused_with_its_line") {
        return;
    }
    let rig = Rig::new("wrong", 1);
    rig.change("vnet = \"blue\"", "vnet = \"bleu\"");
    let said = rig.run_control();
    assert!(said.contains("host.toml:10: port[1].vnet: there is no vnet `bleu`"), "{said}");
    assert!(said.contains("Did you mean `blue`?"), "{said}");
}

/// Prints the measurements; the limits are loose, since other work may share the machine.
#[test]
fn an_idle_host_sleeps_and_wakes_at_once() {
    if skip("an_idle_host_sleeps_and_wakes_at_once") {
        return;
    }
    let rig = Rig::new("idle", 16);
    let mut daemon = rig.start();
    let pinger = rig.pinger(0, 1);
    pinger.ping().expect("a ping comes back");
    // The kernel of each container searches for IPv6 routers first.
    std::thread::sleep(Duration::from_millis(2000));
    let (data, span) = (rig.data_pid(), Duration::from_secs(3));
    let before = cpu_time(data);
    std::thread::sleep(span);
    let share = (cpu_time(data) - before).as_secs_f64() / span.as_secs_f64();
    say(&format!("idle host of 16 ports: {:.3} % of a core", share * 100.0));
    assert!(share < 0.02, "{share}");

    let mut times: Vec<Duration> = (0..300)
        .filter_map(|_| {
            std::thread::sleep(Duration::from_millis(3));
            pinger.one_way()
        })
        .collect();
    times.sort();
    assert!(times.len() >= 290, "{} arrived", times.len());
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    say(&format!("idle to the receiver's socket: p50 {p50:?}, p99 {p99:?}"));
    at_most("idle to the receiver's socket, median", p50, Duration::from_millis(1));
    daemon.stop();
}

#[test]
fn deleted_device_closes_only_its_own_port() {
    if skip("deleted_device_closes_only_its_own_port") {
        return;
    }
    let rig = Rig::new("gone", 3);
    let mut daemon = rig.start();
    let pinger = rig.pinger(0, 1);
    pinger.ping().expect("a ping comes back");
    rig.delete_device(2);
    let lossless = |port: usize| rig.show("ports")["ports"][port]["lossless"].to_string();
    wait_for("the port says so", || lossless(2).contains("needs its device back"));
    assert!(!lossless(0).contains("needs its device back"));
    pinger.ping().expect("a ping comes back");
    assert_eq!(rig.show("audit")["audit"]["closed"], true);
    assert!(rig.log().contains("it is closed, 0 frames ended with it"), "{}", rig.log());
    daemon.stop();
}

fn two_hosts(name: &str, kind: &str, policy: &str) {
    let [left, right] = Rig::pair(name, kind, policy);
    let (mut left_daemon, mut right_daemon) = (left.start(), right.start());
    let pinger = left.pinger_to(0, &right, 0);
    wait_for("the next hop is found", || pinger.ping().is_some());
    for count in 0..50 {
        pinger.ping().unwrap_or_else(|| panic!("ping {count} was lost"));
    }
    for rig in [&left, &right] {
        let tunnel = &rig.show("tunnels")["tunnels"][0];
        assert!(tunnel["tx_frames"].as_u64() >= Some(50), "{tunnel}");
        assert!(tunnel["next_hop"] != "unresolved", "{tunnel}");
        let ports = rig.show("ports");
        assert_eq!(ports["ports"][1]["kind"], kind);
        assert_eq!(ports["ports"][1]["lossless"] == "yes", policy == "ZZ", "{ports}");
        assert_eq!(rig.show("audit")["audit"]["closed"], true);
    }
    left_daemon.stop();
    right_daemon.stop();
}

#[test]
fn two_hosts_over_a_device_with_pfc() {
    if !skip("two_hosts_over_a_device_with_pfc") {
        two_hosts("l2", "l2", "ZZ");
    }
}

#[test]
fn two_hosts_over_udp() {
    if !skip("two_hosts_over_udp") {
        two_hosts("udp", "udp", "ZL");
    }
}
