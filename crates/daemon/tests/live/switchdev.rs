//! A switch whose driver offloads bridges as the chip of a host: QEMU's `rocker`, in a virtual
//! machine, with three plain machines at its ports, which are cards of the same virtual machine.
//!
//! ```text
//!   m1 ─ sw1 ─┐                                          ┌─ c1
//!   m2 ─ sw2 ─┤ rocker ══ h1 (kernel, switch) ─ wire ─ h2 ┤
//!   m3 ─ sw3 ─┘                                          └─ c2
//! ```
//!
//! The device forwards between its ports, the kernel behind it into tunnels, which this device has
//! not, and the switch of h1 sees what is left. What the same device does by plain commands for a
//! bridge is the oracle.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use sluice_testkit::bound::is_soak;

use crate::rig::bridge::ip;
use crate::rig::member::member;
use crate::rig::newest::Guest;
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Net, Netns, are_connected, cable, run, say, skip, wait_for};

const PORTS: usize = 3;
/// Rate of all links: rings of a virtual machine are small.
const LINK: &str = "link = { rate_mbps = 100 }\n";
/// Pings of a count, and frames that may come to the CPU meanwhile.
const PINGS: u64 = 300;
const PUNTS_MAX: u64 = 20;

fn mac(own: usize) -> String {
    format!("02:00:00:00:05:{:02x}", own + 1)
}

/// Boots the virtual machine, in which the other tests run.
#[test]
#[ignore = "live: needs root"]
fn switch_forwards_in_virtual_machine() {
    let test = "switch_forwards_in_virtual_machine";
    if skip(test, &[]) {
        return;
    }
    let mut options = ["-m", "3G"].map(str::to_owned).to_vec();
    for own in 0..PORTS {
        for side in ["port", "card"] {
            let end = format!("hubport,id={side}{own},hubid={own}");
            options.extend(["-netdev".to_owned(), end]);
        }
        let card = format!("virtio-net-pci,netdev=card{own},romfile=,mac={}", mac(own));
        options.extend(["-device".to_owned(), card]);
    }
    options.extend(switch_options());
    let net = Net::new("switch");
    // The others take a minute more. A machine that moves between ports of the switch was not found
    // in one of nine runs.
    let (inside, tests, within) = match is_soak() {
        true => ("switchdev::inside_ switchdev::walk_ switchdev::move_", 4, 900),
        false => ("switchdev::inside_", 2, 240),
    };
    let guest = Guest { image: "switchdev", options: &options, tests };
    guest.runs(test, &net, inside, Duration::from_secs(within));
}

/// Returns the options for the switch. Up to QEMU 8.1 the length of a list must be known before its
/// elements, whose order in an option does not count; later ones take lists as JSON.
fn switch_options() -> Vec<String> {
    let said = run("qemu-system-x86_64 --version");
    let version = said.split_whitespace().nth(3).unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let ports: Vec<String> = (0..PORTS).map(|own| format!("port{own}")).collect();
    if version >= (8, 2) {
        let device = serde_json::json!({ "driver": "rocker", "name": "sw", "ports": ports });
        ["-device".to_owned(), device.to_string()].to_vec()
    } else {
        let port = |(at, port)| format!(",ports[{at}]={port}");
        let ports: String = ports.iter().enumerate().map(port).collect();
        let (length, device) = (format!("rocker.len-ports={PORTS}"), "rocker,name=sw".to_owned());
        ["-global".to_owned(), length, "-device".to_owned(), device + &ports].to_vec()
    }
}

