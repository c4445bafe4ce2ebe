//! `sluice-cni` with the runtime's side of CNI and its IPAM plugin as others wrote them: `cnitool`,
//! `host-local`, and in a chain `portmap` and `bandwidth`.
//!
//! ```text
//!   c1 ─┐                      ┌─ c2      each container's eth0 is made by the plugin
//!       ├ h1 up0 ═════ up0 h2 ─┤
//!   h1 ─┘                      └─ c3
//! ```

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::rig;
use crate::rig::cni::{self, Cni, Done, range, skip_without_peers};
use crate::rig::pair::{Pair, devices};
use crate::rig::{Daemon, Net, Netns, say, wait_for};
use serde_json::{Value, json};

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 10);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 11);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 20);

#[test]
#[ignore = "live: needs root"]
fn cnitool_attaches_containers_that_reach_each_other() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnitool", 8);
    let [c1, c2, c3] = &case.containers;
    let cni = [0, 1].map(|own| Cni::new(&case, own));
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        for (own, cni) in cni.iter().enumerate() {
            let first = 10 + 10 * u8::try_from(own).unwrap();
            cni.network(&json!({
                "cniVersion": version, "ipam": cni.host_local(range(first, first + 5)),
                "dns": {"nameservers": ["10.42.0.53"]}
            }));
        }
        if version == "1.1.0" {
            cni[0].cnitool("status", c1).succeeds();
        }
        let result = cni[0].cnitool("add", c1).succeeds();
        say(&format!("{version}: {result}"));
        assert_eq!(result["ips"][0]["address"], format!("{C1}/24"), "{result}");
        assert_eq!(result["ips"][0]["interface"], 0);
        assert_eq!(result["dns"]["nameservers"], json!(["10.42.0.53"]));
        let interface = &result["interfaces"][0];
        assert_eq!(interface["name"], "eth0");
        assert_eq!(interface["sandbox"], cni::path_of(c1));
        assert_eq!(interface["mtu"].as_u64().is_some(), version == "1.1.0", "{result}");
        let link = c1.ip("-o link show dev eth0");
        assert!(link.contains(interface["mac"].as_str().unwrap()), "{link}");
        assert!(c1.ip("route show").contains("default via 10.42.0.1 dev eth0"));
        cni[0].cnitool("add", c2).succeeds();
        cni[1].cnitool("add", c3).succeeds();
        case.both_know(C3, true);
        for to in [C2, C3] {
            c1.ping(to, 3);
        }
        for (own, netns) in [(0, c1), (0, c2), (1, c3)] {
            cni[own].cnitool("check", netns).succeeds();
        }
        say(&case.daemons[0].print(&["port", "list"]));
        // A second time as for the first: nothing is there, and that is no error.
        for _ in 0..2 {
            for (own, netns) in [(0, c1), (0, c2), (1, c3)] {
                cni[own].cnitool("del", netns).succeeds();
                assert_eq!(devices(netns), ["lo"]);
            }
        }
        nothing_is_left(&case.daemons[0], &cni[0]);
        cni.iter().for_each(Cni::assign_anew);
    }
}

fn nothing_is_left(daemon: &Daemon, cni: &Cni) {
    assert_eq!(cni.assigned(), [""; 0]);
    assert_eq!(cni.ports(daemon), [""; 0]);
}

