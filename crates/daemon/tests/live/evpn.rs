//! A member of a fabric and FRR, which is no member and speaks EVPN: each learns from the other
//! which endpoints it has, and none from frames.
//!
//! ```text
//!   box ─ TAP ─┤ h1 up0 ═════ BGP, VXLAN ═════ up0 frr: vx100 ─ br100 ─ p0 ══ q0 machine
//! ```

use std::net::Ipv4Addr;

use serde_json::Value;
use sluice_base::Mac;
use sluice_netns::frr::{self, Frr};
use sluice_testkit::bound::is_soak;
use sluice_wire::arp;

use crate::rig::raw::{Sender, ethernet};
use crate::rig::{Daemon, Net, Netns, cable, skip, wait_for};

const AS: u32 = 65000;
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Name of the peer that EVPN makes.
const PEER_NAME: &str = "evpn-192.0.2.2";
const BOX: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const BOX_MAC: &str = "02:42:00:00:00:01";
const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const MACHINE_MAC: &str = "02:42:00:00:00:02";
/// An endpoint that is bound to a port without a machine.
const BOUND_MAC: &str = "02:42:00:00:00:03";
/// An endpoint that moves.
const MOVES_MAC: &str = "02:42:00:00:00:04";
const MOVES: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 4);

/// Everything of one test. Fields end in this order: the programs before their namespaces.
struct Scene {
    daemon: Daemon,
    frr: Frr,
    container: Netns,
    machine: Netns,
    _net: Net,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}\n{}", self.frr.state(), self.daemon.log());
        }
    }
}

fn config(certificates: &str, container: &str) -> String {
    format!(
        r#"
policy = "ZL"
spare_tunnels = 2
[underlay]
kind = "l2"
device = "up0"
address = "{HOST}"
[fabric]
name = "test"
id = 1
certificates = "{certificates}"
moves_max = 0
[evpn]
as = {AS}
stale_s = 3
[[evpn.neighbor]]
address = "{PEER}"
as = {AS}
[[vnet]]
name = "blue"
vni = 100
[[port]]
name = "box"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{container}"
[[port]]
name = "bound"
kind = "tap"
vnet = "blue"
device = "t1"
netns = "/run/netns/{container}"
mac = "{BOUND_MAC}"
"#
    )
}

impl Scene {
    /// Makes the scene; `None`: something is missing, which is said.
    fn new(word: &str) -> Option<Self> {
        if skip("live::evpn", &["ip", "bridge"]) {
            return None;
        }
        if let Some(program) = frr::missing() {
            eprintln!("SKIPPED live::evpn: `{program}` of FRR is not installed");
            return None;
        }
        let mut net = Net::new(word);
        let [container, host, peer, machine] =
            ["box", "h1", "frr", "machine"].map(|name| net.netns(name));
        cable((&host, "up0", &format!("{HOST}/24")), (&peer, "up0", &format!("{PEER}/24")));
        let certificates = net.certificates(&["h1"]).join("h1");
        let text = config(&certificates.display().to_string(), container.name());
        let daemon = net.daemon(&host, "h1", &text);
        let dir = net.file("frr");
        std::fs::create_dir_all(&dir).unwrap();
        let frr = Frr::start(peer.plain(), &dir, (AS, PEER), &[HOST]).unwrap();
        peer.ip(&format!("link set q0 netns {}", machine.name()));
        peer.run("ethtool -K up0 tx off");
        machine.ip(&format!("link set q0 address {MACHINE_MAC} mtu 1450"));
        machine.ip(&format!("addr add {MACHINE}/24 dev q0"));
        machine.ip("link set q0 up");
        machine.run("ethtool -K q0 tx off");
        container.ip(&format!("link set t0 address {BOX_MAC}"));
        container.ip(&format!("addr add {BOX}/24 dev t0"));
        container.ip("link set t0 up");
        let scene = Self { daemon, frr, container, machine, _net: net };
        scene.is_up();
        Some(scene)
    }

    /// Waits until the session is up, and FRR's VTEP is a peer.
    fn is_up(&self) {
        wait_for("the session is up", || self.neighbor()["state"] == "established");
        wait_for("FRR's VTEP is a peer", || self.has_peer());
        wait_for("the host is in FRR's flood", || self.frr.floods(HOST));
    }

    fn neighbor(&self) -> Value {
        self.daemon.ask(&["fabric", "evpn"])["evpn"]["neighbors"][0].take()
    }

    fn has_peer(&self) -> bool {
        let members = self.daemon.ask(&["fabric", "members"])["members"].take();
        members.as_array().unwrap().iter().any(|row| row["host"] == PEER_NAME)
    }