/// Returns what a file of a device says; empty if the device has no such thing.
fn said(device: &str, file: &str) -> String {
    fs::read_to_string(PathBuf::from(format!("/sys/class/net/{device}/{file}")))
        .map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

fn devices() -> Vec<String> {
    let names = fs::read_dir("/sys/class/net").unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Names the ports of the switch `sw1` and so on, and says whether there are any.
fn name_ports(test: &str) -> bool {
    let of_switch = |device: &String| !said(device, "phys_switch_id").is_empty();
    let mut ports: Vec<(String, String)> = devices()
        .into_iter()
        .filter(of_switch)
        .map(|device| (said(&device, "phys_port_name"), device))
        .collect();
    if ports.len() != PORTS {
        say(&format!("SKIPPED {test}: it needs a switch of {PORTS} ports, see {}", file!()));
        return false;
    }
    ports.sort();
    for (own, (_, device)) in ports.iter().enumerate() {
        if *device != port(own) {
            run(&format!("ip link set {device} down"));
            run(&format!("ip link set {device} name {}", port(own)));
        }
        run(&format!("ip link set {} up", port(own)));
    }
    true
}

fn port(own: usize) -> String {
    format!("sw{}", own + 1)
}

/// Moves the cards into namespaces of their own, which get the addresses of machines.
fn machines(net: &mut Net) -> Vec<Netns> {
    let machine = |own: usize| {
        let netns = net.netns(&format!("m{}", own + 1));
        let is_card = |device: &String| said(device, "address") == mac(own);
        let mut card = None;
        // It comes back a moment after the namespace of the test before is gone.
        wait_for("the card is here", || {
            card = devices().into_iter().find(is_card);
            card.is_some()
        });
        run(&format!("ip link set {} netns {} name eth0", card.unwrap(), netns.name()));
        netns.ip("link set eth0 mtu 1450 up");
        netns.ip(&format!("addr add {}/24 dev eth0", ip(own)));
        netns
    };
    (0..PORTS).map(machine).collect()
}

/// Frames that the CPU got from the ports of the switch.
fn punts() -> u64 {
    let of = |own| said(&port(own), "statistics/rx_packets").parse::<u64>().unwrap();
    (0..PORTS).map(of).sum()
}

/// Entries of the kernel for an address at a port of the switch.
fn entries(own: usize, at: usize) -> Vec<String> {
    let text = run(&format!("bridge fdb show brport {}", port(at)));
    let is_of = |line: &&str| line.starts_with(&mac(own)) && line.contains("master");
    text.lines().filter(is_of).map(str::to_owned).collect()
}

fn is_offloaded(own: usize, at: usize) -> bool {
    // What is written without a VLAN is there for the bridge's default one, too.
    let is = |row: &String| row.contains("extern_learn") && row.contains("offload");
    entries(own, at).iter().any(is)
}

fn pinger(from: &Netns, to: Ipv4Addr) -> Pinger {
    Pinger::with_patience(from, to, Duration::from_millis(500))
}

/// Sends pings that must all be answered, once each, by the device alone but for a few.
fn ping_by_device(from: &Netns, to: &Netns, address: Ipv4Addr) {
    let mut pinger = pinger(from, address);
    wait_for("it is reached", || pinger.ping(84));
    let heard = to.snmp("Icmp", "InEchos");
    let (before, answers) = (punts(), from.snmp("Icmp", "InEchoReps"));
    let lost = (0..PINGS).filter(|_| !pinger.ping(84)).count();
    let punts = punts() - before;
    say(&format!("{PINGS} pings, {lost} lost, {punts} frames at the CPU"));
    assert_eq!(lost, 0);
    assert!(punts <= PUNTS_MAX, "{punts} frames came to the CPU");
    assert_eq!(to.snmp("Icmp", "InEchos") - heard, PINGS, "none comes twice");
    assert_eq!(from.snmp("Icmp", "InEchoReps") - answers, PINGS, "none comes twice");
}

/// What the device does with a bridge that nobody of ours has touched.
#[test]
#[ignore = "live: needs a switch"]
fn inside_plain_bridge_is_offloaded() {
    let test = "inside_plain_bridge_is_offloaded";
    if skip(test, &["bridge"]) || !name_ports(test) {
        return;
    }
    let mut net = Net::new("plain");
    let machines = machines(&mut net);
    run("ip link add plain0 type bridge");
    run("ip link set plain0 up");
    for own in 0..PORTS {
        run(&format!("ip link set {} master plain0", port(own)));
    }
    ping_by_device(&machines[0], &machines[1], ip(1));
    wait_for("both are learned", || is_offloaded(0, 0) && is_offloaded(1, 1));
    // An entry that is written is the device's at once, and one that is deleted is not.
    run(&format!("bridge fdb add {} dev sw3 master extern_learn", mac(2)));
    wait_for("the device takes it over", || is_offloaded(2, 2));
    run(&format!("bridge fdb del {} dev sw3 master", mac(2)));
    assert!(entries(2, 2).is_empty());
    // It can be told not to learn, but not to flood nothing.
    run("bridge link set dev sw3 learning off");
    assert!(!crate::rig::attempt("bridge link set dev sw3 flood off").status.success());
    run("ip link del plain0");
}

/// A host with the switch as its chip, and one with the kernel. Fields end in this order: the
/// daemons before their namespaces.
struct Fabric {
    daemons: [Daemon; 2],
    machines: Vec<Netns>,
    containers: Vec<Netns>,
    _net: Net,
}

/// Starts both, with the machines in these networks.
fn fabric(word: &str, vnets: [&str; PORTS]) -> Option<Fabric> {
    if skip(word, &["bridge"]) || !name_ports(word) {
        return None;
    }
    // The test before was in the same namespace.
    for left in devices().iter().filter(|name| name.starts_with("slb") || name.starts_with("slx")) {
        run(&format!("ip link del {left}"));
    }
    let mut net = Net::new(word);
    let machines = machines(&mut net);
    let hosts = [net.own_netns("h1"), net.netns("h2")];
    let containers = (0..PORTS).map(|own| net.netns(&format!("c{}", own + 1))).collect();
    cable((&hosts[1], "up0", "192.0.2.2/24"), (&hosts[0], "up0", "192.0.2.1/24"));
    let certificates = net.certificates(&["h1", "h2"]);
    let port = |(own, vnet): (usize, &str)| {
        let (name, device) = (format!("m{}", own + 1), port(own));
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"l2\"\nvnet = \"{vnet}\"\n\
             device = \"{device}\"\n{LINK}"
        )
    };
    let ports = [vnets.into_iter().enumerate().map(port).collect(), String::new()];
    let daemon = |own: usize| {
        let (kind, ports) = (["switchdev", "kernel"][own], &ports[own]);
        let more =
            format!("[[vnet]]\nname = \"lab1\"\nvni = 5000\n[chip]\nkind = \"{kind}\"\n{ports}");
        let text = member(own, &certificates, "", &more);
        let text = text.replace("vnets = [\"blue\"]", "vnets = [\"blue\", \"lab1\"]");
        let text = text.replace("[fabric]\n", &format!("{LINK}[fabric]\n"));
        net.daemon(&hosts[own], &format!("h{}", own + 1), &text)
    };
    let daemons = [0, 1].map(daemon);
    are_connected(&daemons);
    Some(Fabric { daemons, machines, containers, _net: net })
}

/// Adds a container at h2 that says nothing of itself. It has the address of `own`.
fn add(fabric: &Fabric, container: usize, own: usize, vnet: &str) {
    let (netns, name) = (&fabric.containers[container], format!("c{}", container + 1));
    let words = ["port", "add", "--netns", netns.name(), "--vnet", vnet, "--name", &name];
    fabric.daemons[1].says(&[&words[..], &["--kind", "kernel"]].concat());
    netns.ip(&format!("addr add {}/24 dev eth0", ip(own)));
}

fn chip(daemon: &Daemon) -> Value {
    let mut row = Value::Null;
    wait_for("data answers", || {
        row = daemon.try_show("chip").map_or(Value::Null, |answer| answer["chip"].clone());
        !row.is_null()
    });
    row
}

#[test]
#[ignore = "live: needs a switch"]
fn inside_switch_is_chip_of_host() {
    let test = "inside_switch_is_chip_of_host";
    let Some(fabric) = fabric(test, ["blue"; PORTS]) else { return };
    let machines = &fabric.machines;
    let h1 = &fabric.daemons[0];
    add(&fabric, 0, 10, "blue");
    ping_by_device(&machines[0], &machines[1], ip(1));
    wait_for("both are the device's", || {
        is_offloaded(0, 0) && is_offloaded(1, 1) && chip(h1)["offloaded"] == 2
    });
    say(&h1.print(&["show", "chip"]));
    // Another host is behind the kernel.
    let mut far = pinger(&machines[0], ip(10));
    wait_for("the other host is reached", || far.ping(84));
    wait_for("the kernel forwards", || {
        let before = chip(h1)["forwarded"].as_u64();
        let answered = (0..10).filter(|_| far.ping(84)).count();
        std::thread::sleep(Duration::from_millis(250));
        answered == 10 && chip(h1)["forwarded"].as_u64() >= before.map(|before| before + 10)
    });

    // Others change the bridge.
    for command in [
        format!("bridge fdb del {} dev sw2 master", mac(1)),
        format!("bridge fdb replace {} dev sw3 master static", mac(1)),
        "bridge link set dev sw2 learning off".to_owned(),
        "ip link set sw2 nomaster".to_owned(),
    ] {
        let before = chip(h1)["mended"].as_u64();
        run(&command);
        wait_for(&format!("`{command}` is put right"), || {
            chip(h1)["mended"].as_u64() > before && is_offloaded(1, 1)
        });
        let text = run("bridge -d link show dev sw2");
        assert!(text.contains("learning on"), "{command}: {text}");
        ping_by_device(&machines[0], &machines[1], ip(1));
    }

    // Data dies, and nobody notices.
    let mut near = pinger(&machines[0], ip(1));
    let data = h1.data_pid();
    h1.kill_data();
    let mut lost = 0;
    wait_for("another data process runs", || {
        lost += (0..5).filter(|_| !(near.ping(84) && far.ping(84))).count();
        h1.try_show("chip").is_some() && h1.data_pid() != data
    });
    lost += (0..50).filter(|_| !(near.ping(84) && far.ping(84))).count();
    assert_eq!(lost, 0, "device and kernel forward on");
    wait_for("entries are kept", || near.ping(84) && chip(h1)["offloaded"] == 2);
    ping_by_device(&machines[0], &machines[1], ip(1));
    has_lost_nothing(h1);
}

/// A machine moves to another port: its frames are for an address that the device knows, so that
/// only the device sees it.
#[test]
#[ignore = "live: needs a switch"]
fn move_within_switch_is_followed() {
    let test = "move_within_switch_is_followed";
    let Some(fabric) = fabric(test, ["blue"; PORTS]) else { return };
    let machines = &fabric.machines;
    ping_by_device(&machines[0], &machines[1], ip(1));
    wait_for("both are the device's", || is_offloaded(0, 0) && is_offloaded(1, 1));
    machines[1].ip("link set eth0 down");
    machines[2].ip("link set eth0 down");
    machines[2].ip(&format!("link set eth0 address {}", mac(1)));
    machines[2].ip("link set eth0 up");
    machines[2].ip(&format!("neigh add {} lladdr {} dev eth0", ip(0), mac(0)));
    let mut moved = pinger(&machines[2], ip(0));
    wait_for("it is where it moved to", || {
        moved.ping(84);
        is_offloaded(1, 2) && entries(1, 1).is_empty()
    });
    ping_by_device(&machines[2], &machines[0], ip(0));
    machines[2].ip(&format!("link set eth0 address {}", mac(2)));
    has_lost_nothing(&fabric.daemons[0]);
}

fn has_lost_nothing(host: &Daemon) {
    let audit = host.show("audit");
    assert_eq!(audit["closed"], true, "{audit}");
    assert_eq!(chip(host)["refused"], 0, "{}", host.log());
}

/// Tables of a host, as names of machines.
fn tables(daemon: &Daemon, names: &[(String, &str)]) -> [Vec<String>; 4] {
    let name = |row: &Value| {
        let mac = row["mac"].as_str().unwrap();
        names
            .iter()
            .find(|(known, _)| known == mac)
            .map_or(mac.to_owned(), |(_, name)| (*name).to_owned())
    };
    let rows = |answer: &Value, of: &dyn Fn(&Value) -> String| {
        let mut rows: Vec<String> = answer.as_array().unwrap().iter().map(of).collect();
        rows.sort();
        rows
    };
    let word = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let flows = daemon.ask(&["fabric", "flows"])["flows"].take();
    [
        rows(&daemon.ask(&["vport", "list"])["vports"], &|row| {
            format!("{} at {}", name(row), word(row, "host"))
        }),
        rows(&daemon.show("mac"), &|row| format!("{} to {}", name(row), word(row, "to"))),
        rows(&flows["encap"], &|row| format!("{} to {}", name(row), word(row, "host"))),
        rows(&flows["decap"], &|row| format!("{} from {}", word(row, "vnet"), word(row, "host"))),
    ]
}

/// The walk of the paper on Netvisor (section 5), with the switch as the first of both: VM 1 and
/// VM 2 are machines at its ports, the others are behind the second switch.
#[test]
#[ignore = "live: needs a switch"]
fn walk_with_switch_has_right_tables() {
    let test = "walk_with_switch_has_right_tables";
    let Some(fabric) = fabric(test, ["blue", "lab1", "blue"]) else { return };
    let machines = &fabric.machines;
    let (vms, vnets) = (["c1", "c2", "c3"], ["blue", "lab1", "blue"]);
    let mut names: Vec<(String, &str)> = vec![(mac(0), "m1"), (mac(1), "m2"), (mac(2), "m3")];
    for (at, vnet) in vnets.into_iter().enumerate() {
        add(&fabric, at, 10 + at, vnet);
        let link = fabric.containers[at].ip("-o link show eth0");
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        names.push((words.nth(1).unwrap().to_owned(), vms[at]));
    }
    let expect = |what: &str, wanted: [[&[&str]; 4]; 2]| {
        for (daemon, wanted) in fabric.daemons.iter().zip(wanted) {
            let words = |rows: &[&str]| rows.iter().map(ToString::to_string).collect::<Vec<_>>();
            let wanted = wanted.map(words);
            let mut seen: [Vec<String>; 4] = Default::default();
            let is_right =
                sluice_netns::happens(Duration::from_secs(10), Duration::from_millis(100), || {
                    seen = tables(daemon, &names);
                    seen == wanted
                });
            assert!(is_right, "{what}: {seen:?} and not {wanted:?}");
        }
        // The entries of the kernel at the switch are the device's, and nobody else's.
        let wanted = wanted[0][1].iter().filter(|row| row.starts_with('m')).count() as u64;
        wait_for("the device has them", || chip(&fabric.daemons[0])["offloaded"] == wanted);
    };
    let ask = |from: &Netns, to: usize| {
        let mut pinger = pinger(from, ip(to));
        wait_for("it is answered", || pinger.ping(84));
    };
    let none: [&[&str]; 4] = [&[]; 4];
    expect("nobody has spoken", [none, none]);

    ask(&machines[0], 10);
    let vports: &[&str] = &["c1 at h2", "m1 at h1"];
    expect(
        "VM 1 asked for VM 3",
        [
            [vports, &["c1 to h2", "m1 to m1"], &["c1 to h2"], &["blue from h2"]],
            [vports, &["c1 to c1", "m1 to h1"], &["m1 to h1"], &["blue from h1"]],
        ],
    );

    ask(&machines[1], 11);
    let vports: &[&str] = &["c1 at h2", "c2 at h2", "m1 at h1", "m2 at h1"];
    let decap: [&[&str]; 2] =
        [&["blue from h2", "lab1 from h2"], &["blue from h1", "lab1 from h1"]];
    expect(
        "VM 2 asked for VM 4 in VNI 5000",
        [
            [
                vports,
                &["c1 to h2", "c2 to h2", "m1 to m1", "m2 to m2"],
                &["c1 to h2", "c2 to h2"],
                decap[0],
            ],
            [
                vports,
                &["c1 to c1", "c2 to c2", "m1 to h1", "m2 to h1"],
                &["m1 to h1", "m2 to h1"],
                decap[1],
            ],
        ],
    );

    ask(&fabric.containers[2], 0);
    let vports: &[&str] = &["c1 at h2", "c2 at h2", "c3 at h2", "m1 at h1", "m2 at h1"];
    expect(
        "VM 5 asked for VM 1, whom its own switch knows",
        [
            [
                vports,
                &["c1 to h2", "c2 to h2", "c3 to h2", "m1 to m1", "m2 to m2"],
                &["c1 to h2", "c2 to h2", "c3 to h2"],
                decap[0],
            ],
            [
                vports,
                &["c1 to c1", "c2 to c2", "c3 to c3", "m1 to h1", "m2 to h1"],
                &["m1 to h1", "m2 to h1"],
                decap[1],
            ],
        ],
    );
}