#[test]
#[ignore = "live: needs root"]
fn del_with_empty_namespace_frees_everything() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnidel", 8);
    let cni = Cni::new(&case, 0);
    let config = cni.config(&json!({"ipam": cni.host_local(range(10, 19))}));
    let path = cni::path_of(&case.containers[0]);
    cni.exec("ADD", "c7", Some(&path), &config).succeeds();
    let again = cni.exec("ADD", "c7", Some(&path), &config);
    assert_eq!(again.error()["code"], 100, "an interface that is there is not made again");
    // As containerd does: first with the namespace, then without. The second finds nothing.
    cni.exec("DEL", "c7", Some(&path), &config).succeeds();
    cni.exec("DEL", "c7", Some(""), &config).succeeds();
    cni.exec("DEL", "c7", None, &config).succeeds();
    nothing_is_left(&case.daemons[0], &cni);
    // The namespace is gone before DEL comes.
    cni.exec("ADD", "c8", Some(&path), &config).succeeds();
    rig::run(&format!("ip netns del {}", case.containers[0].name()));
    cni.exec("DEL", "c8", Some(&path), &config).succeeds();
    nothing_is_left(&case.daemons[0], &cni);
    // A left-over without a namespace does not keep the container from coming back.
    rig::run(&format!("ip netns add {}", case.containers[0].name()));
    cni.exec("ADD", "c9", Some(&path), &config).succeeds();
    rig::run(&format!("ip netns del {}", case.containers[0].name()));
    rig::run(&format!("ip netns add {}", case.containers[0].name()));
    cni.exec("ADD", "c9", Some(&path), &config).succeeds();
    assert_eq!(cni.assigned().len(), 1);
    cni.exec("DEL", "c9", None, &config).succeeds();
    nothing_is_left(&case.daemons[0], &cni);
}

#[test]
#[ignore = "live: needs root"]
fn check_names_what_was_changed() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnicheck", 8);
    let (cni, c1) = (Cni::new(&case, 0), &case.containers[0]);
    let plain = json!({"ipam": cni.host_local(range(10, 19)), "mtu": 1400});
    let config = cni.config(&plain);
    let path = cni::path_of(c1);
    let result = cni.exec("ADD", "c7", Some(&path), &config).succeeds();
    let mut checked = config.clone();
    checked["prevResult"] = result;
    let check = |checked: &Value| cni.exec("CHECK", "c7", Some(&path), checked);
    check(&checked).succeeds();
    for (change, undo, words) in [
        ("link set eth0 mtu 1300", "link set eth0 mtu 1400", "MTU"),
        ("route del default", "route add default via 10.42.0.1", "route 0.0.0.0/0,10.42.0.1"),
        (
            "addr del 10.42.0.10/24 dev eth0",
            "addr add 10.42.0.10/24 dev eth0",
            "address 10.42.0.10/24",
        ),
    ] {
        c1.ip(change);
        let error = check(&checked).error();
        assert_eq!(error["code"], 101, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(words), "{error}");
        c1.ip(undo);
    }
    c1.ip("route add default via 10.42.0.1");
    check(&checked).succeeds();
    let mut other = checked.clone();
    other["vnet"] = json!("red");
    assert_eq!(check(&other).error()["code"], 101);
    assert_eq!(check(&config).error()["code"], 7, "without prevResult");
    case.delete(0, &cni.ports(&case.daemons[0])[0]);
    assert_eq!(check(&checked).error()["code"], 101);
    cni.exec("DEL", "c7", Some(&path), &config).succeeds();
    nothing_is_left(&case.daemons[0], &cni);
}

