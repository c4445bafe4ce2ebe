//! Two data workers on one host: containers of each reach those of the other, and those of another
//! host through an underlay that one of them serves, or both.
//!
//! ```text
//!   worker 1 ├ a ┐        ┌ c
//!            │   ├ h0 ════ h1
//!   worker 0 ├ b ┘ up0  up0
//! ```

use std::net::Ipv4Addr;

use crate::rig::iperf::Server;
use crate::rig::kernel::Kernel;
use crate::rig::{Daemon, Net, Netns, cable, say, skip};

const VTEPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const A: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const C: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 3);

fn mac(of: Ipv4Addr) -> String {
    format!("02:50:00:00:00:0{}", of.octets()[3])
}

struct Kind {
    policy: &'static str,
    underlay: &'static str,
    link: &'static str,
}

fn host(
    at: usize,
    kind: &Kind,
    first: &str,
    ports: &[(&str, &Netns, Ipv4Addr, &str)],
    there: &[Ipv4Addr],
) -> String {
    let (own, other) = (VTEPS[at], VTEPS[1 - at]);
    let Kind { policy, underlay, link } = kind;
    let mut text = format!(
        r#"policy = "{policy}"
{first}
[underlay]
kind = "{underlay}"
device = "up0"
address = "{own}"
{link}
[[vnet]]
name = "blue"
vni = 50
[[peer]]
name = "other"
vtep = "{other}"
vnets = ["blue"]
"#
    );
    for (name, netns, address, more) in ports {
        let (netns, mac) = (netns.name(), mac(*address));
        text += &format!(
            r#"[[port]]
name = "{name}"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{netns}"
mac = "{mac}"
{more}
"#
        );
    }
    for address in there {
        let mac = mac(*address);
        text += &format!("[[vport]]\nvnet = \"blue\"\nmac = \"{mac}\"\npeer = \"other\"\n");
    }
    text
}

/// Checks two hosts of one kind of underlay, of which the first has two workers. Returns the worker
/// that serves that underlay.
fn is_one_switch(word: &'static str, kind: &Kind) -> Option<u64> {
    let mut net = Net::new(word);
    let (h0, h1) = (net.netns("h0"), net.netns("h1"));
    let (a, b, c) = (net.netns("a"), net.netns("b"), net.netns("c"));
    cable((&h0, "up0", "192.0.2.1/24"), (&h1, "up0", "192.0.2.2/24"));
    let ports = [("a", &a, A, "worker = 1"), ("b", &b, B, "worker = 0")];
    let two = host(0, kind, "workers = 2", &ports, &[C]);
    let one = host(1, kind, "", &[("c", &c, C, "")], &[A, B]);
    let hosts = [net.daemon(&h0, "h0", &two), net.daemon(&h1, "h1", &one)];
    for (netns, address) in [(&a, A), (&b, B), (&c, C)] {
        netns.ip(&format!("addr add {address}/24 dev t0"));
        netns.ip("link set t0 up");
    }
    for host in &hosts {
        host.next_hops_are_resolved();
    }
    let kernel = Kernel::watch(word, &net);
    let worker = |port: &str| hosts[0].row("placement", "port", port)["worker"].as_u64();
    assert_eq!((worker("a"), worker("b")), (Some(1), Some(0)));
    for (from, to) in [(&a, B), (&b, A), (&a, C), (&c, A), (&b, C), (&c, B)] {
        from.ping(to, 20);
    }
    let server = Server::start(&c, C);
    let there = server.rate(&a, 2, "--parallel 2") / 1_000_000;
    let back = server.rate(&a, 1, "--reverse") / 1_000_000;
    let beside = Server::start(&b, B);
    let across = beside.rate(&a, 1, "") / 1_000_000;
    say(&format!("{word}: {there} Mbit/s to the other host, {back} back, {across} across workers"));
    assert!(there >= 20 && back >= 20 && across >= 20);
    for host in &hosts {
        host.drained();
        host.assert_lossless();
    }
    if let Some(kernel) = kernel {
        kernel.assert_no_loss(&[0, 1].map(|at| (&hosts[at], "underlay", "up0")));
    }
    let top = hosts[0].ask(&["top", "--every-ms", "100", "--count", "1"]);
    assert_eq!(top["workers"].as_array().unwrap().len(), 2, "{top}");
    assert_eq!(top["ports"].as_array().unwrap().len(), 3, "{top}");
    let times = hosts[0].show("worker");
    let busy = |at: usize| times[at]["busy_ns"].as_u64().unwrap();
    assert!(busy(0) > 0 && busy(1) > 0, "{times}");
    // If all workers serve it, each bucket of flows has one of them.
    let rows = hosts[0].show("placement");
    let shared =
        rows.as_array().unwrap().iter().filter_map(|row| row["buckets"]["list"].as_array());
    let buckets: usize = shared.map(Vec::len).sum();
    assert_eq!(buckets, if worker("underlay").is_none() { 256 } else { 0 }, "{rows}");
    say(&hosts[0].print(&["show", "placement"]));
    assert_workers_go_first(&hosts[0]);
    worker("underlay")
}

