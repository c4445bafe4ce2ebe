//! Two hosts of a fabric without any knowledge of each other's endpoints, which find each other.
//!
//! ```text
//!   c1 ─ TAP ─┤ h1 up0 ═══════ up0 h2 ├─ TAP ─ c2
//!   c3 ─ TAP ─┘                       └─ TAP ─ c4
//! ```
//!
//! `c1` and `c2` are learned, `c3` and `c4` are bound with their addresses. Each test runs on hosts
//! with one data worker, and on hosts with two, which serve a container each.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::member::member;
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Net, Netns, are_connected, cable, say, skip, wait_for};
use serde_json::Value;

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
const C4: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 4);
const C3_MAC: &str = "02:42:00:00:00:03";
const C4_MAC: &str = "02:42:00:00:00:04";

/// Numbers of data workers of a host.
const WORKERS: [usize; 2] = [1, 2];

/// Everything of one test. Fields end in this order: the daemons before their namespaces.
struct Case {
    daemons: [Daemon; 2],
    _net: Net,
    containers: [Netns; 4],
}

fn config(
    (own, workers): (usize, usize),
    learned: &Netns,
    bound: &Netns,
    mac: &str,
    certificates: &Path,
) -> String {
    let ports = format!(
        r#"
[[port]]
name = "learned"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{learned}"
[[port]]
name = "bound"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{bound}"
mac = "{mac}"
[[vport]]
vnet = "blue"
mac = "{mac}"
ip = "10.42.0.{bound_ip}"
port = "bound"
"#,
        learned = learned.name(),
        bound = bound.name(),
        bound_ip = own + 3,
    );
    member(own, certificates, &format!("workers = {workers}"), &ports)
}

