//! Ports with a machine behind them that are added while the hosts run: their addresses change in
//! place, and a machine that is about to come has a port on standby.
//!
//! ```text
//!   vm0 (a TAP: the kernel of h1's namespace is the machine) ── h1 ═══ h2 ── c2, vm0 on standby
//! ```

use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::rig::bridge::{Bridge, ip};
use crate::rig::http::send;
use crate::rig::{skip, wait_for};

const MAC: &str = "02:00:00:00:00:50";
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 50);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 51);

/// Asks for a port of the machine, with more keys; returns status and answer.
fn ask(bridge: &Bridge, own: usize, ip: Ipv4Addr, more: &Value) -> (u16, Value) {
    let mut port = json!({
        "name": "vm", "place": {"tap": "vm0"}, "vnet": "blue", "mac": MAC,
        "ips": [format!("{ip}/32")],
    });
    port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let socket = bridge.net.file(&format!("h{}/http.sock", own + 1));
    let answer = send(&socket, "POST /v1/ports", &port.to_string());
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

/// Returns the host that has the machine, as a host sees it.
fn owner(bridge: &Bridge, own: usize) -> Value {
    bridge.daemons[own].ask(&["vport", "show", MAC])["vport"]["host"].take()
}

fn row(bridge: &Bridge, own: usize) -> Value {
    let rows = bridge.daemons[own].ask(&["port", "list"])["ports"].take();
    let is_it = |row: &&Value| row["port"]["name"] == "vm";
    rows.as_array().unwrap().iter().find(is_it).map_or(Value::Null, |row| row["port"].clone())
}

#[test]
#[ignore = "live: needs root"]
fn machine_changes_address_and_host_in_place() {
    if skip("machine_changes_address_and_host_in_place", &["ping"]) {
        return;
    }
    let mut bridge = Bridge::fabric("machines", 2);
    bridge.add(1);
    let (status, answer) = ask(&bridge, 0, FIRST, &json!({}));
    assert_eq!((status, &answer["device"]), (201, &json!("vm0")), "{answer}");
    let machine = bridge.hosts[0].clone();
    machine.ip(&format!("link set vm0 address {MAC}"));
    machine.ip(&format!("addr add {FIRST}/24 dev vm0"));
    machine.ip("link set vm0 up");
    machine.ping(ip(1), 2);
    let index = machine.run("cat /sys/class/net/vm0/ifindex");

    // Without being asked, nothing is changed; and not what is more than an address.
    assert_eq!(ask(&bridge, 0, SECOND, &json!({})).0, 409);
    assert_eq!(ask(&bridge, 0, SECOND, &json!({"change": true, "mtu": 1000})).0, 409);
    let (status, answer) = ask(&bridge, 0, SECOND, &json!({"change": true}));
    assert_eq!(status, 201, "{answer}");
    assert!(row(&bridge, 0).get("change").is_none(), "a port does not keep it");
    assert!(!machine.attempt(&format!("ping -c 1 -W 1 {}", ip(1))).status.success(), "spoofed");
    machine.ip("addr flush dev vm0");
    machine.ip(&format!("addr add {SECOND}/24 dev vm0"));
    machine.ping(ip(1), 2);
    assert_eq!(machine.run("cat /sys/class/net/vm0/ifindex"), index, "the device is the same");

    let (status, answer) = ask(&bridge, 1, SECOND, &json!({"standby": true}));
    assert_eq!(status, 201, "{answer}");
    assert_eq!((owner(&bridge, 0), owner(&bridge, 1)), (json!("h1"), json!("h1")));
    bridge.daemons[1].kill_both();
    bridge.daemons[1].restart_control();
    wait_for("standby outlives both processes", || row(&bridge, 1)["standby"] == true);
    machine.ping(ip(1), 2);
    let (status, answer) = ask(&bridge, 1, SECOND, &json!({"change": true}));
    assert_eq!(status, 409, "h1 has it: {answer}");
    let (status, answer) = ask(&bridge, 1, SECOND, &json!({"change": true, "move": true}));
    assert_eq!(status, 201, "{answer}");
    wait_for("both say h2", || owner(&bridge, 0) == "h2" && owner(&bridge, 1) == "h2");
    let back = ask(&bridge, 1, SECOND, &json!({"change": true, "move": true, "standby": true}));
    assert_eq!(back.0, 409, "{}", back.1);
}

#[test]
#[ignore = "live: needs root"]
fn machine_socket_is_added_and_goes() {
    if skip("machine_socket_is_added_and_goes", &[]) {
        return;
    }
    let bridge = Bridge::fabric("sockets", 2);
    let host = &bridge.daemons[0];
    let path = bridge.net.file("vm.sock");
    let words = |name: &str| path.with_file_name(name).display().to_string();
    let add = ["port", "add", "--vnet", "blue", "--mac", MAC, "--ip", "10.42.0.50/24"];
    let said = host.says(&[&add[..], &["--vm", &words("vm.sock")]].concat());
    assert!(said.contains("vm.sock"), "{said}");
    assert!(path.exists(), "the port listens");
    let other = ["port", "add", "--vnet", "blue", "--name", "b"];
    host.refuses(&[&other[..], &["--vm", &words("vm.sock")]].concat(), &["port `vm`"]);
    host.refuses(&[&other[..], &["--vm", "vm.sock"]].concat(), &["absolute path"]);
    host.refuses(&[&other[..], &["--vm", &words("b"), "--device", "x"]].concat(), &["--device"]);
    host.refuses(
        &["port", "add", "--vnet", "blue", "--netns", "x", "--kind", "vhost-user"],
        &["--vm"],
    );
    host.says(&["port", "del", "vm"]);
    assert!(!path.exists(), "the socket goes with the port");

    let listener = UnixListener::bind(words("qemu.sock")).unwrap();
    host.says(&[&add[..], &["--vm", &words("qemu.sock"), "--client"]].concat());
    listener.accept().expect("the port connects");
    host.says(&["port", "del", "qemu"]);
}
