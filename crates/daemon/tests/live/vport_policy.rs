//! Policies of single vports in the configuration of a fabric: committed at one of three hosts, in
//! force at the host that has the port, and gone with a roll-back.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use std::io::{Read as _, Write as _};

use crate::rig::bridge::{Bridge, ip};
use crate::rig::ping::{Pinger, Pings};
use crate::rig::{Daemon, Netns, skip, wait_for};
use serde_json::Value;

/// Bytes of a transfer.
const SIZE: usize = 2 << 20;
/// Rate of a policy.
const MBPS: usize = 20;
/// Address that an endpoint may use beside its own.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 77);

/// Transfers bytes by TCP, and returns the time.
fn transfer(from: &Netns, to: &Netns, at: Ipv4Addr) -> Duration {
    let at = SocketAddrV4::new(at, 5_001);
    let server = to.inside(|| TcpListener::bind(at).unwrap());
    let receiver = std::thread::spawn(move || {
        let mut received = Vec::new();
        server.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received.len()
    });
    let begin = Instant::now();
    let mut client = from.inside(|| TcpStream::connect(at).unwrap());
    client.write_all(&vec![7; SIZE]).unwrap();
    drop(client);
    assert_eq!(receiver.join().unwrap(), SIZE);
    begin.elapsed()
}

/// Returns the policy of the endpoint behind a port of a host.
fn policy(daemon: &Daemon, own: usize) -> Value {
    let row = daemon.ask(&["vport", "show", &ip(own).to_string(), "--vnet", "blue"]);
    row["vport"]["policy"].clone()
}

/// Returns true if an address answers.
fn answers(from: &Netns, to: Ipv4Addr) -> bool {
    Pinger::with_patience(from, to, Duration::from_millis(200)).ping(84)
}

/// Returns the frames that a host received at a port in one priority.
fn received(daemon: &Daemon, port: &str, priority: u8) -> u64 {
    let audit = daemon.show("audit");
    let mut rows = audit["rows"].as_array().unwrap().iter();
    let row = rows.find(|row| row["port"] == port && row["priority"] == priority);
    row.map_or(0, |row| row["frames"]["received"].as_u64().unwrap())
}

/// Makes a fabric of three hosts with a container at each, `c1` to `c3`.
fn three(word: &str) -> Bridge {
    let bridge = Bridge::fabric(word, 3);
    (0..3).for_each(|own| _ = bridge.add(own));
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        wait_for("a container is reached", || answers(&bridge.containers[from], ip(to)));
    }
    bridge
}

#[test]
#[ignore = "live: needs root"]
fn policy_of_vport_holds_at_its_host() {
    if skip("policy_of_vport_holds_at_its_host", &[]) {
        return;
    }
    let mut bridge = three("vpolicy");
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    let pings = Pings::start(&bridge.containers[0], ip(1));
    let kept = h1.revision();
    let least = Duration::from_secs_f64(SIZE as f64 * 8.0 / (MBPS as f64 * 1e6));
    let [c1, _, c3] = &bridge.containers[..] else { unreachable!() };
    let before = (0..3).map(|_| transfer(c1, c3, ip(2))).min().unwrap();
    assert!(before < least, "without a policy it takes {before:?}");

    // The rate of a port at h3, set at h2.
    let set = ["vport", "set", "c3", "--vnet", "blue", "--rate", "20"];
    let said = h2.says(&set);
    assert!(said.contains("vport blue/c3: service_mbps = 20\nrevision "), "{said}");
    bridge.all_have_caught_up();
    wait_for("it is in force", || policy(h3, 2)["service_mbps"] == 20);
    assert_eq!(policy(h3, 2)["of_fabric"], serde_json::json!(["service_mbps"]));
    let took = transfer(c1, c3, ip(2));
    assert!(took > least * 9 / 10, "{took:?} for what {MBPS} Mbit/s takes {least:?} for");
    let limited = h1.revision();

    // After a restart of both processes it holds from the start.
    bridge.daemons[2].kill_both();
    bridge.daemons[2].restart_control();
    bridge.all_have_caught_up();
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    let [c1, _, c3] = &bridge.containers[..] else { unreachable!() };
    wait_for("the container is reached again", || answers(c1, ip(2)));
    assert_eq!(policy(h3, 2)["service_mbps"], 20);
    let took = transfer(c1, c3, ip(2));
    assert!(took > least * 9 / 10, "{took:?} after a restart");

    // The priority of frames without one: ARP.
    h3.says(&["vport", "set", "c1", "--vnet", "blue", "--priority", "5"]);
    bridge.all_have_caught_up();
    wait_for("it is in force", || policy(h1, 0)["priority"] == 5);
    let arps = received(h1, "c1", 5);
    c1.ip("neigh flush dev eth0");
    assert!(answers(c1, ip(2)));
    wait_for("ARP has the priority", || received(h1, "c1", 5) > arps);

    // As a text, and back.
    let text = h1.says(&["config", "show"]);
    assert!(text.contains("[vport.blue.c1]\npriority = 5\n"), "{text}");
    assert!(text.contains("[vport.blue.c3]\nservice_mbps = 20\n"), "{text}");
    let file = bridge.net.file("candidate.toml");
    fs::write(&file, text.replace("service_mbps = 20", "service_mbps = 500")).unwrap();
    h2.says(&["config", "load", file.to_str().unwrap()]);
    let said = h2.says(&["config", "diff"]);
    assert_eq!(said, "vport blue/c3: service_mbps = 500\n");
    h2.says(&["config", "commit"]);
    bridge.all_have_caught_up();
    wait_for("it is in force", || policy(h3, 2)["service_mbps"] == 500);
    h1.says(&["config", "rollback", &limited.to_string()]);
    bridge.all_have_caught_up();
    wait_for("it is as before", || policy(h3, 2)["service_mbps"] == 20);
    wait_for("it is as before", || policy(h1, 0)["priority"] == 0);
    h1.says(&["config", "rollback", &kept.to_string()]);
    bridge.all_have_caught_up();
    wait_for("none is left", || policy(h3, 2)["of_fabric"].is_null());
    assert!(policy(h3, 2)["service_mbps"].is_null());
    let took = (0..3).map(|_| transfer(c1, c3, ip(2))).min().unwrap();
    assert!(took < least, "it is not limited any more: {took:?}");
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings between others");
    for daemon in &bridge.daemons {
        daemon.drained();
        daemon.assert_lossless();
    }
}

