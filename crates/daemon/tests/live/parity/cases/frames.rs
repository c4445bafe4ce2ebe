//! Frames that stacks send never, or seldom: they arrive, or do not, as on a bridge.

use std::net::Ipv4Addr;

use sluice_base::Mac;

use super::super::frames::EXPERIMENT;
use super::super::listen::source;
use super::super::seen::Seen;
use super::super::station::{Station, wait};
use super::super::world::Host::{H1, H2};
use super::super::world::World;
use super::super::{Case, case};
use crate::rig::raw::{ethernet, ipv4, set_checksum, udp, vxlan};

pub(super) const CASES: &[Case] = &[
    case("frames/odd-types-unicast", |world| odd_types(world, false)),
    case("frames/odd-types-broadcast", |world| odd_types(world, true)),
    case("frames/lengths-of-802.3", lengths),
    case("frames/reserved-groups", reserved_groups),
    case("frames/tags", tags),
    case("frames/small", small),
    case("frames/odd-packets", odd_packets),
    case("frames/odd-sources", odd_sources),
    case("frames/to-oneself", to_oneself),
    case("frames/unknown-destination", unknown),
    case("frames/receiver-that-never-speaks", |world| never_speaks(world, false)),
    case("frames/bound-receiver-that-never-speaks", |world| never_speaks(world, true)),
    case("frames/cluster-with-a-mac-of-its-own", |world| cluster(world, "02:bf:0a:00:00:32")),
    case("frames/cluster-with-a-group-mac", |world| cluster(world, "03:bf:0a:00:00:32")),
    case("frames/order-and-number", order),
    case("frames/tunnel-in-a-tunnel", tunnelled),
    case("frames/nobody-else-hears-unicast", unicast_is_private),
];

/// Returns the mark for the payload of frame number `at`.
fn mark(at: usize) -> [u8; 8] {
    let mut mark = *b"parity\0\0";
    mark[6..].copy_from_slice(&u16::try_from(at).unwrap().to_be_bytes());
    mark
}

/// Returns a payload of 46 bytes, the smallest of Ethernet, with a mark at its end.
fn payload(at: usize, begin: &[u8]) -> Vec<u8> {
    let mut bytes = begin.to_vec();
    bytes.resize(bytes.len().max(38), 0);
    bytes.extend(mark(at));
    bytes
}

