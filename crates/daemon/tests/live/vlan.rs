//! Plain machines behind a host's ports, without any knowledge of Sluice: one behind an access
//! port, one with two VLANs behind a trunk. They reach containers on another host over VXLAN.
//!
//! ```text
//!  desk (untagged) ══ acc ├ h0 up0 ══ up0 h1 ┤ blue-box     network blue: desk, VLAN 10
//!  rack VLAN 10 ┐         │                  ├ red-box      network red: VLAN 20
//!       VLAN 20 ┴═════ trk┤
//! ```

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::rig::ping::Pinger;
use crate::rig::tagger::Tagger;
use crate::rig::wire::Capture;
use crate::rig::{Daemon, Net, Netns, cable, raw, say, skip, wait_for};
use sluice_base::Mac;

const TOOLS: [&str; 2] = ["tcpdump", "tshark"];
const VTEPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const DESK: Ipv4Addr = Ipv4Addr::new(10, 44, 0, 1);
const RACK_BLUE: Ipv4Addr = Ipv4Addr::new(10, 44, 0, 2);
const BLUE_BOX: Ipv4Addr = Ipv4Addr::new(10, 44, 0, 3);
const RACK_RED: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
const RED_BOX: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 3);
const DESK_MAC: Mac = Mac([2, 0x44, 0, 0, 0, 1]);
const RACK_BLUE_MAC: Mac = Mac([2, 0x44, 0, 0, 0, 2]);
const RACK_RED_MAC: Mac = Mac([2, 0x45, 0, 0, 0, 2]);
const BLUE_BOX_MAC: Mac = Mac([2, 0x44, 0, 0, 0, 3]);
const RED_BOX_MAC: Mac = Mac([2, 0x45, 0, 0, 0, 3]);
/// DSCP CS5, which is priority 5, as a TOS octet.
const CS5: u8 = 40 << 2;

/// Everything of one test. Fields end in this order: daemons before their namespaces.
struct Case {
    hosts: [Daemon; 2],
    rack_side: Tagger,
    net: Net,
    desk: Netns,
    rack: Netns,
    blue_box: Netns,
    red_box: Netns,
}

impl Case {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let (h0, h1) = (net.netns("h0"), net.netns("h1"));
        let (desk, rack) = (net.netns("desk"), net.netns("rack"));
        let (blue_box, red_box) = (net.netns("blue"), net.netns("red"));
        cable((&h0, "up0", "192.0.2.1/24"), (&h1, "up0", "192.0.2.2/24"));
        for host in [&h0, &h1] {
            host.ip("link set up0 mtu 1600");
        }
        cable((&desk, "eth0", "10.44.0.1/24"), (&h0, "acc", ""));
        desk.ip(&format!("link set eth0 address {DESK_MAC}"));
        cable((&rack, "wire", ""), (&h0, "trk", ""));
        let vlans = [(10, "v10", RACK_BLUE_MAC), (20, "v20", RACK_RED_MAC)];
        let rack_side = Tagger::start(&rack, "wire", 1500, &vlans);
        rack.ip(&format!("addr add {RACK_BLUE}/24 dev v10"));
        rack.ip(&format!("addr add {RACK_RED}/24 dev v20"));
        let hosts = [
            net.daemon(&h0, "h0", &format!("{}{}", underlay(0), bare_metal())),
            net.daemon(&h1, "h1", &format!("{}{}", underlay(1), boxes(&blue_box, &red_box))),
        ];
        for (netns, address) in [(&blue_box, BLUE_BOX), (&red_box, RED_BOX)] {
            netns.ip(&format!("addr add {address}/24 dev t0"));
            netns.ip("link set t0 up");
        }
        for host in &hosts {
            host.next_hops_are_resolved();
        }
        Self { hosts, rack_side, net, desk, rack, blue_box, red_box }
    }

    /// Returns frames of an audit row of `h0` in one priority: received, delivered.
    fn received(&self, port: &str, priority: u8) -> u64 {
        let audit = self.hosts[0].show("audit");
        let rows = audit["rows"].as_array().unwrap().iter();
        let mut rows = rows.filter(|row| row["port"] == port && row["priority"] == priority);
        rows.next().map_or(0, |row| row["frames"]["received"].as_u64().unwrap())
    }
}

fn underlay(host: usize) -> String {
    let (own, other) = (VTEPS[host], VTEPS[1 - host]);
    format!(
        r#"policy = "ZZ"
[underlay]
kind = "l2"
device = "up0"
address = "{own}"
link = {{ rate_mbps = 200 }}
[[vnet]]
name = "blue"
vni = 44
mtu = 1500
[[vnet]]
name = "red"
vni = 45
mtu = 1500
[[peer]]
name = "other"
vtep = "{other}"
vnets = ["blue", "red"]
"#
    )
}