#[test]
#[ignore = "live: needs root"]
fn list_of_addresses_opens_and_closes() {
    if skip("list_of_addresses_opens_and_closes", &[]) {
        return;
    }
    let bridge = three("vallow");
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    let [c1, c2, _] = &bridge.containers[..] else { unreachable!() };
    c2.ip(&format!("addr add {SHARED}/32 dev eth0"));
    assert!(!answers(c1, SHARED), "it may not use it");
    h3.says(&["vport", "set", "c2", "--vnet", "blue", "--allow", "10.42.0.77,10.42.1.0/24"]);
    bridge.all_have_caught_up();
    wait_for("it answers", || answers(c1, SHARED));
    let shown = h2.says(&["vport", "show", &ip(1).to_string(), "--vnet", "blue"]);
    assert!(shown.contains("10.42.0.77, 10.42.1.0/24"), "{shown}");
    let ports = h2.show("ports");
    assert!(ports.to_string().contains("10.42.1.0/24"), "{ports}");
    h1.says(&["vport", "clear", "c2", "--vnet", "blue"]);
    bridge.all_have_caught_up();
    wait_for("it is taken out at every host", || {
        bridge.daemons.iter().all(|host| {
            let rows = host.ask(&["vport", "list"]).to_string();
            !rows.contains(&SHARED.to_string())
        })
    });
    c1.ip("neigh flush dev eth0");
    assert!(!answers(c1, SHARED), "it may not use it any more");
    assert!(answers(c1, ip(1)), "its own address is untouched");
    h1.refuses(&["vport", "clear", "c2", "--vnet", "blue"], &["blue/c2 has no policy"]);
    bridge.daemons.iter().for_each(Daemon::assert_lossless);
}

#[test]
#[ignore = "live: needs root"]
fn policy_that_port_cannot_have_is_vetoed() {
    if skip("policy_that_port_cannot_have_is_vetoed", &[]) {
        return;
    }
    let bridge = three("vveto");
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    h2.says(&["port", "add", "--tap", "vm7", "--vnet", "blue"]);
    let before = h1.revision();
    let allow = ["vport", "set", "vm7", "--vnet", "blue", "--allow", "10.42.0.9"];
    h1.refuses(&allow, &["nothing has changed", "h2 refuses", "blue/vm7", "leave `allow_ip` out"]);
    for (words, part) in [
        (&["vport", "set", "c1", "--vnet", "pink", "--rate", "5"][..], "no network `pink`"),
        (&["vport", "set", "c1", "--vnet", "blue", "--rate", "0"], "0 Mbit/s, is not within"),
        (&["vport", "set", "c1", "--vnet", "blue", "--priority", "8"], "above 7"),
        (&["vport", "set", "c1", "--vnet", "blue", "--allow", "10.0.0.1/24"], "10.0.0.0/24"),
    ] {
        h3.refuses(words, &[part]);
    }
    assert_eq!(h1.revision(), before, "nothing has changed");
    // A port that nobody has may come, at any host; it has to fit its policy then.
    let accepted = h1.says(
        &[&["vport", "set", "vm8", "--vnet", "blue", "--check"][..], &["--allow", "10.42.0.9"]]
            .concat(),
    );
    assert!(accepted.contains("accepted by"), "{accepted}");
    h1.says(&["vport", "set", "vm8", "--vnet", "blue", "--allow", "10.42.0.9", "--rate", "5"]);
    bridge.all_have_caught_up();
    h3.refuses(&["port", "add", "--tap", "vm8", "--vnet", "blue"], &["blue/vm8", "bind the port"]);
    let mac = "02:42:00:00:00:08";
    h3.says(&["port", "add", "--tap", "vm8", "--vnet", "blue", "--mac", mac]);
    let row = h3.ask(&["vport", "show", mac, "--vnet", "blue"]);
    assert_eq!(row["vport"]["policy"]["service_mbps"], 5, "{row}");
    assert_eq!(row["vport"]["policy"]["allow_ip"], serde_json::json!(["10.42.0.9"]));
    // The network does not go under its policies.
    h2.says(&["vnet", "create", "red", "--vni", "200"]);
    h2.says(&["vport", "set", "x", "--vnet", "red", "--priority", "1"]);
    bridge.all_have_caught_up();
    h1.refuses(&["vnet", "delete", "red"], &["vports with a policy: x", "vport clear"]);
    h1.says(&["vport", "clear", "x", "--vnet", "red"]);
    bridge.all_have_caught_up();
    h1.says(&["vnet", "delete", "red"]);
}
