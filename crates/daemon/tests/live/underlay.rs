//! An underlay that changes at run time, against the VXLAN device of a Linux kernel: its device
//! gets another address, another MTU, another name, goes down, away and back; and a router on the
//! path takes less than the device.
//!
//! ```text
//!   box ─ TAP ─┤ host up0 ═══════════ up0 peer ├─ vx0        direct
//!   box ─ TAP ─┤ host up0 ═ router ══ up0 peer ├─ vx0        routed, 1400 bytes behind the router
//! ```

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::rig::ping::{Pinger, Pings};
use crate::rig::{Daemon, Net, Netns, cable, say, skip, wait_for};

const BOX: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 1);
const BOX_MAC: &str = "02:46:00:00:00:01";
const PEER: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 2);
const PEER_MAC: &str = "02:46:00:00:00:02";
const HOST_VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Longest time for an answer; a later one counts as lost.
const SOON: Duration = Duration::from_millis(100);
/// Largest packet of the networks.
const FULL: usize = 1450;

/// Everything of one test. Fields end in this order: the daemon before its namespaces.
struct Case {
    daemon: Daemon,
    _net: Net,
    container: Netns,
    host: Netns,
    peer: Netns,
    elsewhere: Netns,
}

impl Case {
    fn new(kind: &str, routed: bool) -> Self {
        let mut net = Net::new(&format!("u{kind}{}", u8::from(routed)));
        let (container, host) = (net.netns("box"), net.netns("host"));
        let (peer, elsewhere) = (net.netns("peer"), net.netns("else"));
        let vtep = if routed {
            cable((&host, "up0", "192.0.2.1/24"), (&elsewhere, "leg0", "192.0.2.254/24"));
            cable((&peer, "up0", "198.51.100.2/24"), (&elsewhere, "leg1", "198.51.100.254/24"));
            elsewhere.ip("link set leg1 mtu 1400");
            elsewhere.run("sysctl -qw net.ipv4.ip_forward=1");
            peer.ip("route add default via 198.51.100.254");
            host.ip("route add default via 192.0.2.254");
            Ipv4Addr::new(198, 51, 100, 2)
        } else {
            cable((&host, "up0", "192.0.2.1/24"), (&peer, "up0", "192.0.2.2/24"));
            Ipv4Addr::new(192, 0, 2, 2)
        };
        vxlan_device(&peer, vtep);
        let daemon = net.daemon(&host, "h0", &config(kind, &container, vtep));
        container.ip(&format!("addr add {BOX}/24 dev t0"));
        container.ip("link set t0 up");
        let case = Self { daemon, _net: net, container, host, peer, elsewhere };
        case.heals("it is there");
        case
    }

    /// Checks that pings pass again soon, and that none is lost afterwards.
    fn heals(&self, what: &str) {
        let mut pinger = Pinger::with_patience(&self.container, PEER, SOON);
        let mut lost = 0;
        wait_for(&format!("pings after: {what}"), || {
            let passed = pinger.ping(84);
            lost += u32::from(!passed);
            passed
        });
        self.container.ping(PEER, 20);
        self.peer.ping(BOX, 20);
        say(&format!("{what}: {lost} pings lost, one at a time"));
    }

    fn log_says(&self, text: &str) {
        wait_for(&format!("the log says `{text}`"), || self.daemon.log().contains(text));
    }

    fn lossless_says(&self, text: &str) {
        wait_for(&format!("`show ports` says `{text}`"), || {
            let row = self.daemon.row("ports", "port", "underlay");
            row["lossless"].as_str().unwrap().contains(text)
        });
    }

    fn path_mtu(&self) -> Option<u64> {
        self.daemon.row("tunnels", "peer", "peer")["path_mtu"].as_u64()
    }

    /// Lets the container's kernel learn the path MTU from the switch's answer. Its packets need no
    /// answer of their own: the peer's would be too large for the path back.
    fn container_learns(&self, mtu: usize) {
        let mut pinger = Pinger::with_patience(&self.container, PEER, SOON);
        wait_for("the container has learned the MTU", || {
            pinger.ping(FULL);
            let route = self.container.ip(&format!("route get {PEER}"));
            route.contains(&format!("mtu {mtu} "))
        });
    }
}

fn vxlan_device(peer: &Netns, vtep: Ipv4Addr) {
    peer.ip(&format!(
        "link add vx0 address {PEER_MAC} mtu {FULL} type vxlan id 46 local {vtep} remote \
         {HOST_VTEP} dev up0 dstport 4789"
    ));
    peer.ip(&format!("addr add {PEER}/24 dev vx0"));
    peer.ip("link set vx0 up");
}

fn config(kind: &str, container: &Netns, vtep: Ipv4Addr) -> String {
    format!(
        r#"policy = "ZL"
[underlay]
kind = "{kind}"
device = "up0"
address = "{HOST_VTEP}"
[[vnet]]
name = "blue"
vni = 46
[[port]]
name = "box"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
mac = "{BOX_MAC}"
[[peer]]
name = "peer"
vtep = "{vtep}"
vnets = ["blue"]
[[vport]]
vnet = "blue"
mac = "{PEER_MAC}"
peer = "peer"
"#,
        container.name()
    )
}

