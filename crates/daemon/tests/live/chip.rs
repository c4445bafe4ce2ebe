//! The kernel as the chip of a host: known addresses are forwarded by it, everything else by the
//! switch, and its tables follow what the switch knows.
//!
//! ```text
//!   c1 ─ slp... ─ slb100 ─ slx100 ─┤ h1 ├─ br0 ─┤ h2 ├─ slx100 ─ slb100 ─ slp... ─ c2
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::iperf;
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Netns, skip, wait_for};

const KERNEL: &str = "\n[chip]\nkind = \"kernel\"\n";

/// Makes hosts whose chip is the kernel, with a container each.
fn hosts(word: &str, count: usize, chip: &str) -> Bridge {
    let bridge = Bridge::waiting(word, count, |_, _| chip.to_owned());
    bridge.become_fabric();
    (0..count).for_each(|own| add(&bridge, own, own));
    bridge
}

/// Adds a port of a container to the network of its host.
fn add(bridge: &Bridge, own: usize, container: usize) {
    let (netns, ip) = (bridge.containers[container].name(), format!("{}/24", ip(container)));
    let name = format!("c{}", container + 1);
    bridge.daemons[own].says(&[
        "port", "add", "--netns", netns, "--vnet", "blue", "--ip", &ip, "--name", &name, "--kind",
        "kernel",
    ]);
}

fn chip(daemon: &Daemon) -> Value {
    // A data process may just be starting.
    let mut row = Value::Null;
    wait_for("data answers", || {
        row = daemon.try_show("chip").map_or(Value::Null, |answer| answer["chip"].clone());
        !row.is_null()
    });
    row
}

fn number(daemon: &Daemon, key: &str) -> u64 {
    chip(daemon)[key].as_u64().unwrap_or_else(|| panic!("{key} of {}", chip(daemon)))
}

/// Waits until frames of `from` to `to` are the kernel's.
fn wait_until_offloaded(bridge: &Bridge, from: usize, to: Ipv4Addr) {
    let mut pinger =
        Pinger::with_patience(&bridge.containers[from], to, Duration::from_millis(500));
    wait_for("the kernel forwards", || {
        // What it shows is up to 200 ms old.
        std::thread::sleep(Duration::from_millis(250));
        let before = number(&bridge.daemons[from], "forwarded");
        let answered = (0..10).filter(|_| pinger.ping(84)).count();
        std::thread::sleep(Duration::from_millis(250));
        answered == 10 && number(&bridge.daemons[from], "forwarded") >= before + 20
    });
}

/// Entries of the kernel for endpoints: lines of `bridge fdb` that are marked.
fn entries(host: &Netns) -> Vec<String> {
    let text = host.run("bridge fdb show");
    text.lines().filter(|line| line.contains("extern_learn")).map(str::to_owned).collect()
}

#[test]
#[ignore = "live: needs root"]
fn kernel_forwards_what_the_fabric_knows() {
    if skip("kernel_forwards_what_the_fabric_knows", &["iperf3", "bridge"]) {
        return;
    }
    let bridge = hosts("chip", 4, KERNEL);
    let h = &bridge.daemons;
    assert_eq!(chip(&h[0])["kind"], "kernel");
    assert!(
        entries(&bridge.hosts[0]).iter().all(|row| row.contains("slp")),
        "{:?}",
        entries(&bridge.hosts[0])
    );
    wait_until_offloaded(&bridge, 0, ip(1));
    // An entry each way, and hosts that have no part in it keep no tunnel.
    let rows =
        |host: &Netns, word: &str| entries(host).iter().filter(|row| row.contains(word)).count();
    for own in [0, 1] {
        let (bridged, tunnelled) =
            (rows(&bridge.hosts[own], "master"), rows(&bridge.hosts[own], "self"));
        assert_eq!((bridged, tunnelled), (2, 1), "h{}: {:?}", own + 1, entries(&bridge.hosts[own]));
    }
    for own in [2, 3] {
        assert_eq!(rows(&bridge.hosts[own], "dst"), 0, "{:?}", entries(&bridge.hosts[own]));
        assert_eq!(number(&h[own], "flows"), 0);
    }
    // TCP goes by the kernel, and the switch sees next to nothing of it.
    let server = iperf::Server::start(&bridge.containers[1], ip(1));
    let before = h[0].ask(&["show", "ports"]);
    let forwarded = number(&h[0], "forwarded");
    let rate = server.rate(&bridge.containers[0], 2, "");
    let after = h[0].ask(&["show", "ports"]);
    let of_port = |answer: &Value| {
        let rows = answer["ports"].as_array().unwrap();
        rows.iter().find(|row| row["port"] == "c1").unwrap()["rx_frames"].as_u64().unwrap()
    };
    let seen = of_port(&after) - of_port(&before);
    wait_for("frames are counted", || number(&h[0], "forwarded") > forwarded + 1_000);
    let forwarded = number(&h[0], "forwarded") - forwarded;
    eprintln!("{rate} bit/s, {forwarded} frames by the kernel, {seen} by the switch");
    assert!(seen * 20 < forwarded, "{seen} of {forwarded} frames went by the switch");
    let lossless = after["ports"][0]["lossless"].as_str().unwrap().to_owned();
    assert!(lossless.starts_with("no, needs `kind = \"software\"`"), "{lossless}");
}

