//! Bound ports of two hosts: addresses that they share, and bindings that one takes over from the
//! other.
//!
//! ```text
//!   c1 ─┐                      ┌─ c2
//!       ├ h1 up0 ═════ up0 h2 ─┤
//!   h1 ─┘                      └─ c3
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::rig::pair::Pair;
use crate::rig::ping::Pinger;
use crate::rig::stream::{Change, Stream};
use crate::rig::{Daemon, Net, Netns, are_connected, cable, say, skip, wait_for};
use serde_json::Value;

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
const VIP: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 40);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 41);

/// Returns the holder of an address, in the view of a host.
fn holder(daemon: &Daemon, ip: Ipv4Addr) -> Option<Value> {
    let rows = daemon.ask(&["vport", "list"])["vports"].take();
    let has_it = |row: &&Value| row["ips"].as_array().unwrap().contains(&ip.to_string().into());
    rows.as_array().unwrap().iter().find(has_it).cloned()
}

/// Waits until both hosts agree on the holder of an address.
fn both_say(case: &Pair, ip: Ipv4Addr, host: &str) {
    for daemon in &case.daemons {
        wait_for(&format!("{ip} is at {host}"), || {
            holder(daemon, ip).is_some_and(|row| row["host"] == host)
        });
    }
}

fn add(case: &Pair, own: usize, at: usize, more: &[&str]) -> Result<Value, String> {
    let netns = case.containers[at].name();
    let words = [&["port", "add", "--netns", netns, "--vnet", "blue"], more].concat();
    let output = case.daemons[own].attempt(&words);
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into()),
    }
}

fn has_vip(netns: &Netns, has: bool) {
    let what = if has { "add" } else { "del" };
    netns.ip(&format!("addr {what} {VIP}/24 dev eth0"));
    if has {
        // A missing answer to an announcement is a failure to some programs.
        netns.attempt(&format!("arping -q -U -c 1 -i eth0 -S {VIP} {VIP}"));
    }
}

fn reaches(netns: &Netns, ip: Ipv4Addr) -> bool {
    let mut pinger = Pinger::new(netns, ip);
    (0..20).any(|_| pinger.ping(84))
}

#[test]
#[ignore = "live: needs root"]
fn bound_ports_share_allowed_ip_across_restart() {
    if skip("live::bindings", &["arping"]) {
        return;
    }
    let mut case = Pair::new("shared", 4);
    let allow = ["--allow-ip", "10.42.0.40,fd42::/64"];
    for (own, at, ip) in [(0, 0, "10.42.0.1/24"), (1, 1, "10.42.0.2/24")] {
        let added = add(&case, own, at, &[&["--ip", ip][..], &allow].concat()).unwrap();
        assert_eq!(added["allow_ip"], serde_json::json!(["10.42.0.40", "fd42::/64"]));
    }
    add(&case, 1, 2, &["--ip", "10.42.0.3/24"]).unwrap();
    let mut holder_before: Option<usize> = None;
    for at in [0, 1, 0] {
        if let Some(before) = holder_before.replace(at) {
            has_vip(&case.containers[before], false);
        }
        has_vip(&case.containers[at], true);
        both_say(&case, VIP, ["h1", "h2"][at]);
        let row = holder(&case.daemons[1], VIP).unwrap();
        assert_eq!(
            (&row["origin"], &row["shared"]),
            (&"bound".into(), &[VIP.to_string()][..].into())
        );
        assert!(reaches(&case.containers[2], VIP));
    }
    // A source that is on no list is dropped.
    case.containers[0].ip(&format!("addr add {OTHER}/24 dev eth0"));
    case.containers[0].attempt(&format!("ping -c 1 -W 1 -I {OTHER} {C3}"));
    assert!(case.daemons[0].drops().keys().any(|(_, reason)| reason == "spoofed_ip"));
    assert!(holder(&case.daemons[1], OTHER).is_none());
    // The list outlives both processes.
    let name = case.containers[0].name().to_owned();
    let listed = |daemon: &Daemon| daemon.row("ports", "port", &name)["allow_ip"].clone();
    assert_eq!(listed(&case.daemons[0]), serde_json::json!(["10.42.0.40", "fd42::/64"]));
    case.daemons[0].kill_both();
    case.daemons[0].restart_control();
    wait_for("the port is there again", || {
        case.daemons[0].show("ports").as_array().unwrap().iter().any(|row| row["port"] == name)
    });
    assert_eq!(listed(&case.daemons[0]), serde_json::json!(["10.42.0.40", "fd42::/64"]));
    both_say(&case, C1, "h1");
    wait_for("it is reached again", || reaches(&case.containers[2], VIP));
}