/// Sends `bytes` over TCP from the container to the peer.
fn sends_by_tcp(case: &Case, bytes: usize) {
    let listener = case.peer.inside(|| TcpListener::bind((PEER, 5_000)).unwrap());
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received.len()
    });
    let mut stream = case.container.inside(|| TcpStream::connect((PEER, 5_000)).unwrap());
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receiver.join().unwrap(), bytes);
}

fn follows_its_device(kind: &str) {
    let case = Case::new(kind, false);
    let process = case.daemon.data_pid();
    let pings = [Pings::start(&case.container, PEER), Pings::start(&case.peer, BOX)];
    case.host.ip("link set up0 address 02:46:00:00:99:01");
    case.heals("another address of its own device");
    case.peer.ip("link set up0 address 02:46:00:00:99:02");
    case.heals("another address of the peer's device");
    for pings in pings {
        let (sent, answered) = pings.stop();
        say(&format!("{kind}: both changes beside pings: {} of {sent} lost", sent - answered));
    }

    case.host.ip("link set up0 mtu 1400");
    case.log_says("up0 has an MTU of 1400, and the largest network needs 1500");
    case.container_learns(1350);
    case.heals("an MTU of 1400");
    assert_eq!(case.daemon.drops().get(&("underlay".into(), "bad_ip".into())), None);
    case.host.ip("link set up0 mtu 1500");
    case.log_says("up0 has an MTU of 1500 now");

    case.host.ip("link set up0 down");
    case.log_says("up0 is set down now");
    if kind == "l2" {
        case.lossless_says("needs its device up0 up");
    }
    case.host.ip("link set up0 up");
    case.heals("down and up");
    if kind == "l2" {
        goes_away_and_comes_back(&case);
    }
    assert_eq!(case.daemon.data_pid(), process, "the same process as before");
    case.daemon.drained();
    assert_eq!(case.daemon.show("audit")["closed"], true);
}

fn goes_away_and_comes_back(case: &Case) {
    let host = case.host.name();
    case.host.ip("link set up0 down");
    case.host.ip("link set up0 name up9");
    case.host.ip("link set up9 up");
    case.log_says("its device up0 is called up9 now");
    case.heals("another name");
    case.host.ip(&format!("link set up9 netns {}", case.elsewhere.name()));
    case.log_says("its device up0 was moved to another network namespace");
    case.lossless_says("needs its device back");
    case.elsewhere.ip(&format!("link set up9 netns {host} name up0"));
    case.host.ip(&format!("addr add {HOST_VTEP}/24 dev up0"));
    case.host.ip("link set up0 up");
    case.log_says("port underlay: its device is back");
    case.heals("moved away and back");
    // The other end of the link goes with it.
    case.host.ip("link del up0");
    case.log_says("its device up0 was deleted");
    cable((&case.host, "up0", "192.0.2.1/24"), (&case.peer, "up0", "192.0.2.2/24"));
    vxlan_device(&case.peer, Ipv4Addr::new(192, 0, 2, 2));
    case.heals("deleted and made anew");
}

#[test]
#[ignore = "live: needs root"]
fn an_l2_underlay_follows_its_device() {
    if !skip("an_l2_underlay_follows_its_device", &[]) {
        follows_its_device("l2");
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_udp_underlay_follows_its_device() {
    if !skip("a_udp_underlay_follows_its_device", &[]) {
        follows_its_device("udp");
    }
}

/// Checks that a router with a smaller MTU than the device is no black hole: its message is
/// handled, shown, and passed on to the senders of larger packets.
fn learns_the_mtu_of_the_way(kind: &str) {
    let case = Case::new(kind, true);
    assert_eq!(case.path_mtu(), None);
    sends_by_tcp(&case, 1 << 20);
    assert_eq!(case.path_mtu(), Some(1400));
    case.container_learns(1350);
    case.log_says("the way to its far end has an MTU of 1400");
    case.daemon.drained();
    assert_eq!(case.daemon.show("audit")["closed"], true);
    let too_large = case.daemon.drops().get(&("box".into(), "oversize".into())).copied();
    say(&format!("{kind}: TCP through a router of 1400 bytes; oversize: {too_large:?}"));
}

#[test]
#[ignore = "live: needs root"]
fn l2_underlay_learns_path_mtu_behind_router() {
    if !skip("l2_underlay_learns_path_mtu_behind_router", &[]) {
        learns_the_mtu_of_the_way("l2");
    }
}

#[test]
#[ignore = "live: needs root"]
fn udp_underlay_learns_path_mtu_behind_router() {
    if !skip("udp_underlay_learns_path_mtu_behind_router", &[]) {
        learns_the_mtu_of_the_way("udp");
    }
}