fn bare_metal() -> String {
    format!(
        r#"
[[port]]
name = "desk"
kind = "l2"
vnet = "blue"
device = "acc"
mac = "{DESK_MAC}"
link = {{ rate_mbps = 200 }}
[[port]]
name = "rack-blue"
kind = "l2"
vnet = "blue"
device = "trk"
vlan = 10
mac = "{RACK_BLUE_MAC}"
link = {{ rate_mbps = 200 }}
[[port]]
name = "rack-red"
kind = "l2"
vnet = "red"
device = "trk"
vlan = 20
mac = "{RACK_RED_MAC}"
[[vport]]
vnet = "blue"
mac = "{BLUE_BOX_MAC}"
peer = "other"
[[vport]]
vnet = "red"
mac = "{RED_BOX_MAC}"
peer = "other"
"#
    )
}

fn boxes(blue: &Netns, red: &Netns) -> String {
    let tap = |vnet: &str, netns: &Netns, mac: Mac| {
        format!(
            "[[port]]\nname = \"{vnet}-box\"\nkind = \"tap\"\nvnet = \"{vnet}\"\ndevice = \"t0\"\n\
             netns = \"/run/netns/{}\"\nmac = \"{mac}\"\n",
            netns.name()
        )
    };
    let vport = |vnet: &str, mac: Mac| {
        format!("[[vport]]\nvnet = \"{vnet}\"\nmac = \"{mac}\"\npeer = \"other\"\n")
    };
    [
        tap("blue", blue, BLUE_BOX_MAC),
        tap("red", red, RED_BOX_MAC),
        vport("blue", DESK_MAC),
        vport("blue", RACK_BLUE_MAC),
        vport("red", RACK_RED_MAC),
    ]
    .concat()
}

/// Checks each pair that shares a network, with ARP in both directions.
fn resolves_and_pings(case: &Case) {
    let pairs = [
        (&case.desk, BLUE_BOX),
        (&case.blue_box, DESK),
        (&case.rack, BLUE_BOX),
        (&case.blue_box, RACK_BLUE),
        (&case.rack, RED_BOX),
        (&case.red_box, RACK_RED),
        (&case.desk, RACK_BLUE),
        (&case.rack, DESK),
    ];
    for (from, to) in pairs {
        for netns in [&case.desk, &case.rack, &case.blue_box, &case.red_box] {
            netns.ip("neigh flush all");
        }
        from.ping(to, 10);
    }
}

/// Checks that 1500 bytes pass whole; with their tag they are 1518 bytes on the wire.
fn carries_frames_of_full_size(case: &Case) {
    let wire = Capture::start(&case.net, &case.rack, "wire", "greater 1500");
    for (from, to) in [
        (&case.rack, BLUE_BOX),
        (&case.blue_box, RACK_BLUE),
        (&case.red_box, RACK_RED),
        (&case.desk, BLUE_BOX),
        (&case.blue_box, DESK),
    ] {
        assert!(Pinger::new(from, to).ping(1500), "1500 bytes to {to}");
    }
    let frames = wire.stop().frames("", &["vlan.id", "frame.len"]);
    let mut seen: Vec<(&str, &str)> = frames.iter().map(|f| (&*f[0], &*f[1])).collect();
    seen.sort_unstable();
    let (blue, red) = (("10", "1518"), ("20", "1518"));
    assert_eq!(seen, [blue, blue, blue, blue, red, red], "requests and answers");
}

/// Checks datagrams in both directions, 20 under way at a time; all arrive.
fn carries_udp(case: &Case) {
    for (near, far, here, there) in [
        (&case.desk, &case.blue_box, DESK, BLUE_BOX),
        (&case.rack, &case.blue_box, RACK_BLUE, BLUE_BOX),
        (&case.rack, &case.red_box, RACK_RED, RED_BOX),
    ] {
        let (near, far) = (near.udp(here, 7000), far.udp(there, 7000));
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        }
        let exchange = |from: &UdpSocket, to: &UdpSocket, address: Ipv4Addr| {
            let mut room = [0; 2000];
            for round in 0..50_u32 {
                for nth in 0..20_u32 {
                    let mut bytes = vec![7; 1400];
                    bytes[..4].copy_from_slice(&(round * 20 + nth).to_be_bytes());
                    from.send_to(&bytes, (address, 7000)).unwrap();
                }
                for nth in 0..20_u32 {
                    let size = to.recv(&mut room).unwrap();
                    let number = u32::from_be_bytes(room[..4].try_into().unwrap());
                    assert_eq!((size, number), (1400, round * 20 + nth), "all, and in order");
                }
            }
        };
        exchange(&near, &far, there);
        exchange(&far, &near, here);
    }
}