/// Sends frames from `a` and returns the names of those that arrive at `b`.
fn arrive(a: &Station, b: &Station, frames: &[(String, Vec<u8>)]) -> String {
    let listener = b.listens();
    let mut sender = a.sender();
    for (_, frame) in frames {
        sender.send(frame);
        wait(5);
    }
    let heard = listener.heard();
    let came = |at: usize| {
        let mark = mark(at);
        heard.iter().any(|frame| frame.windows(8).any(|bytes| bytes == mark))
    };
    let names: Vec<_> =
        (0..frames.len()).filter(|at| came(*at)).map(|at| frames[at].0.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

/// Returns two stations that know each other.
fn pair(world: &World<'_>) -> [Station; 2] {
    let [a, b] = world.stations([H1, H2]);
    a.reaches(b.ip);
    [a, b]
}

/// Novell, X.25, AppleTalk, MPLS, PPPoE, 802.1X, RoCE, ATA, EtherCAT, PROFINET, Wake-on-LAN,
/// MACsec, FCoE, TRILL, HSR, BATMAN, loopback, IEEE's experiments, and two unassigned numbers.
fn odd_types(world: &World<'_>, broadcast: bool) -> Seen {
    let [a, b] = pair(world);
    let types: [u16; 22] = [
        0x8137, 0x0805, 0x809b, 0x8847, 0x8848, 0x8863, 0x8864, 0x888e, 0x8915, 0x88a2, 0x88a4,
        0x8892, 0x0842, 0x88e5, 0x8906, 0x22f3, 0x892f, 0x4305, 0x9000, 0x88b5, 0x0600, 0xffff,
    ];
    let to = if broadcast { Mac::BROADCAST } else { b.mac };
    let frame = |(at, kind): (usize, &u16)| {
        (format!("{kind:04x}"), ethernet(to, a.mac, *kind, &payload(at, &[])))
    };
    let frames: Vec<_> = types.iter().enumerate().map(frame).collect();
    Seen::new().word("arrive", arrive(&a, &b, &frames))
}

/// IS-IS, NetBEUI, SNAP: a length in place of a type.
fn lengths(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let kinds: [(&str, &[u8], Mac); 4] = [
        ("isis", &[0xfe, 0xfe, 3, 0x83], Mac([0x09, 0, 0x2b, 0, 0, 5])),
        ("netbeui", &[0xf0, 0xf0, 3], Mac([3, 0, 0, 0, 0, 1])),
        ("cdp", &[0xaa, 0xaa, 3, 0, 0, 0xc, 0x20, 0], Mac([1, 0, 0xc, 0xcc, 0xcc, 0xcc])),
        ("snap", &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], b.mac),
    ];
    let frame = |(at, (name, begin, to)): (usize, &(&str, &[u8], Mac))| {
        ((*name).to_owned(), ethernet(*to, a.mac, 46, &payload(at, begin)))
    };
    let frames: Vec<_> = kinds.iter().enumerate().map(frame).collect();
    Seen::new().word("arrive", arrive(&a, &b, &frames))
}

/// IEEE 802.1Q table 8-1: STP, LACP, 802.1X, LLDP and the rest.
fn reserved_groups(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let frame = |at: u8| {
        let to = Mac([1, 0x80, 0xc2, 0, 0, at]);
        (format!("{at:02x}"), ethernet(to, a.mac, 0x88cc, &payload(at.into(), &[])))
    };
    let (link, bridged): (Vec<_>, Vec<_>) = (0..=0x10).map(frame).partition(|f| f.0 != "10");
    let beyond = {
        let to = Mac([1, 0x80, 0xc2, 0, 0, 0x21]);
        vec![bridged[0].clone(), ("21".to_owned(), ethernet(to, a.mac, 0x88f5, &payload(1, &[])))]
    };
    // Each list is numbered from 0.
    let beyond: Vec<_> = beyond
        .into_iter()
        .enumerate()
        .map(|(at, (name, frame))| (name, [&frame[..14], &payload(at, &[])].concat()))
        .collect();
    Seen::new()
        .word("of a link", arrive(&a, &b, &link))
        .word("of a bridged network", arrive(&a, &b, &beyond))
}

fn tags(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let kinds: [(&str, u16, &[u8]); 5] = [
        ("vlan", 0x8100, &[0, 5, 0x88, 0xb5]),
        ("priority", 0x8100, &[0xa0, 0, 0x88, 0xb5]),
        ("vlan4095", 0x8100, &[0x0f, 0xff, 0x88, 0xb5]),
        ("qinq", 0x88a8, &[0, 7, 0x81, 0, 0, 5, 0x88, 0xb5]),
        ("double", 0x8100, &[0, 7, 0x81, 0, 0, 5, 0x88, 0xb5]),
    ];
    let make = |to: Mac| {
        let frame = |(at, (name, kind, begin)): (usize, &(&str, u16, &[u8]))| {
            ((*name).to_owned(), ethernet(to, a.mac, *kind, &payload(at, begin)))
        };
        kinds.iter().enumerate().map(frame).collect::<Vec<_>>()
    };
    Seen::new()
        .word("unicast", arrive(&a, &b, &make(b.mac)))
        .word("broadcast", arrive(&a, &b, &make(Mac::BROADCAST)))
}

/// Frames below Ethernet's minimum, which devices without a wire pass.
fn small(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let frame = |at: usize| {
        let mut bytes = vec![0; [0, 1, 6, 24, 38][at]];
        bytes.extend(mark(at));
        (bytes.len().to_string(), ethernet(b.mac, a.mac, EXPERIMENT, &bytes))
    };
    let frames: Vec<_> = (0..5).map(frame).collect();
    Seen::new().word("arrive", arrive(&a, &b, &frames))
}

/// IPv4 that a router or a host would not accept: a bridge does not check.
fn odd_packets(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let packet = |at: usize, change: fn(&mut Vec<u8>)| {
        let mut packet = ipv4(a.ip, b.ip, 0, 17, &udp(7, 9, &payload(at, &[])));
        change(&mut packet);
        if packet[0] == 0x45 && at != BAD_SUM {
            set_checksum(&mut packet);
        }
        ethernet(b.mac, a.mac, 0x0800, &packet)
    };
    type Change = fn(&mut Vec<u8>);
    const BAD_SUM: usize = 2;
    let changes: [(&str, Change); 9] = [
        ("plain", |_| {}),
        ("ttl0", |packet| packet[8] = 0),
        ("checksum", |packet| packet[10] ^= 0x55),
        ("version", |packet| packet[0] = 0x75),
        ("longer", |packet| packet[2] = 0x20),
        ("fragment", |packet| packet[6] = 0x20),
        ("evil", |packet| packet[6] = 0x80),
        ("protocol", |packet| packet[9] = 0xfd),
        ("header", |packet| packet[0] = 0x42),
    ];
    let frames: Vec<_> = changes
        .iter()
        .enumerate()
        .map(|(at, (name, change))| ((*name).to_owned(), packet(at, *change)))
        .collect();
    let martians: Vec<_> = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST]
        .iter()
        .enumerate()
        .map(|(at, src)| {
            let packet = ipv4(*src, b.ip, 0, 17, &udp(7, 9, &payload(at, &[])));
            (src.to_string(), ethernet(b.mac, a.mac, 0x0800, &packet))
        })
        .collect();
    Seen::new().word("arrive", arrive(&a, &b, &frames)).word("sources", arrive(&a, &b, &martians))
}

fn odd_sources(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let sources = [
        ("group", Mac([3, 0, 0, 0, 0, 1])),
        ("zero", Mac([0; 6])),
        ("broadcast", Mac::BROADCAST),
        ("new", Mac([2, 0x50, 0, 0, 7, 7])),
    ];
    let frame = |(at, (name, from)): (usize, &(&str, Mac))| {
        ((*name).to_owned(), ethernet(b.mac, *from, EXPERIMENT, &payload(at, &[])))
    };
    let frames: Vec<_> = sources.iter().enumerate().map(frame).collect();
    Seen::new().word("arrive", arrive(&a, &b, &frames)).word("still reachable", a.reaches(b.ip))
}

