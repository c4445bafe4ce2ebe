//! A Sluice host and the VXLAN device of the Linux kernel, over a cable and over a router.
//!
//! ```text
//!  box ─ TAP ─┤ host up0 ══════════════ up0 peer ├─ vx0        direct
//!                                       up1 ══ up0 third       (third: another VTEP)
//!
//!  box ─ TAP ─┤ host up0 ══ router ════ up0 peer ├─ vx0        routed
//!                           router ════ up0 third
//! ```
//!
//! **Rules for the user of a kernel peer**
//!
//! 1. Name the underlay's device when the VXLAN device is made (`dev up0`), or set its MTU to 1450.
//!    Without either the kernel gives it 1500 and *cuts the outer packets*, which no VTEP has to
//!    put together (RFC 7348 section 4.3): large packets end here under `bad_ip`.
//! 2. On a cable made of veth, switch transmit offloads off at the *peer's* underlay device
//!    (`ethtool -K up0 tx off`, which ends TCP segmentation there as well). A veth carries a TCP
//!    super-frame, or one whose inner checksum is open, as it is: the network card that would
//!    finish both is not there, and no TCP connection gets far. Sluice does the same for its own
//!    device when it opens it.

use std::net::Ipv4Addr;

use crate::rig::iperf::Server;
use crate::rig::ping::Pinger;
use crate::rig::wire::Capture;
use crate::rig::{Daemon, Net, Netns, cable, say, skip};
use sluice_testkit::bound::at_least;

const TOOLS: [&str; 4] = ["iperf3", "tcpdump", "tshark", "ss"];
const BOX: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const BOX_MAC: &str = "02:42:00:00:00:01";
const PEER: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const PEER_MAC: &str = "02:42:00:00:00:02";
const HOST_VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THIRD_VTEP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 3);
const BROADCAST: &str = "ff:ff:ff:ff:ff:ff";

/// Everything of one test. Fields end in this order: the daemon before its namespaces.
struct Case {
    word: &'static str,
    daemon: Daemon,
    net: Net,
    container: Netns,
    host: Netns,
    peer: Netns,
    third: Netns,
}

impl Case {
    fn new(word: &'static str, kind: &str, policy: &str, routed: bool) -> Self {
        let mut net = Net::new(word);
        let (container, host) = (net.netns("box"), net.netns("host"));
        let (peer, third) = (net.netns("peer"), net.netns("third"));
        let (way, peer_vtep) = if routed {
            let router = net.netns("router");
            cable((&host, "up0", "192.0.2.1/24"), (&router, "leg0", "192.0.2.254/24"));
            cable((&peer, "up0", "198.51.100.2/24"), (&router, "leg1", "198.51.100.254/24"));
            cable((&third, "up0", "203.0.113.3/24"), (&router, "leg2", "203.0.113.254/24"));
            peer.ip("route add default via 198.51.100.254");
            router.run("sysctl -qw net.ipv4.ip_forward=1");
            ("192.0.2.254", Ipv4Addr::new(198, 51, 100, 2))
        } else {
            cable((&host, "up0", "192.0.2.1/24"), (&peer, "up0", "192.0.2.2/24"));
            cable((&third, "up0", "203.0.113.3/24"), (&peer, "up1", "203.0.113.254/24"));
            peer.run("sysctl -qw net.ipv4.ip_forward=1");
            ("192.0.2.2", Ipv4Addr::new(192, 0, 2, 2))
        };
        host.ip(&format!("route add default via {way}"));
        third.ip("route add default via 203.0.113.254");
        vxlan_device(&peer, peer_vtep, "noudpcsum");
        // The third one only listens, so that its kernel answers nothing.
        third.ip(&format!("link add vx0 type vxlan id 42 local {THIRD_VTEP} dstport 4789"));
        third.ip("link set vx0 up");
        let daemon = net.daemon(&host, "h0", &config(kind, policy, &container, peer_vtep));
        container.ip(&format!("addr add {BOX}/24 dev t0"));
        container.ip("link set t0 up");
        Self { word, daemon, net, container, host, peer, third }
    }
}

fn vxlan_device(peer: &Netns, local: Ipv4Addr, checksum: &str) {
    peer.ip(&format!(
        "link add vx0 address {PEER_MAC} type vxlan id 42 local {local} remote {HOST_VTEP} \
         dev up0 dstport 4789 {checksum}"
    ));
    peer.ip(&format!("addr add {PEER}/24 dev vx0"));
    peer.ip("link set vx0 up");
}

fn config(kind: &str, policy: &str, container: &Netns, peer_vtep: Ipv4Addr) -> String {
    format!(
        r#"policy = "{policy}"
[underlay]
kind = "{kind}"
device = "up0"
address = "{HOST_VTEP}"
[[vnet]]
name = "blue"
vni = 42
[[port]]
name = "box"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
mac = "{BOX_MAC}"
[[peer]]
name = "peer"
vtep = "{peer_vtep}"
vnets = ["blue"]
[[peer]]
name = "third"
vtep = "{THIRD_VTEP}"
vnets = ["blue"]
[[vport]]
vnet = "blue"
mac = "{PEER_MAC}"
peer = "peer"
"#,
        container.name()
    )
}

/// Returns the MAC that a namespace has for an address.
fn neighbour(netns: &Netns, address: Ipv4Addr) -> String {
    let text = netns.ip(&format!("neigh show {address}"));
    let mut words = text.split_whitespace().skip_while(|word| *word != "lladdr");
    words.nth(1).unwrap_or_else(|| panic!("{address} is not resolved: {text}")).to_owned()
}