#[test]
#[ignore = "live: needs root"]
fn kernel_forwards_on_without_data() {
    if skip("kernel_forwards_on_without_data", &["bridge"]) {
        return;
    }
    let bridge = hosts("fail-static", 2, KERNEL);
    let h = &bridge.daemons;
    wait_until_offloaded(&bridge, 0, ip(1));
    let before = entries(&bridge.hosts[0]);
    let mut pinger =
        Pinger::with_patience(&bridge.containers[0], ip(1), Duration::from_millis(500));
    let data = h[0].data_pid();
    h[0].kill_data();
    // Until the next process has taken over, and for a while after.
    let mut lost = 0;
    let mut ping = |pinger: &mut Pinger| lost += u32::from(!pinger.ping(84));
    wait_for("another data process runs", || {
        (0..20).for_each(|_| ping(&mut pinger));
        h[0].try_show("chip").is_some() && h[0].data_pid() != data
    });
    (0..200).for_each(|_| ping(&mut pinger));
    assert_eq!(lost, 0, "the kernel goes on, and the next process takes its tables over");
    wait_until_offloaded(&bridge, 0, ip(1));
    assert_eq!(entries(&bridge.hosts[0]).len(), before.len(), "{before:?}");
    // An upgrade starts data anew, and nobody notices.
    let upgrade = std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| h[0].says(&["upgrade"]));
        let mut lost = 0;
        while !upgrade.is_finished() {
            lost += u32::from(!pinger.ping(84));
        }
        assert_eq!(lost, 0);
        upgrade.join().unwrap()
    });
    assert!(upgrade.contains("the kernel forwards on meanwhile"), "{upgrade}");
}

#[test]
#[ignore = "live: needs root"]
fn chip_follows_moves_and_departures() {
    if skip("chip_follows_moves_and_departures", &["bridge"]) {
        return;
    }
    let bridge = hosts("moves", 3, KERNEL);
    let h = &bridge.daemons;
    wait_until_offloaded(&bridge, 0, ip(1));
    // The container of h2 moves to h3, with its address.
    h[1].says(&["port", "del", "c2"]);
    add(&bridge, 2, 1);
    wait_until_offloaded(&bridge, 0, ip(1));
    let to =
        entries(&bridge.hosts[0]).into_iter().filter(|row| row.contains("dst")).collect::<Vec<_>>();
    assert_eq!(to.len(), 1, "{to:?}");
    assert!(to[0].contains("dst 192.0.2.3"), "{to:?}");
    // Nothing stays of a port that is gone.
    h[2].says(&["port", "del", "c2"]);
    let has_flow = |own: usize| entries(&bridge.hosts[own]).iter().any(|row| row.contains("dst"));
    wait_for("the flow to it is gone", || !has_flow(0));
    h[0].says(&["port", "del", "c1"]);
    wait_for("no flow is left", || (0..3).all(|own| !has_flow(own)));
    wait_for("its device is gone", || !bridge.hosts[0].run("ip -o link").contains("slp"));
    for daemon in h {
        assert_eq!(number(daemon, "refused"), 0, "{}", daemon.log());
    }
}

#[test]
#[ignore = "live: needs root"]
fn small_chip_keeps_what_is_used() {
    if skip("small_chip_keeps_what_is_used", &["bridge"]) {
        return;
    }
    let small = "\n[chip]\nkind = \"kernel\"\nmacs = 3\nflows = 1\n";
    let bridge = hosts("small", 3, small);
    let h = &bridge.daemons;
    wait_until_offloaded(&bridge, 0, ip(1));
    // Another peer finds no place as long as the first one is used, and is reached all the same.
    let mut other = Pinger::with_patience(&bridge.containers[0], ip(2), Duration::from_millis(500));
    let mut first = Pinger::with_patience(&bridge.containers[0], ip(1), Duration::from_millis(500));
    wait_for("the other answers", || other.ping(84));
    let lost = (0..100).filter(|_| !(first.ping(84) && other.ping(84))).count();
    assert_eq!(lost, 0);
    assert_eq!(number(&h[0], "flows"), 1);
    // Once the first one is silent, the other takes its place.
    wait_until_offloaded(&bridge, 0, ip(2));
    assert_eq!(number(&h[0], "flows"), 1);
    assert!(number(&h[0], "evicted") > 0, "{}", chip(&h[0]));
}

#[test]
#[ignore = "live: needs root"]
fn changes_behind_its_back_are_noticed() {
    if skip("changes_behind_its_back_are_noticed", &["bridge"]) {
        return;
    }
    let bridge = hosts("mended", 2, KERNEL);
    let h = &bridge.daemons;
    wait_until_offloaded(&bridge, 0, ip(1));
    let before = entries(&bridge.hosts[0]);
    let row = before.iter().find(|row| row.contains("dst")).unwrap();
    let mac = row.split_whitespace().next().unwrap();
    for command in [
        format!("bridge fdb del {mac} dev slx100 self"),
        format!("bridge fdb del {mac} dev slx100 master"),
        "ip link set slx100 nomaster".to_owned(),
        "ip link del slb100".to_owned(),
    ] {
        let mended = number(&h[0], "mended");
        bridge.hosts[0].run(&command);
        wait_for(&format!("`{command}` is put right"), || {
            let mut now = entries(&bridge.hosts[0]);
            let mut then = before.clone();
            now.sort();
            then.sort();
            number(&h[0], "mended") > mended && now.len() == then.len()
        });
        wait_until_offloaded(&bridge, 0, ip(1));
    }
    assert!(h[0].log().contains("somebody changed the kernel's tables"), "{}", h[0].log());
}

#[test]
#[ignore = "live: needs root"]
fn kernel_ports_need_kernel_chip() {
    if skip("kernel_ports_need_kernel_chip", &[]) {
        return;
    }
    let bridge = Bridge::fabric("no-chip", 1);
    let netns = bridge.containers[0].name();
    bridge.daemons[0].refuses(
        &["port", "add", "--netns", netns, "--vnet", "blue", "--kind", "kernel"],
        &["the kernel is not the chip of this host", "`[chip]`", "--kind veth"],
    );
    assert_eq!(chip(&bridge.daemons[0])["kind"], "software");
}