/// Panics if a worker waits for the slice of another thread, as far as this kernel shows it. The
/// first worker is the main thread, which has the name of the program.
fn assert_workers_go_first(host: &Daemon) {
    let pid = host.data_pid();
    let mut workers = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().path();
        let name = std::fs::read_to_string(thread.join("comm")).unwrap();
        let told = std::fs::read_to_string(thread.join("sched")).unwrap_or_default();
        let slice = told.lines().find(|line| line.starts_with("se.slice"));
        if let (Some(slice), "sluice" | "worker-1") = (slice, name.trim()) {
            assert!(slice.ends_with(" 200000"), "{name}: {slice}");
            workers += 1;
        }
    }
    say(&format!("{workers} workers have a slice of 0.2 ms"));
}

#[test]
#[ignore = "live: needs root"]
fn two_workers_are_one_switch() {
    if skip("workers", &["iperf3"]) {
        return;
    }
    let l2 = Kind { policy: "ZZ", underlay: "l2", link: "link = { rate_mbps = 300 }" };
    // It goes to the worker with the fewest ports: after `a` and `b` that is the first one.
    assert_eq!(is_one_switch("workers", &l2), Some(0));
}

#[test]
#[ignore = "live: needs root"]
fn two_workers_share_an_underlay_of_sockets() {
    if skip("spread", &["iperf3"]) {
        return;
    }
    // A socket cannot be paused: its input bridges the time in which the other worker does not run.
    let link = "link = { in = { frames = 8192, bytes = 16000000 } }";
    let udp = Kind { policy: "ZL", underlay: "udp", link };
    assert_eq!(is_one_switch("spread", &udp), None, "all of them serve it");
}

/// A container's port leaves a worker with more load than the other one, while it sends.
#[test]
#[ignore = "live: needs root"]
fn container_port_moves_between_workers_under_load() {
    if skip("homes", &["iperf3"]) {
        return;
    }
    let mut net = Net::new("homes");
    let (h0, h1) = (net.netns("h0"), net.netns("h1"));
    let (a, b, c) = (net.netns("a"), net.netns("b"), net.netns("c"));
    let idle = [net.netns("d"), net.netns("e")];
    cable((&h0, "up0", "192.0.2.1/24"), (&h1, "up0", "192.0.2.2/24"));
    let link = "link = { in = { frames = 8192, bytes = 16000000 } }";
    let kind = Kind { policy: "ZL", underlay: "udp", link };
    // Two unused ports are at worker 1, so that `a` comes to worker 0, where `b` is.
    let [d, e] = [4, 5].map(|last| Ipv4Addr::new(10, 50, 0, last));
    let ports = [
        ("a", &a, A, ""),
        ("b", &b, B, "worker = 0"),
        ("d", &idle[0], d, "worker = 1"),
        ("e", &idle[1], e, "worker = 1"),
    ];
    let two = host(0, &kind, "workers = 2", &ports, &[C]);
    let one = host(1, &kind, "", &[("c", &c, C, "")], &[A, B]);
    let hosts = [net.daemon(&h0, "h0", &two), net.daemon(&h1, "h1", &one)];
    for (netns, address) in [(&a, A), (&b, B), (&c, C)] {
        netns.ip(&format!("addr add {address}/24 dev t0"));
        netns.ip("link set t0 up");
    }
    for host in &hosts {
        host.next_hops_are_resolved();
    }
    let row = |port: &str| hosts[0].row("placement", "port", port);
    let worker = |port: &str| row(port)["worker"].as_u64();
    assert_eq!((worker("a"), worker("b")), (Some(0), Some(0)), "{} {}", row("a"), row("b"));
    let (beside, there) = (Server::start(&b, B), Server::start(&c, C));
    let rate = beside.rate(&a, 4, "--parallel 2") / 1_000_000;
    say(&format!("homes: {rate} Mbit/s while a port moves: {}", row("a")));
    assert!(rate >= 20);
    assert_ne!(row("a")["why"], "that worker had the fewest ports", "{}", row("a"));
    assert_eq!(worker("b"), Some(0), "it is told where to be: {}", row("b"));
    for (from, to) in [(&a, B), (&b, A), (&a, C), (&c, A)] {
        from.ping(to, 20);
    }
    let (to, back) = (there.rate(&a, 1, ""), there.rate(&a, 1, "--reverse"));
    assert!(to >= 20_000_000 && back >= 20_000_000, "{to} and {back} bit/s");
    for host in &hosts {
        host.drained();
        host.assert_lossless();
    }
    say(&hosts[0].print(&["show", "placement"]));
}