#[test]
#[ignore = "live: needs root"]
fn gc_deletes_unused_ports_of_its_network() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnigc", 8);
    let (cni, daemon) = (Cni::new(&case, 0), &case.daemons[0]);
    let [c1, c2, c3] = &case.containers;
    let config = cni.config(&json!({"ipam": cni.host_local(range(10, 19))}));
    let other = cni.config(&json!({"name": "else", "addresses": ["10.42.0.99/24"]}));
    case.add(0, 2, C3);
    cni.exec("ADD", "a", Some(&cni::path_of(c1)), &config).succeeds();
    cni.exec("ADD", "b", Some(&cni::path_of(c2)), &config).succeeds();
    cni.exec_as("ADD", "c", Some(&cni::path_of(c3)), "eth1", &other).succeeds();
    let all = cni.ports(daemon);
    assert_eq!((all.len(), cni.assigned().len()), (3, 2));
    let gc = |valid: Option<Value>| {
        let mut config = config.clone();
        if let Some(valid) = valid {
            config["cni.dev/valid-attachments"] = valid;
        }
        cni.exec("GC", "", None, &config)
    };
    // Nothing is said, or nothing that can be understood: nothing goes.
    gc(None).succeeds();
    gc(Some(Value::Null)).succeeds();
    assert_eq!(gc(Some(json!([{"containerID": "a"}]))).error()["code"], 7);
    assert_eq!((cni.ports(daemon), cni.assigned().len()), (all, 2));
    let here = |container: &str| json!({"containerID": container, "ifname": "eth0"});
    gc(Some(json!([here("a"), here("b")]))).succeeds();
    assert_eq!((cni.ports(daemon).len(), cni.assigned().len()), (3, 2));
    gc(Some(json!([here("a")]))).succeeds();
    assert_eq!((cni.ports(daemon).len(), cni.assigned()), (2, vec![C1.to_string()]));
    assert_eq!(devices(c2), ["lo"]);
    gc(Some(json!([]))).succeeds();
    assert_eq!((cni.ports(daemon).len(), cni.assigned().len()), (1, 0));
    // That of another network, and the port of a person.
    assert_eq!(devices(c3), ["lo", "eth0", "eth1"]);
    cni.exec_as("DEL", "c", None, "eth1", &other).succeeds();
    nothing_is_left(daemon, &cni);
    assert_eq!(devices(c3), ["lo", "eth0"]);
}

#[test]
#[ignore = "live: needs root"]
fn failed_add_leaves_nothing() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnifail", 4);
    let (cni, c1) = (Cni::new(&case, 0), &case.containers[0]);
    let path = cni::path_of(c1);
    let with = |more: Value| {
        let mut all = json!({"ipam": cni.host_local(range(10, 10))});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cni.config(&all)
    };
    for (more, words) in [
        (json!({"vnet": "red"}), "red"),
        (json!({"mtu": 9000}), "MTU of 9000"),
        (json!({"runtimeConfig": {"mac": "03:00:00:00:00:01"}}), "is the address of no endpoint"),
    ] {
        let error = cni.exec("ADD", "c7", Some(&path), &with(more)).error();
        say(&error.to_string());
        assert!(error["msg"].as_str().unwrap().contains(words), "{error}");
        assert!(!error["details"].as_str().unwrap().is_empty(), "{error}");
        nothing_is_left(&case.daemons[0], &cni);
    }
    let gone = "/run/netns/sluice-none";
    let error = cni.exec("ADD", "c7", Some(gone), &with(json!({}))).error();
    assert!(error["msg"].as_str().unwrap().contains(gone), "{error}");
    nothing_is_left(&case.daemons[0], &cni);
    // The one address is taken: the IPAM plugin refuses the second container, in its own words.
    cni.exec("ADD", "c7", Some(&path), &with(json!({}))).succeeds();
    let second = cni::path_of(&case.containers[1]);
    let error = cni.exec("ADD", "c8", Some(&second), &with(json!({}))).error();
    assert!(error["msg"].as_str().unwrap().starts_with("`host-local`: "), "{error}");
    assert_eq!((cni.assigned().len(), devices(&case.containers[1])), (1, vec!["lo".to_owned()]));
    cni.exec("DEL", "c7", None, &with(json!({}))).succeeds();
    nothing_is_left(&case.daemons[0], &cni);
}

