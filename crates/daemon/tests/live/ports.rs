//! Ports that are added and deleted while two hosts of a fabric run.
//!
//! ```text
//!   c1 ─┐                      ┌─ c2
//!       ├ h1 up0 ═════ up0 h2 ─┤
//!   h1 ─┘                      └─ c3
//! ```

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig;
use crate::rig::pair::{Pair, devices};
use crate::rig::ping::{Pinger, Pings};
use crate::rig::{Daemon, Netns, Process, say, skip, wait_for};

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
const ELSE: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 6);
const AGAIN: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 5);
const WAY_OUT: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 9);
const UNDERLAY_2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

#[test]
#[ignore = "live: needs root"]
fn containers_and_host_port_added_and_deleted_cleanly() {
    if skip("live::ports", &[]) {
        return;
    }
    let case = Pair::new("ports", 4);
    let [c1, c2, c3] = &case.containers;
    let begin = Instant::now();
    let added = case.add(0, 0, C1);
    say(&format!("added in {:?}: {added}", begin.elapsed()));
    assert_eq!(added["device"], "eth0");
    case.add(1, 1, C2);
    case.both_know(C1, true);
    case.both_know(C2, true);
    c1.ping(C2, 20);

    // The host itself, as a way out of the network.
    case.daemons[0].ask(&["port", "add", "--host", "--vnet", "blue", "--ip", "10.42.0.9/24"]);
    assert!(devices(&case.hosts[0]).contains(&"sl-blue".to_owned()));
    case.hosts[0].ping(C2, 3);
    c2.ping(WAY_OUT, 3);
    case.hosts[0].inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    c2.ip("route add default via 10.42.0.9");
    case.hosts[1].ip("route add 10.42.0.2/32 via 192.0.2.1");
    c2.ping(UNDERLAY_2, 3);

    // A process, and a device for a machine behind it.
    let mut sleep = c3.command("sleep");
    let sleep = sleep.arg("60").stdin(Stdio::null()).spawn().unwrap();
    let pid = sleep.id().to_string();
    let _sleep = Process(sleep);
    // `ip` enters the namespace before it becomes the program.
    wait_for("the process is in its namespace", || {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    let ip = ["--ip", "10.42.0.3/24", "--mac", "02:42:00:00:00:03"];
    let words = ["port", "add", "--pid", &pid, "--vnet", "blue", "--name", "three"];
    let added = case.daemons[1].ask(&[&words[..], &ip].concat());
    assert_eq!((&added["name"], &added["mac"]), (&"three".into(), &"02:42:00:00:00:03".into()));
    c1.ping(C3, 3);
    uses_its_port(&case);
    case.daemons[1].ask(&["port", "add", "--tap", "vm0", "--vnet", "blue"]);
    case.hosts[1].ip("addr add 10.42.0.4/24 dev vm0");
    case.hosts[1].ping(C1, 3);
    case.both_know(Ipv4Addr::new(10, 42, 0, 4), true);

    for (own, name) in [(0, "host-blue"), (1, "three"), (1, "vm0")] {
        case.delete(own, name);
    }
    for ip in [WAY_OUT, C3, Ipv4Addr::new(10, 42, 0, 4)] {
        case.both_know(ip, false);
    }
    assert_eq!(devices(&case.hosts[0]), ["lo", "up0", "t0"]);
    assert_eq!(devices(&case.hosts[1]), ["lo", "up0", "t0"]);
    assert_eq!(devices(c3), ["lo"]);
    // Places are reused again and again, while others talk.
    let pings = Pings::start(c1, C2);
    for round in 0..20 {
        // The generated MAC is always the same, so no neighbour entry is wrong.
        case.add(1, 2, AGAIN);
        c1.ping(AGAIN, 1);
        if round % 2 == 0 {
            c3.udp(AGAIN, 7).send_to(&[0; 1000], (C1, 7)).unwrap();
        }
        case.delete(1, case.containers[2].name());
    }
    let (sent, answered) = pings.stop();
    say(&format!("20 ports came and went; of {sent} pings beside them {answered} were answered"));
    assert_eq!(sent, answered);
    for own in 0..2 {
        let name = case.containers[own].name();
        case.delete(own, name);
        case.daemons[own].drained();
        assert_eq!(case.daemons[own].show("audit")["closed"], true);
        assert_eq!(case.daemons[own].show("ports").as_array().unwrap().len(), 2);
    }
    for own in 0..2 {
        wait_for("nobody is known but the two of the file", || {
            case.daemons[own].ask(&["vport", "list"])["vports"].as_array().unwrap().len() == 2
        });
    }
    assert_eq!(devices(c1), ["lo"]);
}

/// Checks that the host of an endpoint shows its policy and usage, and another host shows where to
/// ask.
fn uses_its_port(case: &Pair) {
    let show = |own: usize| {
        let words = ["vport", "show", &C3.to_string()];
        say(&case.daemons[own].print(&words));
        case.daemons[own].ask(&words)["vport"].take()
    };
    let (vport, elsewhere) = (show(1), show(0));
    let (policy, usage) = (&vport["policy"], &vport["usage"]);
    let holds = policy["hold"].as_object().unwrap();
    assert_eq!(holds["1s"].as_array().unwrap().len(), 8, "{policy}");
    assert_eq!((&policy["learn_max"], &policy["trust"]), (&serde_json::Value::Null, &true.into()));
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert!(count("rx_frames") >= 3 && count("tx_frames") >= 3, "{usage}");
    assert!(count("rx_bytes") >= 3 * 98 && count("tx_bytes") >= 3 * 98, "{usage}");
    assert!(count("within_ns") > 0 && usage["unknown"].is_null(), "{usage}");
    assert_eq!(count("endpoints"), 1);
    let rows = case.daemons[1].show("ports");
    let row = rows.as_array().unwrap().iter().find(|row| row["port"] == "three").unwrap();
    assert!(row["rx_frames"].as_u64().unwrap() >= count("rx_frames"), "{row} and {usage}");
    assert!(elsewhere["usage"].is_null() && elsewhere["policy"].is_null(), "{elsewhere}");
    // The list has the same, at the host of each endpoint.
    for own in 0..2 {
        say(&case.daemons[own].print(&["vport", "list"]));
        let rows = case.daemons[own].ask(&["vport", "list"])["vports"].take();
        for row in rows.as_array().unwrap() {
            let is_own = row["state"] == "own";
            assert_eq!([row["policy"].is_null(), row["usage"].is_null()], [!is_own; 2], "{row}");
        }
        let listed = rows.as_array().unwrap().iter().find(|row| row["mac"] == vport["mac"]);
        let (listed, is_own) = (listed.unwrap(), own == 1);
        assert_eq!(listed["policy"] == *policy, is_own, "{listed}");
        let from_it = listed["usage"]["rx_frames"].as_u64();
        assert_eq!(from_it.is_some_and(|frames| frames >= count("rx_frames")), is_own, "{listed}");
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_device_gets_its_routes_and_its_mtu() {
    if skip("live::ports", &[]) {
        return;
    }
    let case = Pair::new("routes", 4);
    let netns = case.containers[0].name();
    let line = format!(
        "port add --netns {netns} --vnet blue --ip 10.42.0.1/24 --ip fd00:42::1/64 --gateway \
         10.42.0.9 --route 10.9.0.0/16,10.42.0.8 --route 10.8.0.0/16 --route \
         fd01::/64,fd00:42::9 --mtu 1400"
    );
    case.containers[0].inside(|| {
        for scope in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            std::fs::write(path, "0").unwrap();
        }
    });
    let output = case.attempt(0, &line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let routes = case.containers[0].ip("route show");
    for part in [
        "default via 10.42.0.9 dev eth0",
        "10.9.0.0/16 via 10.42.0.8 dev eth0",
        "10.8.0.0/16 dev eth0",
    ] {
        assert!(routes.contains(part), "{part}: {routes}");
    }
    let routes = case.containers[0].ip("-6 route show");
    assert!(routes.contains("fd01::/64 via fd00:42::9 dev eth0"), "{routes}");
    assert!(case.containers[0].ip("-o link show dev eth0").contains("mtu 1400"));
}

#[test]
#[ignore = "live: needs root"]
fn added_ports_outlive_both_processes() {
    if skip("live::ports", &[]) {
        return;
    }
    let mut case = Pair::new("outlive", 8);
    let added = case.add(0, 0, C1);
    case.add(1, 1, C2);
    case.add(1, 2, C3);
    case.delete(1, case.containers[1].name());
    case.add(1, 1, C2);
    case.containers[0].ping(C2, 1);
    let mut pinger = Pinger::new(&case.containers[0], C2);
    let mut pings = |count: u32| {
        for _ in 0..count {
            assert!(pinger.ping(84), "a ping while control is not there, or comes back");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    case.daemons.iter_mut().for_each(Daemon::kill_control);
    pings(50);
    case.daemons.iter_mut().for_each(Daemon::restart_control);
    pings(100);
    for ip in [C1, C2, C3] {
        case.both_know(ip, true);
    }
    // Data dies: devices and addresses come back, with the same MAC.
    let pid = case.daemons[0].data_pid();
    rig::run(&format!("kill -9 {pid}"));
    let begin = Instant::now();
    wait_for("it answers again", || {
        let up = case.daemons[0].attempt(&["show", "ports"]).status.success();
        up && devices(&case.containers[0]).contains(&"eth0".to_owned())
            && Pinger::new(&case.containers[0], C2).ping(84)
    });
    say(&format!("after kill -9 of data a container is reached again in {:?}", begin.elapsed()));
    let link = case.containers[0].ip("-o link show dev eth0");
    assert!(link.contains(added["mac"].as_str().unwrap()), "{link}");
    // A port without its namespace does not come back, and its name is free.
    case.daemons[1].kill_control();
    rig::run(&format!("ip netns del {}", case.containers[2].name()));
    rig::run(&format!("kill -9 {}", case.daemons[1].data_pid()));
    case.daemons[1].restart_control();
    assert!(case.daemons[1].log().contains("does not come back"));
    rig::run(&format!("ip netns add {}", case.containers[2].name()));
    case.add(1, 2, ELSE);
    case.both_know(ELSE, true);
    // Control still knows the port.
    case.delete(0, case.containers[0].name());
    case.both_know(C1, false);
    assert_eq!(devices(&case.containers[0]), ["lo"]);
    // A new control process, after one that was killed while a port was deleted, opens the port
    // again or forgets it; not both.
    case.daemons[1].kill_control();
    case.daemons[1].restart_control();
    case.delete(1, case.containers[2].name());
    case.both_know(ELSE, false);
}

#[test]
#[ignore = "live: needs root"]
fn port_add_invalid_refused_with_remedy_without_effect() {
    if skip("live::ports", &[]) {
        return;
    }
    let case = Pair::new("refused", 2);
    let [c1, c2, c3] = case.containers.each_ref().map(Netns::name);
    case.add(0, 0, C1);
    case.containers[1].ip("link add eth0 type veth peer name eth1");
    let before = devices(&case.containers[1]);
    let add = |rest: &str| format!("port add --vnet blue {rest}");
    for (line, part) in [
        (format!("port add --netns {c2} --vnet green"), "there is no network `green`"),
        (add("--netns /nowhere/at/all"), "No such file"),
        (add("--pid 4194304"), "No such file"),
        (add(&format!("--netns {c2}")), "attach to it as a TAP"),
        (add(&format!("--netns {c1}")), "delete it first"),
        (add(&format!("--netns {c1} --name other")), "use `--device`"),
        (add(&format!("--netns {c3} --name of-the-file")), "in the configuration file"),
        (add(&format!("--netns {c3} --name underlay")), "means something else"),
        (add(&format!("--netns {c3} --device a-name-that-is-too-long")), "network device"),
        (add(&format!("--netns {c3} --ip 10.42.0.1/24")), "is bound here at h"),
        (add(&format!("--netns {c3} --mac 02:42:00:00:00:71")), "is bound here at h"),
        (add(&format!("--netns {c3} --mac 03:42:00:00:00:09")), "address of no endpoint"),
        (add(&format!("--netns {c3} --mac me")), "is no MAC"),
        (add(&format!("--netns {c3} --ip 10.42.0.300/24")), "no address with a prefix"),
        (add(&format!("--netns {c3} --ip 10.42.0.9")), "has no prefix"),
        (add(&format!("--netns {c3} --ip 10.42.0.255/24")), "broadcast address"),
        (add(&format!("--netns {c3} --ip 10.42.0.0/24")), "the network itself"),
        (add(&format!("--netns {c3} --ip 10.42.0.9/24 --gateway 10.43.0.1")), "in no network"),
        (add(&format!("--netns {c3} --mtu 9000")), "larger than 1450"),
        (add("--tap vm0 --ip 10.42.0.7/24"), "say it with `--mac`"),
        (add("--tap vm0 --host"), "cannot be used with"),
        (add(""), "required"),
        ("port del of-the-file".to_owned(), "take it out there"),
        ("port del nobody".to_owned(), "added were"),
    ] {
        let output = case.attempt(0, &line);
        // Errors of arguments are printed in JSON only, in place of an answer.
        let said = String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned();
        assert!(!output.status.success() && said.contains(part), "{line}: {said}");
    }
    assert_eq!(devices(&case.containers[1]), before);
    assert_eq!(devices(&case.containers[2]), ["lo"]);
    // An address of another host is not taken away from it.
    case.add(1, 2, C3);
    case.both_know(C3, true);
    // A client without an answer asks again.
    let again = case.add(0, 0, C1);
    assert_eq!(again["name"], c1);
    // All places are taken, and one is free again.
    case.daemons[0].ask(&["port", "add", "--tap", "vm0", "--vnet", "blue"]);
    let output = case.attempt(0, &add("--tap vm1"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("spare_ports"), "{said}");
    assert!(!devices(&case.hosts[0]).contains(&"vm1".to_owned()));
    case.delete(0, "vm0");
    case.daemons[0].ask(&["port", "add", "--tap", "vm1", "--vnet", "blue"]);
    case.containers[0].ping(C3, 3);
    // A container that ends before its port: the port can be deleted.
    rig::run(&format!("ip netns del {c1}"));
    case.delete(0, c1);
    case.both_know(C1, false);
    _ = Command::new("ip").args(["netns", "add", c1]).output();
}

#[test]
#[ignore = "live: needs root"]
fn port_whose_client_was_killed_goes() {
    if skip("live::ports", &[]) {
        return;
    }
    let case = Pair::new("portkill", 4);
    let (daemon, c1) = (&case.daemons[0], &case.containers[0]);
    let kept = || std::fs::read_to_string(case.file("h1/ports.json")).unwrap_or_default();
    let words = ["port", "add", "--netns", c1.name(), "--vnet", "blue", "--ip", "10.42.0.1/24"];
    // The data process has not opened the port yet when the client ends.
    daemon.hang_data(true);
    let client = Process(daemon.command(&words).spawn().unwrap());
    wait_for("control has begun", || kept().contains(c1.name()));
    drop(client);
    daemon.hang_data(false);
    wait_for("the port is off the list", || !kept().contains(c1.name()));
    assert_eq!(daemon.ask(&["port", "list"])["ports"], serde_json::json!([]));
    assert_eq!(devices(c1), ["lo"]);
    // Its place and its address are free.
    case.add(0, 0, C1);
    case.both_know(C1, true);
}
