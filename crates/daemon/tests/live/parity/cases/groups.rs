//! Broadcast and multicast.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use sluice_base::Mac;

use super::super::frames::EXPERIMENT;
use super::super::seen::Seen;
use super::super::station::{Station, wait};
use super::super::world::Host::{H1, H2};
use super::super::world::World;
use super::super::{Case, case};
use crate::rig::raw::ethernet;

pub(super) const CASES: &[Case] = &[
    case("groups/joined", |world| group(world, true)),
    case("groups/not-joined", |world| group(world, false)),
    case("groups/local-control", local_control),
    case("groups/limited-broadcast", |world| broadcast(world, Ipv4Addr::BROADCAST)),
    case("groups/directed-broadcast", |world| broadcast(world, Ipv4Addr::new(10, 0, 0, 255))),
    case("groups/ipv6", ipv6),
    case("groups/no-ip", no_ip),
    case("groups/each-one-copy", one_copy),
];

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn group(world: &World<'_>, joined: bool) -> Seen {
    let [a, b, c] = world.stations([H1, H2, H1]);
    let sockets: Vec<UdpSocket> =
        if joined { [&b, &c].map(|station| joins(station, GROUP)).into() } else { Vec::new() };
    let (far, near) = (b.listens(), c.listens());
    a.does("route add 224.0.0.0/4 dev eth0");
    sends(&a, GROUP);
    drop(sockets);
    Seen::new()
        .count("across hosts", far.heard_with(b"to all of you"))
        .count("on one host", near.heard_with(b"to all of you"))
}

fn joins(station: &Station, group: Ipv4Addr) -> UdpSocket {
    let socket = station.netns.udp(Ipv4Addr::UNSPECIFIED, 5_000);
    let ip = station.ip;
    station.netns.inside(|| socket.join_multicast_v4(&group, &ip).unwrap());
    wait(100);
    socket
}

/// Sends ten datagrams.
fn sends(station: &Station, to: Ipv4Addr) {
    let socket = station.netns.udp(station.ip, 0);
    socket.set_broadcast(true).unwrap();
    for _ in 0..10 {
        socket.send_to(b"to all of you", (to, 5_000)).unwrap();
        wait(20);
    }
}

/// RFC 4541 clause 2.1.2: 224.0.0.0/24 is never pruned.
fn local_control(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    a.does("route add 224.0.0.0/4 dev eth0");
    let listener = b.listens();
    for group in [5, 18, 251, 252] {
        sends(&a, Ipv4Addr::new(224, 0, 0, group));
    }
    Seen::new().count("arrived of 40", listener.heard_with(b"to all of you"))
}

fn broadcast(world: &World<'_>, to: Ipv4Addr) -> Seen {
    let [a, b, c] = world.stations([H1, H2, H1]);
    a.does("route add default dev eth0");
    let sockets = [&b, &c].map(|station| station.netns.udp(Ipv4Addr::UNSPECIFIED, 5_000));
    sends(&a, to);
    let came = sockets.map(|socket| {
        socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
        let mut bytes = [0; 64];
        std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count()
    });
    Seen::new().count("across hosts", came[0]).count("on one host", came[1])
}

fn ipv6(world: &World<'_>) -> Seen {
    let [a, b] = world.bare([H1, H2]);
    a.has_address6();
    b.has_address6();
    a.link_local();
    let other = b.link_local().map_or_else(String::new, |ip| format!("from {ip}%"));
    let text = a.prints("ping -6 -n -c 5 -i 0.2 -W 1 ff02::1%eth0");
    // It ends with its own answer to the last one.
    Seen::new().at_least("the other answers 5", text.matches(&other).count(), 1)
}

fn no_ip(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let listener = b.listens();
    let frame = ethernet(
        Mac([3, 0x50, 0, 0, 0, 9]),
        a.mac,
        EXPERIMENT,
        b"parity of groups, and some more of it..........",
    );
    for _ in 0..5 {
        a.sends(&frame);
    }
    Seen::new().count("arrived of 5", listener.heard_with(b"parity of groups"))
}

/// One copy of a broadcast at each of several stations of both hosts, and none at the sender.
fn one_copy(world: &World<'_>) -> Seen {
    let stations = world.stations([H1, H1, H1, H2, H2, H2]);
    let listeners: Vec<_> = stations.iter().map(Station::listens).collect();
    let payload = b"parity of copies, and some more of it..........";
    stations[0].sends(&ethernet(Mac::BROADCAST, stations[0].mac, EXPERIMENT, payload));
    let heard = listeners.into_iter().map(|listener| listener.heard_with(b"parity of copies"));
    let heard: Vec<_> = heard.map(|count| count.to_string()).collect();
    Seen::new().word("copies", heard.join(" "))
}