    /// Returns the host of an endpoint.
    fn place(&self, mac: &str) -> Option<String> {
        let rows = self.daemon.ask(&["vport", "list"])["vports"].take();
        let row = rows.as_array().unwrap().iter().find(|row| row["mac"] == mac).cloned();
        row.map(|row| row["host"].as_str().unwrap().to_owned())
    }

    fn is_at_frr(&self, mac: &str) -> bool {
        self.place(mac).as_deref() == Some(PEER_NAME)
    }
}

#[test]
#[ignore = "live: needs root"]
fn container_and_machine_behind_frr_reach_each_other() {
    let Some(mut scene) = Scene::new("evpn") else { return };
    scene.container.ping(MACHINE, 20);
    scene.machine.ping(BOX, 20);
    wait_for("the machine is known", || scene.is_at_frr(MACHINE_MAC));
    wait_for("FRR's kernel has the container", || scene.frr.sends(BOX_MAC, HOST));

    // What is bound is to stay.
    let routes = scene.frr.vtysh("show bgp l2vpn evpn route type macip");
    let at = routes.find(BOUND_MAC).unwrap_or_else(|| panic!("{routes}"));
    assert!(routes[at..].contains("sticky"), "{routes}");

    // Both are told, by both, before they have said anything.
    scene.frr.put("02:42:00:00:00:05").unwrap();
    wait_for("a silent machine is known", || scene.is_at_frr("02:42:00:00:00:05"));
    scene.frr.remove("02:42:00:00:00:05").unwrap();
    wait_for("it is forgotten", || scene.place("02:42:00:00:00:05").is_none());

    // Another control process goes on with the peer, and FRR, which keeps no EVPN routes of a
    // session that ended, gets them at once.
    scene.daemon.kill_control();
    scene.daemon.restart_control();
    assert!(scene.has_peer(), "it is a peer from the start on");
    scene.is_up();
    wait_for("FRR's kernel has the container", || scene.frr.sends(BOX_MAC, HOST));
    scene.container.ping(MACHINE, 5);
    scene.machine.ping(BOX, 5);

    // FRR is gone for longer than its routes stay.
    scene.frr.kill("bgpd");
    scene.frr.kill("zebra");
    wait_for("FRR's VTEP is no peer any more", || !scene.has_peer());
    assert_eq!(scene.place(MACHINE_MAC), None);
    scene.frr.start_daemons().unwrap();
    scene.is_up();
    scene.machine.ping(BOX, 5);
    wait_for("the machine is known again", || scene.is_at_frr(MACHINE_MAC));

    // There is one place, and one that is kept for a peer of the file: it comes before EVPN's.
    let peer = "[[peer]]\nname = \"h9\"\nvtep = \"192.0.2.9\"\nvnets = [\"blue\"]\n";
    scene.daemon.reconfigure(|text| text + peer);
    scene.daemon.reload();
    wait_for("FRR's VTEP is no peer any more", || !scene.has_peer());
    scene.daemon.reconfigure(|text| text.replace(peer, ""));
    scene.daemon.reload();
    wait_for("FRR's VTEP is a peer again", || scene.has_peer());
    wait_for("the machine is known again", || scene.is_at_frr(MACHINE_MAC));
    scene.machine.ping(BOX, 5);
    scene.daemon.drained();
    scene.daemon.assert_lossless();
}

/// Returns a gratuitous ARP request of the endpoint that moves.
fn announcement() -> Vec<u8> {
    let (mac, mut payload) = (MOVES_MAC.parse().unwrap(), [0; arp::SIZE]);
    arp::Repr::announcement(mac, MOVES).emit(&mut payload);
    ethernet(Mac::BROADCAST, mac, 0x0806, &payload)
}

#[test]
#[ignore = "live: needs root"]
fn endpoint_moves_between_host_and_frr() {
    let Some(scene) = Scene::new("evpnmove") else { return };
    let mut sides = [Sender::new(&scene.container, "t0"), Sender::new(&scene.machine, "q0")];
    let moves = if is_soak() { 200 } else { 20 };
    for step in 0..moves {
        assert!(sides[step % 2].send(&announcement()));
        let what = format!("move {step}");
        if step % 2 == 0 {
            wait_for(&what, || scene.place(MOVES_MAC).as_deref() == Some("h1"));
            wait_for(&what, || scene.frr.sends(MOVES_MAC, HOST));
        } else {
            wait_for(&what, || scene.is_at_frr(MOVES_MAC));
            wait_for(&what, || !scene.frr.sends(MOVES_MAC, HOST));
        }
    }
    assert_eq!(scene.neighbor()["state"], "established");
}