/// Checks that both resolve each other by ARP alone, in either order, and lose no ping.
fn resolves_and_pings(case: &Case) {
    let forget = || {
        case.container.ip("neigh flush all");
        case.peer.ip("neigh flush dev vx0");
    };
    forget();
    case.container.ping(PEER, 20);
    forget();
    case.peer.ping(BOX, 20);
    assert_eq!(neighbour(&case.container, PEER), PEER_MAC);
    assert_eq!(neighbour(&case.peer, BOX), BOX_MAC);
}

/// Checks the MTU: 1500 bytes of underlay leave 1450 to the networks, on both sides. The largest
/// packet passes whole; with one byte more the sending kernel makes two packets.
fn honours_the_mtu(case: &Case) {
    for (netns, device, other) in [(&case.container, "t0", PEER), (&case.peer, "vx0", BOX)] {
        let link = netns.ip(&format!("link show dev {device}"));
        assert!(link.contains("mtu 1450"), "{link}");
        let mut pinger = Pinger::new(netns, other);
        let made = || netns.snmp("Ip", "FragCreates");
        let before = made();
        assert!(pinger.ping(1450), "a packet of 1450 bytes from {device}");
        assert_eq!(made(), before, "it was not cut");
        assert!(pinger.ping(1451), "a packet of 1451 bytes from {device}");
        assert_eq!(made(), before + 2, "it was cut");
    }
}

/// Checks TCP in both directions; prints the rates.
fn carries_tcp(case: &Case, seconds: u32) {
    let server = Server::start(&case.peer, PEER);
    let there = server.rate(&case.container, seconds, "");
    let back = server.rate(&case.container, seconds, "--reverse");
    let (there, back) = (there / 1_000_000, back / 1_000_000);
    say(&format!("{}: TCP to the kernel {there} Mbit/s, from it {back} Mbit/s", case.word));
    assert!(there > 0 && back > 0, "{there} and {back} Mbit/s");
    at_least("Mbit/s of the slower way", there.min(back), 20);
}

/// Runs all checks. Of all frames through the tunnels only broadcasts reached the third VTEP.
fn interoperates(word: &'static str, kind: &str, policy: &str, routed: bool, seconds: u32) {
    if skip(word, &TOOLS) {
        return;
    }
    let case = Case::new(word, kind, policy, routed);
    case.daemon.next_hops_are_resolved();
    let third = Capture::start(&case.net, &case.third, "up0", "udp port 4789");
    let large = Capture::start(&case.net, &case.host, "up0", "greater 1515");
    resolves_and_pings(&case);
    honours_the_mtu(&case);
    carries_tcp(&case, seconds);
    let third = third.stop().frames("", &["eth.dst", "vxlan.vni"]);
    assert!(!third.is_empty(), "the flood reaches every peer of the network");
    for frame in &third {
        let inner = frame[0].split(',').nth(1);
        assert_eq!((inner, &*frame[1]), (Some(BROADCAST), "42"), "of {third:?}");
    }
    let tunnel =
        |peer: &str| case.daemon.row("tunnels", "peer", peer)["tx_frames"].as_u64().unwrap();
    let (to_peer, to_third) = (tunnel("peer"), tunnel("third"));
    assert_eq!(to_third, third.len() as u64, "counted and seen");
    say(&format!("{word}: {to_peer} frames to the peer, {to_third} broadcasts to the third VTEP"));
    assert!(to_peer > 100 * to_third);
    assert_eq!(large.stop().frames("", &["frame.len"]), Vec::<Vec<String>>::new());
    let refused = case.host.snmp("Icmp", "OutDestUnreachs");
    assert_eq!(refused, 0, "the kernel of the host answers VXLAN with ICMP");
    case.daemon.drained();
    case.daemon.assert_lossless();
}

#[test]
#[ignore = "live: needs root"]
fn a_kernel_peer_on_a_cable() {
    interoperates("l2-direct", "l2", "ZZ", false, 2);
}

#[test]
#[ignore = "live: needs root"]
fn a_kernel_peer_behind_a_router() {
    interoperates("l2-routed", "l2", "ZZ", true, 2);
}

#[test]
#[ignore = "live: needs root"]
fn a_kernel_peer_without_pfc() {
    interoperates("l2-zl", "l2", "ZL", false, 1);
}

#[test]
#[ignore = "live: needs root"]
fn a_kernel_peer_of_a_udp_underlay() {
    interoperates("udp-direct", "udp", "ZL", false, 2);
}

#[test]
#[ignore = "live: needs root"]
fn kernel_vtep_routed_udp_underlay_interoperates() {
    interoperates("udp-routed", "udp", "ZL", true, 2);
}

/// RFC 7348 section 5: the UDP checksum should be zero, and another one must be accepted.
#[test]
#[ignore = "live: needs root"]
fn udp_checksums_may_be_there_or_not() {
    if skip("udp_checksums_may_be_there_or_not", &TOOLS) {
        return;
    }
    let case = Case::new("csum", "l2", "ZZ", false);
    for (option, is_zero) in [("noudpcsum", true), ("udpcsum", false)] {
        case.peer.ip("link del vx0");
        vxlan_device(&case.peer, Ipv4Addr::new(192, 0, 2, 2), option);
        let wire = Capture::start(&case.net, &case.host, "up0", "src 192.0.2.2 and udp port 4789");
        resolves_and_pings(&case);
        let sums = wire.stop().frames("", &["udp.checksum"]);
        let zero = |frame: &Vec<String>| frame[0].split(',').next() == Some("0x0000");
        assert!(sums.len() >= 40 && sums.iter().all(|f| zero(f) == is_zero), "{option}: {sums:?}");
    }
    assert_eq!(case.host.snmp("Icmp", "OutDestUnreachs"), 0);
    case.daemon.assert_lossless();
}