#[test]
#[ignore = "live: needs root"]
fn containers_without_ipam_and_with_runtimes_addresses() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnil2", 4);
    let [c1, c2, c3] = &case.containers;
    let cni = [0, 1].map(|own| Cni::new(&case, own));
    cni[0].network(&json!({"cniVersion": "1.1.0"}));
    let result = cni[0].cnitool("add", c1).succeeds();
    assert!(result.get("ips").is_none_or(|ips| ips.as_array().unwrap().is_empty()), "{result}");
    // The container configures itself, as by DHCP.
    c1.ip(&format!("addr add {C1}/24 dev eth0"));
    let mac = "02:42:00:00:00:99";
    let given = json!({"ips": [format!("{C3}/24")], "mac": mac});
    for (cni, netns, kind) in [(&cni[1], c3, "tap"), (&cni[0], c2, "veth")] {
        let capabilities = json!({"ips": true, "mac": true});
        cni.network(&json!({"cniVersion": "1.1.0", "kind": kind, "capabilities": capabilities,
            "gateway": "10.42.0.1", "routes": [{"dst": "10.9.0.0/16", "gw": "10.42.0.2"}]}));
        let mut given = given.clone();
        if kind == "veth" {
            given = json!({"ips": [format!("{C2}/24")]});
        }
        let result = cni.cnitool_with("add", netns, &given).succeeds();
        assert_eq!(result["ips"][0]["address"], given["ips"][0]);
        assert_eq!(result["ips"][0]["gateway"], "10.42.0.1");
        if kind == "tap" {
            assert_eq!(result["interfaces"][0]["mac"], mac);
        }
        let routes = netns.ip("route show");
        assert!(routes.contains("10.9.0.0/16 via 10.42.0.2 dev eth0"), "{routes}");
        cni.cnitool_with("check", netns, &given).succeeds();
    }
    for (from, to) in [(c1, C3), (c3, C1), (c2, C1), (c2, C3)] {
        from.ping(to, 3);
    }
    for (own, netns) in [(0, c1), (0, c2), (1, c3)] {
        cni[own].cnitool("del", netns).succeeds();
        assert_eq!(devices(netns), ["lo"]);
    }
}

#[test]
#[ignore = "live: needs root"]
fn status_says_if_an_add_would_succeed() {
    if skip_without_peers("live::cni") {
        return;
    }
    let mut case = Pair::new("cnistat", 4);
    let cni = Cni::new(&case, 0);
    let config = cni.config(&json!({}));
    let status = |config: &Value| cni.exec("STATUS", "", None, config);
    status(&config).succeeds();
    let red = status(&cni.config(&json!({"vnet": "red"}))).error();
    assert_eq!((&red["code"], red["cniVersion"].as_str()), (&json!(50), Some("1.1.0")), "{red}");
    // Data forwards on without control: no ADD, and no container is cut off.
    case.daemons[0].kill_control();
    assert_eq!(status(&config).error()["code"], 50);
    assert_eq!(cni.exec("DEL", "c7", None, &config).error()["code"], 11);
    case.daemons[0].kill_data();
    wait_for("nothing forwards", || status(&config).error()["code"] == 51);
    case.daemons[0].restart_control();
    wait_for("it is ready again", || status(&config).code() == Some(0));
}

#[test]
#[ignore = "live: needs root"]
fn ports_of_containers_outlive_restarts_and_are_found() {
    if skip_without_peers("live::cni") {
        return;
    }
    let mut case = Pair::new("cnikept", 4);
    let cni = Cni::new(&case, 0);
    let config = cni.config(&json!({"ipam": cni.host_local(range(10, 19))}));
    let paths = [0, 1].map(|at: usize| cni::path_of(&case.containers[at]));
    let first = cni.exec("ADD", "a", Some(&paths[0]), &config).succeeds();
    cni.exec("ADD", "b", Some(&paths[1]), &config).succeeds();
    case.daemons[0].kill_both();
    case.daemons[0].restart_control();
    let mut checked = config.clone();
    checked["prevResult"] = first;
    let check = || cni.exec("CHECK", "a", Some(&paths[0]), &checked);
    wait_for("the interface is as it was", || check().code() == Some(0));
    case.containers[0].ping(C2, 3);
    for container in ["a", "b"] {
        cni.exec("DEL", container, None, &config).succeeds();
    }
    nothing_is_left(&case.daemons[0], &cni);
}