impl Case {
    fn new(word: &'static str, workers: usize) -> Self {
        let mut net = Net::new(word);
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        let containers = ["c1", "c2", "c3", "c4"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let certificates = net.certificates(&["h1", "h2"]);
        let [c1, c2, c3, c4] = &containers;
        let configs = [(c1, c3, C3_MAC), (c2, c4, C4_MAC)];
        let daemon = |own: usize| {
            let (learned, bound, mac) = configs[own];
            let name = format!("h{}", own + 1);
            let text = config((own, workers), learned, bound, mac, &certificates);
            net.daemon(&hosts[own], &name, &text)
        };
        let daemons = [daemon(0), daemon(1)];
        for (container, ip) in containers.iter().zip([C1, C2, C3, C4]) {
            container.ip(&format!("addr add {ip}/24 dev t0"));
            container.ip("link set t0 up");
        }
        let case = Self { daemons, _net: net, containers };
        let rows = case.daemons[0].show("worker");
        assert_eq!(rows.as_array().unwrap().len(), workers, "{rows}");
        are_connected(&case.daemons);
        case
    }

    /// Returns the answer of host `own` to `sluice WORDS --json`.
    fn ask(&self, own: usize, words: &[&str]) -> Value {
        self.daemons[own].ask(words)
    }

    /// Returns MAC, IPs, host and state of every endpoint that a host knows.
    fn vports(&self, own: usize) -> Vec<(String, String, String, String)> {
        let rows = self.ask(own, &["vport", "list"])["vports"].take();
        let word = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        let rows = rows.as_array().unwrap().iter().map(|row| {
            (word(row, "mac"), row["ips"].to_string(), word(row, "host"), word(row, "state"))
        });
        rows.collect()
    }
}

#[test]
#[ignore = "live: needs root"]
fn endpoints_discovered_and_forwarded_to_without_control() {
    if skip("live::fabric", &[]) {
        return;
    }
    for workers in WORKERS {
        find_each_other(workers);
    }
}

fn find_each_other(workers: usize) {
    let case = Case::new("fabric", workers);
    let [c1, c2, c3, c4] = &case.containers;
    // Bound endpoints are known before they speak, and answered for.
    for own in 0..2 {
        wait_for("both bound endpoints are known", || case.vports(own).len() >= 2);
    }
    c3.ping(C4, 3);
    // These two are still unknown.
    let begin = Instant::now();
    c1.ping(C2, 1);
    say(&format!("the first ping between strangers took {:?}", begin.elapsed()));
    c1.ping(C2, 20);
    c2.ping(C3, 5);
    c4.ping(C1, 5);
    let known: Vec<_> = (0..2).map(|own| case.vports(own)).collect();
    assert_eq!(known[0].len(), 4, "{known:?}");
    for (one, other) in known[0].iter().zip(&known[1]) {
        assert_eq!((&one.0, &one.1, &one.2), (&other.0, &other.1, &other.2), "{known:?}");
        assert_eq!([one.3.as_str(), other.3.as_str()].iter().filter(|s| **s == "own").count(), 1);
    }
    let flows = case.ask(0, &["fabric", "flows"]);
    assert_eq!(flows["flows"]["tunnels"].as_array().unwrap().len(), 1, "{flows}");
    assert_eq!(flows["flows"]["encap"].as_array().unwrap().len(), 2, "{flows}");
    assert_eq!(flows["flows"]["decap"].as_array().unwrap().len(), 1, "{flows}");

    // Both control processes are killed at once; the entries stay while new processes learn them
    // again.
    let mut case = case;
    let mut pinger = Pinger::new(&case.containers[0], C2);
    let mut pings = |what: &str, count: u32| {
        for _ in 0..count {
            assert!(pinger.ping(84), "a ping {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    case.daemons.iter_mut().for_each(Daemon::kill_control);
    pings("without control", 100);
    case.daemons.iter_mut().for_each(Daemon::restart_control);
    pings("while control comes back", 200);
    for own in 0..2 {
        wait_for("all endpoints are known again", || case.vports(own).len() == 4);
    }
    pings("with control", 20);
    for daemon in &case.daemons {
        assert!(daemon.drops().keys().all(|(_, reason)| reason != "unresolved"));
        daemon.drained();
        daemon.assert_lossless();
    }
}

#[test]
#[ignore = "live: needs root"]
fn moved_endpoint_followed_and_history_recorded() {
    if skip("live::fabric", &[]) {
        return;
    }
    for workers in WORKERS {
        follow_one_that_moves(workers);
    }
}

fn follow_one_that_moves(workers: usize) {
    let case = Case::new("moves", workers);
    let [c1, c2, c3, _] = &case.containers;
    c3.ping(C1, 3);
    let mac = c1.ip("-o link show dev t0");
    let mac = mac.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let mut back_and_forth = [(c1, c2), (c2, c1)].into_iter().cycle();
    for step in 1..=4 {
        let (from, to) = back_and_forth.next().unwrap();
        from.ip("link set t0 down");
        from.ip("link set t0 address 02:42:00:00:00:ff");
        from.ip("addr flush dev t0");
        to.ip("addr flush dev t0");
        to.ip(&format!("link set t0 address {mac}"));
        to.ip(&format!("addr add {C1}/24 dev t0"));
        to.ip("link set t0 up");
        // The machine speaks, as one that has just arrived. An answer from a host that has not
        // heard of the move goes to the old place: such a frame is dropped there, and counted.
        let mut arrival = Pinger::new(to, C3);
        let unanswered = (0..5).take_while(|_| !arrival.ping(84)).count();
        assert!(unanswered < 5, "step {step}: it is answered");
        let begin = Instant::now();
        let mut pinger = Pinger::new(c3, C1);
        let lost = (0..20).take_while(|_| !pinger.ping(84)).count();
        assert_eq!(lost, 0, "step {step}: of those that could know");
        let took = begin.elapsed();
        say(&format!("step {step}: unanswered {unanswered}, then c3 reaches it in {took:?}"));
        let place = if step % 2 == 1 { "h2" } else { "h1" };
        for own in 0..2 {
            // Nobody claims it where a session has ended that is about to come back.
            wait_for("both hosts agree where it is", || {
                let said = case.daemons[own].attempt(&["vport", "show", &mac]).stdout;
                let answer: Value = serde_json::from_slice(&said).unwrap_or_default();
                answer["vport"]["host"] == place
            });
        }
    }
    let vport = case.ask(0, &["vport", "history", &mac])["vport"].take();
    assert_eq!(vport["history"].as_array().unwrap().len(), 4, "{vport}");
    assert_eq!(vport["moves"], 4, "{vport}");
}

#[test]
#[ignore = "live: needs root"]
fn unbound_source_address_at_bound_port_dropped_counted() {
    if skip("live::fabric", &[]) {
        return;
    }
    for workers in WORKERS {
        refuse_what_is_not_bound(workers);
    }
}

fn refuse_what_is_not_bound(workers: usize) {
    let case = Case::new("spoof", workers);
    let [c1, _, c3, _] = &case.containers;
    c3.ping(C4, 1);
    let spoofed = |reason: &str| {
        let key = ("bound".to_owned(), reason.to_owned());
        case.daemons[0].drops().get(&key).copied().unwrap_or(0)
    };
    // Another IP address, with the bound MAC.
    c3.ip("addr add 10.42.0.77/24 dev t0");
    c3.udp(Ipv4Addr::new(10, 42, 0, 77), 7).send_to(b"it is me", (C4, 7)).unwrap();
    wait_for("its frames end", || spoofed("spoofed_ip") > 0);
    c3.ip("addr del 10.42.0.77/24 dev t0");
    // Another MAC.
    c3.ip("link set t0 address 02:42:00:00:00:66");
    c3.udp(C3, 7).send_to(b"it is me", (C4, 7)).unwrap();
    wait_for("its frames end", || spoofed("spoofed_mac") > 0);
    let known: Vec<_> = (0..2).map(|own| case.vports(own)).collect();
    for vports in &known {
        let macs: Vec<_> = vports.iter().map(|vport| vport.0.as_str()).collect();
        assert!(!macs.contains(&"02:42:00:00:00:66"), "{known:?}");
        assert!(vports.iter().all(|vport| !vport.1.contains("10.42.0.77")), "{known:?}");
    }
    // Others are not affected.
    c1.ping(C4, 5);
}
