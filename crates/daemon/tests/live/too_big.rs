//! Packets too large for their path, in IPv4 and IPv6, compared with the answers of a Linux bridge
//! and the kernel's VXLAN. Each sender's device takes 1500 bytes, and so does the underlay, of
//! which 1450 are left.
//!
//! ```text
//!   box  ─ TAP ─┤ host up0 ══════════ up0 peer ├─ vx0    box and underlay at one worker, or two
//!   box2 ─ TAP ─┤  (takes 1300)
//!   lbox ─ veth ─┤ br0 ├─ vx0 lhost up0 ══ up0 lpeer ├─ vx0  the kernel's
//! ```

use crate::rig::{Daemon, Net, Netns, cable, say, skip, wait_for};

const TOOLS: [&str; 1] = ["ping"];
const BOX_MAC: &str = "02:47:00:00:00:01";
const PEER_MAC: &str = "02:47:00:00:00:02";
const BOX: [&str; 2] = ["10.47.0.1", "fd47::1"];
const PEER: [&str; 2] = ["10.47.0.2", "fd47::2"];
const NARROW: &str = "10.47.0.3";

/// Gives a device its addresses in both families, and an MTU of 1500 bytes.
fn addresses(netns: &Netns, device: &str, [four, six]: [&str; 2]) {
    netns.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=0");
    netns.run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=0"));
    netns.ip(&format!("addr add {four}/24 dev {device}"));
    netns.ip(&format!("addr add {six}/64 dev {device} nodad"));
    netns.ip(&format!("link set {device} up mtu 1500"));
}

/// Pings with a packet of `size` bytes that may not be fragmented. Returns the MTU in another
/// machine's answer, if there is one.
fn said(from: &Netns, to: &str, size: usize) -> Option<u16> {
    let headers = if to.contains(':') { 48 } else { 28 };
    let size = size - headers;
    let output = from.attempt(&format!("ping -M do -c 1 -W 1 -s {size} {to}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("From "))?;
    let (_, mtu) = line.split_once("mtu")?;
    let digits: String = mtu.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the answers to a packet of 1500 bytes, once both know each other.
fn is_told(from: &Netns, to: [&str; 2]) -> [u16; 2] {
    to.map(|to| told_of(from, to, 1500))
}

fn told_of(from: &Netns, to: &str, size: usize) -> u16 {
    wait_for(&format!("{} reaches {to}", from.name()), || {
        from.attempt(&format!("ping -c 1 -W 1 {to}")).status.success()
    });
    let mut mtu = None;
    wait_for(&format!("{} is told", from.name()), || {
        mtu = said(from, to, size);
        mtu.is_some()
    });
    mtu.unwrap()
}

/// Makes a VXLAN device without a device below, so that its MTU may be more than fits into the
/// tunnel.
fn vxlan_device(netns: &Netns, address: &str, local: &str, remote: &str) {
    netns.ip(&format!(
        "link add vx0 {address} type vxlan id 47 local {local} remote {remote} dstport 4789 \
         noudpcsum"
    ));
}

/// Returns the answers of a kernel's bridge and VXLAN devices, which pass 1500 bytes on to the
/// tunnel.
fn of_the_kernel(net: &mut Net) -> [u16; 2] {
    let (lbox, lhost, lpeer) = (net.netns("lbox"), net.netns("lhost"), net.netns("lpeer"));
    cable((&lhost, "up0", "192.0.2.1/24"), (&lpeer, "up0", "192.0.2.2/24"));
    cable((&lbox, "t0", ""), (&lhost, "leg", ""));
    vxlan_device(&lhost, "", "192.0.2.1", "192.0.2.2");
    vxlan_device(&lpeer, "", "192.0.2.2", "192.0.2.1");
    lhost.ip("link add br0 type bridge");
    for device in ["vx0", "leg"] {
        lhost.ip(&format!("link set {device} master br0"));
        lhost.ip(&format!("link set {device} up mtu 1500"));
    }
    lhost.ip("link set br0 up");
    addresses(&lbox, "t0", BOX);
    addresses(&lpeer, "vx0", PEER);
    is_told(&lbox, PEER)
}

struct Case {
    _daemon: Daemon,
    container: Netns,
    peer: Netns,
}

/// Makes a host; the box's port belongs to its last worker, everything else to its first one.
fn host(net: &mut Net, kind: &str, workers: usize) -> Case {
    let word = |what: &str| format!("{what}{workers}{kind}");
    let (container, narrow) = (net.netns(&word("box")), net.netns(&word("nbox")));
    let (host, peer) = (net.netns(&word("host")), net.netns(&word("peer")));
    cable((&host, "up0", "192.0.2.1/24"), (&peer, "up0", "192.0.2.2/24"));
    vxlan_device(&peer, &format!("address {PEER_MAC}"), "192.0.2.2", "192.0.2.1");
    let name = word("h");
    let mut text = config(kind, workers, &container);
    if workers == 1 {
        // Ports are added to members of a fabric only.
        let certificates = net.certificates(&[&name]).join(&name);
        text += &format!(
            "[fabric]\nname = \"big\"\nid = 1\ncertificates = \"{}\"\n",
            certificates.display()
        );
    }
    let daemon = net.daemon(&host, &name, &text);
    addresses(&container, "t0", BOX);
    addresses(&peer, "vx0", PEER);
    if workers == 1 {
        narrow.ip("link set lo up");
        let words = ["port", "add", "--netns", narrow.name(), "--vnet", "blue"];
        daemon.ask(&[&words[..], &["--ip", "10.47.0.3/24", "--mtu", "1300"]].concat());
    }
    Case { _daemon: daemon, container, peer }
}

fn config(kind: &str, workers: usize, container: &Netns) -> String {
    let (several, last) = match workers {
        1 => (String::new(), String::new()),
        _ => (format!("workers = {workers}\n"), format!("worker = {}\n", workers - 1)),
    };
    let first = if workers == 1 { "" } else { "worker = 0\n" };
    format!(
        r#"{several}policy = "ZL"
[underlay]
kind = "{kind}"
device = "up0"
address = "192.0.2.1"
{first}[[vnet]]
name = "blue"
vni = 47
[[port]]
name = "box"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
mac = "{BOX_MAC}"
{last}[[peer]]
name = "peer"
vtep = "192.0.2.2"
vnets = ["blue"]
[[vport]]
vnet = "blue"
mac = "{PEER_MAC}"
peer = "peer"
"#,
        container.name()
    )
}

#[test]
#[ignore = "live: needs root"]
fn oversized_packet_icmp_mtu_equals_kernel_bridge() {
    if skip("oversized_packet_icmp_mtu_equals_kernel_bridge", &TOOLS) {
        return;
    }
    let mut net = Net::new("big");
    let expected = of_the_kernel(&mut net);
    say(&format!("the kernel's bridge and VXLAN say {expected:?} (IPv4, IPv6)"));
    assert_eq!(expected, [1450; 2]);
    for (kind, workers) in [("l2", 1), ("l2", 2), ("udp", 2)] {
        let case = host(&mut net, kind, workers);
        let told = is_told(&case.container, PEER);
        say(&format!("{kind}, {workers} workers: {told:?}"));
        assert_eq!(told, expected, "{kind}, {workers} workers");
        if workers == 1 {
            // The peer's packet comes out of a tunnel, and its answer goes back through it.
            let narrow = told_of(&case.peer, NARROW, 1450);
            say(&format!("to a port of 1300 bytes, out of a tunnel: {narrow}"));
            assert_eq!(narrow, 1300);
        }
    }
}