/// Checks that more ADDs at once than the host answers at a time only wait.
#[test]
#[ignore = "live: needs root"]
fn many_adds_at_once_all_succeed() {
    const CONTAINERS: u8 = 40;
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnimany", CONTAINERS.into());
    let mut net = Net::new("cnimanyc");
    let cni = Cni::new(&case, 0);
    let config = cni.config(&json!({"ipam": cni.host_local(range(10, 10 + CONTAINERS))}));
    let all: Vec<Netns> = (0..CONTAINERS).map(|at| net.netns(&format!("m{at}"))).collect();
    for command in ["ADD", "DEL"] {
        let begin = Instant::now();
        let start = |netns: &Netns| {
            let (id, path) = (netns.name().rsplit('-').next().unwrap(), cni::path_of(netns));
            cni.start(command, id, Some(&path), &config)
        };
        let started: Vec<_> = all.iter().map(start).collect();
        started.into_iter().for_each(|child| _ = Done::of(child).succeeds());
        say(&format!("{CONTAINERS} times {command} at once: {:?}", begin.elapsed()));
        let there = if command == "ADD" { usize::from(CONTAINERS) } else { 0 };
        assert_eq!(cni.assigned().len(), there);
        assert_eq!(cni.ports(&case.daemons[0]).len(), there);
        // The host's list and what its data process has open are two things.
        let devices = all.iter().filter(|netns| devices(netns).contains(&"eth0".to_owned()));
        assert_eq!(devices.count(), there);
    }
}

/// Checks what the two plugins that most chains have do behind this one.
#[test]
#[ignore = "live: needs root"]
fn portmap_behind_it_reaches_container() {
    if skip_without_peers("live::cni") {
        return;
    }
    let case = Pair::new("cnichain", 4);
    let (cni, c1, h1) = (Cni::new(&case, 0), &case.containers[0], &case.hosts[0]);
    if !h1.attempt("nft add table ip probe").status.success() {
        say("SKIPPED live_cni: this machine has no nftables, which portmap needs");
        return;
    }
    case.daemons[0].ask(&["port", "add", "--host", "--vnet", "blue", "--ip", "10.42.0.1/24"]);
    h1.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    let ipam = cni.host_local(range(10, 19));
    cni.chain(&[
        json!({"type": "sluice-cni", "vnet": "blue", "socket": cni.socket(), "ipam": ipam}),
        json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}),
    ]);
    let mapped = json!({"portMappings": [
        {"hostPort": 8080, "containerPort": 7, "protocol": "udp"}
    ]});
    let done = cni.cnitool_in(h1, "add", c1, &mapped);
    if done.code() != Some(0) {
        say(&format!("SKIPPED live_cni: portmap does not run here: {}", done.said()));
        return;
    }
    let socket = c1.udp(C1, 7);
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // From the other host of the underlay, to the port of the first.
    let sender = case.hosts[1].udp(Ipv4Addr::UNSPECIFIED, 0);
    say(&h1.run("nft list ruleset"));
    wait_for("a datagram comes through the port of the host", || {
        sender.send_to(b"in", ("192.0.2.1", 8080)).unwrap();
        socket.recv_from(&mut [0; 8]).is_ok()
    });
    cni.cnitool_in(h1, "check", c1, &mapped).succeeds();
    cni.cnitool_in(h1, "del", c1, &mapped).succeeds();
    nothing_is_left_beside(&case.daemons[0], &cni, h1);
    bandwidth_needs_host_interface(&case, &cni, c1);
}

fn nothing_is_left_beside(daemon: &Daemon, cni: &Cni, host: &Netns) {
    nothing_is_left(daemon, cni);
    assert!(!host.run("nft list ruleset").contains("8080"));
}

/// `bandwidth` shapes a host's end of a veth pair, which this plugin does not have: it refuses, and
/// the runtime takes the container's interface back.
fn bandwidth_needs_host_interface(case: &Pair, cni: &Cni, c1: &Netns) {
    let ipam = cni.host_local(range(10, 19));
    cni.chain(&[
        json!({"type": "sluice-cni", "vnet": "blue", "socket": cni.socket(), "ipam": ipam}),
        json!({"type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 1_000_000}),
    ]);
    let done: Done = cni.cnitool("add", c1);
    say(&format!("bandwidth: {}", done.said()));
    assert_ne!(done.code(), Some(0));
    cni.cnitool("del", c1).succeeds();
    nothing_is_left(&case.daemons[0], cni);
}