#[test]
#[ignore = "live: needs root"]
fn second_binding_refused_or_moved_on_request() {
    if skip("live::bindings", &[]) {
        return;
    }
    let mut case = Pair::new("moved", 4);
    let mac = "02:42:00:00:00:01";
    add(&case, 0, 0, &["--ip", "10.42.0.1/24", "--mac", mac]).unwrap();
    add(&case, 1, 1, &["--ip", "10.42.0.2/24"]).unwrap();
    both_say(&case, C1, "h1");
    // At another host, by its MAC and by its address; and at the same host.
    let refused = |own: usize, more: &[&str], words: &[&str]| {
        let error = add(&case, own, 2, more).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    };
    refused(1, &["--ip", "10.42.0.9/24", "--mac", mac], &["bound at h1, to port", "`--move`"]);
    let ip = ["--ip", "10.42.0.1/24"];
    refused(1, &ip, &["bound at h1, to port", mac, "`--allow-ip 10.42.0.1`", "`--move`"]);
    let first = case.containers[0].name();
    refused(0, &ip, &["bound here at h1", first, "`--allow-ip 10.42.0.1`"]);
    assert!(reaches(&case.containers[1], C1), "nothing has changed");
    // The binding is taken over, with the MAC.
    add(&case, 1, 2, &["--ip", "10.42.0.1/24", "--mac", mac, "--move"]).unwrap();
    both_say(&case, C1, "h2");
    wait_for("it is said", || case.daemons[0].log().contains("binding-taken"));
    assert!(reaches(&case.containers[1], C1));
    let before = spoofed(&case.daemons[0]);
    case.containers[0].attempt("ping -c 1 -W 1 10.42.0.2");
    assert!(spoofed(&case.daemons[0]) > before, "the port that had it is bound to it no more");
    // It stays there when its old host starts again with its list.
    case.daemons[0].kill_both();
    case.daemons[0].restart_control();
    are_connected([&case.daemons[0]]);
    wait_for("it is said again", || case.daemons[0].log().matches("binding-taken").count() > 1);
    both_say(&case, C1, "h2");
    assert!(reaches(&case.containers[1], C1));
    let status = case.daemons[0].ask(&["fabric", "status"]);
    assert!(status.get("bound_twice").is_none(), "{status}");
}

fn spoofed(daemon: &Daemon) -> u64 {
    let drops = daemon.drops();
    drops.iter().filter(|((_, reason), _)| reason == "spoofed_mac").map(|(_, frames)| frames).sum()
}

/// Both files bind the same MAC, and the hosts did not know each other when they started.
#[test]
#[ignore = "live: needs root"]
fn duplicate_binding_in_two_files_reported_lower_wins() {
    if skip("live::bindings", &[]) {
        return;
    }
    const TWICE: &str = "02:42:00:00:00:99";
    let case = Pair::with("twice", 4, |_, _| {
        format!(
            "[[port]]\nname = \"twice\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t9\"\nmac = \
             \"{TWICE}\"\n"
        )
    });
    for daemon in &case.daemons {
        wait_for("both are known", || {
            let vport = daemon.ask(&["vport", "show", TWICE])["vport"].take();
            vport["host"] == "h1" && vport["others"].as_array().unwrap().len() == 1
        });
        let status = daemon.ask(&["fabric", "status"]);
        let row = &status["bound_twice"][0];
        assert_eq!(row["what"], TWICE);
        assert_eq!([&row["first"], &row["second"]], ["h1", "h2"]);
        assert!(daemon.print(&["fabric", "status"]).contains("bound at two hosts"));
    }
    wait_for("the other host says so", || case.daemons[1].log().contains("bound-twice"));
    let trace =
        ["trace", "--vnet", "blue", "--from", TWICE, "--to", &C2.to_string(), "--port", "twice"];
    let traced = case.daemons[1].attempt(&trace);
    let text = String::from_utf8_lossy(&traced.stdout).into_owned();
    assert!(text.contains("bound_twice"), "{text}");
}