/// Makes a frame with UDP in it, with `tags` between the addresses and the IP header.
fn datagram(dst: Mac, src: Mac, tags: &[u8]) -> Vec<u8> {
    let udp = raw::udp(9, 9, &[0; 18]);
    let packet = raw::ipv4(RACK_RED, RED_BOX, 0, 17, &udp);
    let mut frame = raw::ethernet(dst, src, 0x0800, &packet);
    frame.splice(12..12, tags.iter().copied());
    frame
}

/// Checks that the tag's priority becomes the frame's, and the frame's priority the tag's.
fn carries_priorities(case: &Case) {
    let before = (case.received("rack-red", 3), case.received("desk", 6));
    let mut rack = raw::Sender::new(&case.rack, "wire");
    let tag = [0x81, 0, 3 << 5, 20];
    (0..5).for_each(|_| assert!(rack.send(&datagram(RED_BOX_MAC, RACK_RED_MAC, &tag))));
    let mut desk = raw::Sender::new(&case.desk, "eth0");
    let tag = [0x81, 0, 6 << 5, 0];
    (0..4).for_each(|_| assert!(desk.send(&datagram(BLUE_BOX_MAC, DESK_MAC, &tag))));
    wait_for("their priorities", || {
        (case.received("rack-red", 3), case.received("desk", 6)) == (before.0 + 5, before.1 + 4)
    });
    let seen = |case: &Case| case.rack_side.seen().get(&Some(5 << 13 | 20)).copied();
    assert_eq!(seen(case), None);
    let socket = case.red_box.udp(RED_BOX, 7001);
    rustix::net::sockopt::set_ip_tos(&socket, CS5).unwrap();
    socket.send_to(&[0; 100], (RACK_RED, 7001)).unwrap();
    wait_for("a tag with priority 5", || seen(case) == Some(1));
}

/// Checks that frames of no VLAN of a device are dropped at their ingress port, under their reason.
fn drops_what_is_nobodys(case: &Case) {
    let mut rack = raw::Sender::new(&case.rack, "wire");
    let mut desk = raw::Sender::new(&case.desk, "eth0");
    let to_blue = |tags: &[u8]| datagram(BLUE_BOX_MAC, RACK_BLUE_MAC, tags);
    (0..3).for_each(|_| assert!(rack.send(&to_blue(&[0x81, 0, 0, 30]))));
    (0..2).for_each(|_| assert!(rack.send(&to_blue(&[]))));
    (0..4).for_each(|_| assert!(desk.send(&to_blue(&[0x81, 0, 0, 10]))));
    // Behind a tag of its port the tenant's own tag is kept; the other host has no trunk for it.
    let own = [0x81, 0, 0, 20, 0x81, 0, 0, 7];
    (0..6).for_each(|_| assert!(rack.send(&datagram(RED_BOX_MAC, RACK_RED_MAC, &own))));
    let expected = [
        (0, "rack-blue", "vlan_not_allowed", 3),
        (0, "rack-blue", "untagged", 2),
        (0, "desk", "vlan_not_allowed", 4),
        (1, "underlay", "vlan_not_allowed", 6),
    ];
    for (host, port, reason, count) in expected {
        let key = (port.to_owned(), reason.to_owned());
        wait_for("its drops", || case.hosts[host].drops().get(&key) == Some(&count));
    }
}

#[test]
#[ignore = "live: needs root"]
fn plain_machines_reach_containers() {
    if skip("plain_machines_reach_containers", &TOOLS) {
        return;
    }
    let case = Case::new("vlan");
    resolves_and_pings(&case);
    carries_frames_of_full_size(&case);
    carries_udp(&case);
    for host in &case.hosts {
        let drops = host.drops();
        // The underlay's ARP and the like are for the kernel.
        let other = drops.iter().find(|((_, reason), _)| reason != "not_for_us");
        assert_eq!(other, None, "{drops:?}");
    }
    carries_priorities(&case);
    drops_what_is_nobodys(&case);
    let seen = case.rack_side.seen();
    say(&format!("live::vlan: frames to the rack by TCI: {seen:?}"));
    assert_eq!(seen.get(&None), None, "nothing leaves a trunk without a tag");
    for host in &case.hosts {
        host.drained();
        host.assert_lossless();
    }
}