/// A bridge sends no frame back to its ingress port.
fn to_oneself(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    // From `a`, with the source of `b`, which moves `b` for a moment.
    let listener = a.listens();
    a.sends(&ethernet(a.mac, b.mac, EXPERIMENT, &payload(0, &[])));
    // The socket hears the frame once when it is sent.
    let back = listener.heard_with(&mark(0)).saturating_sub(1);
    let healed = b.reaches(a.ip) && a.reaches(b.ip);
    Seen::new().count("come back", back).word("still reachable", healed)
}

/// An unknown MAC: a bridge floods the frame.
fn unknown(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let to = Mac([2, 0x50, 0, 0, 6, 6]);
    let ip = ipv4(a.ip, Ipv4Addr::new(10, 0, 0, 66), 0, 17, &udp(7, 9, &payload(1, &[])));
    let frames = [
        ("experiment".to_owned(), ethernet(to, a.mac, EXPERIMENT, &payload(0, &[]))),
        ("udp".to_owned(), ethernet(to, a.mac, 0x0800, &ip)),
    ];
    Seen::new().word("others hear", arrive(&a, &b, &frames))
}

/// A sink without ARP, whose MAC the sender knows: Windows NLB, a capture device, a bare receiver.
fn never_speaks(world: &World<'_>, bound: bool) -> Seen {
    let [a] = world.stations([H1]);
    let b = match bound {
        true => world.bound(H2),
        false => {
            let [b] = world.stations([H2]);
            b
        }
    };
    b.does("link set eth0 arp off");
    a.does(&format!("neigh replace {} lladdr {} dev eth0 nud permanent", b.ip, b.mac));
    let sink = b.netns.udp(b.ip, 9);
    sink.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let socket = a.netns.udp(a.ip, 0);
    for at in 0..20 {
        socket.send_to(&mark(at), (b.ip, 9)).unwrap();
        wait(20);
    }
    let mut bytes = [0; 64];
    let arrived = std::iter::from_fn(|| sink.recv(&mut bytes).ok()).count();
    Seen::new().at_least("arrived of 20", arrived, 0)
}

/// Windows NLB: a unicast address behind a MAC that never sends, for the whole cluster. The MAC is
/// a group address in multicast mode.
fn cluster(world: &World<'_>, mac: &str) -> Seen {
    let [a, b, c] = world.stations([H1, H2, H1]);
    let ip = Ipv4Addr::new(10, 0, 0, 50);
    a.does(&format!("neigh replace {ip} lladdr {mac} dev eth0 nud permanent"));
    let (far, near) = (b.listens(), c.listens());
    let socket = a.netns.udp(a.ip, 0);
    for at in 0..10 {
        socket.send_to(&mark(at), (ip, 9)).unwrap();
        wait(20);
    }
    Seen::new()
        .count("across hosts", far.heard_with(b"parity"))
        .count("on one host", near.heard_with(b"parity"))
}

fn order(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let listener = b.listens();
    let mut sender = a.sender();
    for at in 0..500 {
        sender.send(&ethernet(b.mac, a.mac, EXPERIMENT, &payload(at, &[])));
    }
    let heard = listener.heard();
    let numbers: Vec<_> = heard
        .iter()
        .filter(|frame| source(frame) == a.mac && frame[12..14] == EXPERIMENT.to_be_bytes())
        .map(|frame| u16::from_be_bytes([frame[58], frame[59]]))
        .collect();
    Seen::new()
        .count("arrived of 500", numbers.len())
        .word("in order", numbers.windows(2).all(|pair| pair[0] < pair[1]))
}

/// A tenant's own VXLAN is a datagram like any other.
fn tunnelled(world: &World<'_>) -> Seen {
    let [a, b] = pair(world);
    let datagram = |at: usize, port: u16| {
        let inner = ethernet(b.mac, a.mac, EXPERIMENT, &payload(at, &[]));
        let outer = udp(4789, port, &vxlan(8, 100, &inner));
        ethernet(b.mac, a.mac, 0x0800, &ipv4(a.ip, b.ip, 0, 17, &outer))
    };
    let frames = [
        ("vxlan".to_owned(), datagram(0, 4789)),
        ("linux".to_owned(), datagram(1, 8472)),
        ("swim".to_owned(), datagram(2, 7474)),
    ];
    Seen::new().word("arrive", arrive(&a, &b, &frames))
}

fn unicast_is_private(world: &World<'_>) -> Seen {
    let [a, b, c, d] = world.stations([H1, H2, H1, H2]);
    assert!(a.reaches(b.ip) && b.reaches(a.ip));
    let (near, far) = (c.listens(), d.listens());
    for at in 0..10 {
        a.sends(&ethernet(b.mac, a.mac, EXPERIMENT, &payload(at, &[])));
    }
    Seen::new()
        .count("on its host", near.heard_with(b"parity"))
        .count("on the other", far.heard_with(b"parity"))
}