/// A stream goes on while the address that it is for is taken over by a port of another host. What
/// is on its way to the host that had it, when that has given it up already, ends there, counted.
#[test]
#[ignore = "live: needs root"]
fn taken_binding_loses_no_frame_uncounted() {
    if skip("live::bindings", &["arping"]) {
        return;
    }
    const MAC: &str = "02:42:00:00:00:01";
    for sender in 0..2 {
        let case = Pair::new(&format!("gap{sender}"), 4);
        add(&case, 0, 0, &["--ip", "10.42.0.1/24", "--mac", MAC]).unwrap();
        add(&case, sender, 1, &["--ip", "10.42.0.2/24"]).unwrap();
        both_say(&case, C1, "h1");
        assert!(reaches(&case.containers[1], C1));
        let [old, user, new] = &case.containers;
        let stream = Stream::start(user, C1, [old, new]);
        std::thread::sleep(Duration::from_millis(300));
        add(&case, 1, 2, &["--ip", "10.42.0.1/24", "--mac", MAC, "--move"]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let change = Change::of(stream.stop());
        let drops = case.daemons.iter().flat_map(|daemon| daemon.drops());
        let counted: u64 = drops.map(|(_, frames)| frames).sum();
        let from = ["had", "takes"][sender];
        say(&format!("sender at the host that {from} it: {change:?}, {counted} drops counted"));
        assert!(change.lost <= counted, "{change:?} and {counted} drops");
    }
    for sender in 0..2 {
        let from = ["had", "takes"][sender];
        say(&format!("the same on Linux bridges, host that {from} it: {:?}", on_bridges(sender)));
    }
}

/// Makes two bridges with the kernel's VXLAN, and moves an address between two machines of one MAC
/// by an announcement.
fn on_bridges(sender: usize) -> Change {
    let mut net = Net::new("bridges");
    let hosts = ["h1", "h2"].map(|name| net.netns(name));
    cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
    for (own, host) in hosts.iter().enumerate() {
        host.ip("link add br0 type bridge forward_delay 0");
        let (local, remote) = (own + 1, 2 - own);
        host.ip(&format!(
            "link add vx0 type vxlan id 7 local 192.0.2.{local} remote 192.0.2.{remote} dev up0 \
             dstport 4789"
        ));
        host.ip("link set vx0 master br0 up");
        host.ip("link set br0 up");
    }
    let machines = [(0, "02:42:00:00:00:01", C1), (sender, "02:42:00:00:00:02", C2)];
    let machines = [machines[0], machines[1], (1, machines[0].1, C1)];
    let [old, user, new] = [0, 1, 2].map(|at| {
        let ((host, mac, ip), netns) = (machines[at], net.netns(&format!("c{at}")));
        let name = netns.name();
        hosts[host].ip(&format!("link add p{at} type veth peer name eth0 netns {name}"));
        hosts[host].ip(&format!("link set p{at} master br0 up"));
        netns.ip(&format!("link set eth0 address {mac} mtu 1450"));
        netns.ip(&format!("addr add {ip}/24 dev eth0"));
        if at < 2 {
            netns.ip("link set eth0 up");
        }
        netns
    });
    assert!(reaches(&user, C1));
    let stream = Stream::start(&user, C1, [&old, &new]);
    std::thread::sleep(Duration::from_millis(300));
    new.ip("link set eth0 up");
    new.attempt(&format!("arping -q -U -c 1 -i eth0 -S {C1} {C1}"));
    std::thread::sleep(Duration::from_millis(300));
    Change::of(stream.stop())
}
