//! Questions are answered; announcements arrive.

use std::net::Ipv4Addr;

use sluice_base::Mac;

use super::super::frames::{
    announcement, announcement_for, broadcast_reply, is_arp_of, is_reply_to, request,
    unicast_request,
};
use super::super::seen::Seen;
use super::super::station::{Station, names, wait};
use super::super::world::Host::{H1, H2};
use super::super::world::World;
use super::super::{Case, When, case};

pub(super) const CASES: &[Case] = &[
    case("arp/asked-across-hosts", |world| answers(world, H2)).with(&["arping"]),
    case("arp/asked-on-one-host", |world| answers(world, H1)).with(&["arping"]),
    case("arp/nobody-has-it", nobody_has_it).with(&["arping"]),
    case("arp/probe-of-a-used-address", probe).with(&["arping"]),
    case("arp/silent-sink", silent_sink),
    case("arp/two-with-one-address", two_with_one_address).with(&["arping"]),
    case("arp/two-hundred-addresses", two_hundred_addresses).with(&["nmap"]),
    case("arp/six-addresses-of-one-mac", six_addresses).with(&["arping"]),
    case("arp/proxy", proxy),
    case("arp/sixteen-ask-at-once", sixteen_ask),
    case("arp/broadcast-reply", |world| {
        announced(world, |a| broadcast_reply(a.mac, a.ip), |a| a.mac)
    }),
    case("arp/padded-announcement", |world| announced(world, padded, |a| a.mac)),
    case("arp/announcement-for-another-mac", |world| {
        announced(world, |a| announcement_for(a.mac, OTHER, a.ip), |_| OTHER)
    }),
    case("arp/announcement", |world| announced(world, |a| announcement(a.mac, a.ip), |a| a.mac)),
    case("arp/unicast-request", unicast),
    case("arp/rarp", rarp),
    case("arp/announcements-of-many", many_announcements),
    case("arp/three-hundred-announcements", burst).when(When::Alone),
];

const OTHER: Mac = Mac([2, 0x50, 0, 0, 9, 9]);

fn answers(world: &World<'_>, host: super::super::world::Host) -> Seen {
    let [a, b] = world.stations([H1, host]);
    let who = names(&a.asks(b.ip, ""), &[&a, &b]);
    let back = names(&b.asks(a.ip, ""), &[&a, &b]);
    Seen::new().word("who answers", who).word("who answers back", back)
}

fn nobody_has_it(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    b.reaches(a.ip);
    Seen::new().word("who answers", names(&a.asks(Ipv4Addr::new(10, 0, 0, 77), ""), &[&a, &b]))
}

/// RFC 5227 clause 2.1.1: a probe from 0.0.0.0.
fn probe(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let unheard = names(&a.asks(b.ip, "-0"), &[&a, &b]);
    b.reaches(a.ip);
    let heard = names(&a.asks(b.ip, "-0"), &[&a, &b]);
    Seen::new().word("before it spoke", unheard).word("after it spoke", heard)
}

fn silent_sink(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    wait(500);
    Seen::new().word("reachable", a.reaches(b.ip)).count("answered of 10", a.pings(b.ip, 10))
}

fn two_with_one_address(world: &World<'_>) -> Seen {
    let [a, b, c] = world.stations([H1, H2, H2]);
    for station in [&b, &c] {
        station.does("addr add 10.0.0.50/24 dev eth0");
    }
    b.announces(Ipv4Addr::new(10, 0, 0, 50));
    Seen::new().word("who answers", names(&a.asks(Ipv4Addr::new(10, 0, 0, 50), ""), &[&a, &b, &c]))
}

fn two_hundred_addresses(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let batch: String = (30..230).map(|at| format!("addr add 10.0.0.{at}/24 dev eth0\n")).collect();
    let file = world.write("addresses", &batch);
    b.does(&format!("-batch {}", file.display()));
    let found = a.prints("nmap -sn -n -PR -T4 10.0.0.30-229");
    Seen::new().at_least("nmap finds", found.matches("Host is up").count(), 4)
}

fn six_addresses(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let ips: Vec<_> = (60..66).map(|at| Ipv4Addr::new(10, 0, 0, at)).collect();
    for ip in &ips {
        b.does(&format!("addr add {ip}/24 dev eth0"));
        b.announces(*ip);
    }
    let answered = ips.iter().filter(|ip| a.asks(**ip, "") == [b.mac]).count();
    let reached = ips.iter().filter(|ip| a.reaches(**ip)).count();
    Seen::new().count("answered", answered).count("reached", reached)
}

/// A router that answers for a network behind it.
fn proxy(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    b.sysctl("net/ipv4/conf/eth0/proxy_arp", "1");
    b.sysctl("net/ipv4/neigh/eth0/proxy_delay", "0");
    b.sysctl("net/ipv4/ip_forward", "1");
    b.does("addr add 10.0.7.1/32 dev lo");
    b.does("addr add 10.0.7.2/32 dev lo");
    a.does("route add 10.0.7.0/24 dev eth0");
    let reached = (1..3).filter(|at| a.reaches(Ipv4Addr::new(10, 0, 7, *at))).count();
    Seen::new().count("reached", reached)
}

/// Machines ask at almost the same time for one that has not spoken.
fn sixteen_ask(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let askers: Vec<_> = (0..16).map(|at| Mac([2, 0x50, 0, 1, 0, at])).collect();
    let listener = a.listens();
    let mut sender = a.sender();
    for (at, mac) in (100..).zip(&askers) {
        sender.send(&request(*mac, Ipv4Addr::new(10, 0, 0, at), b.ip));
    }
    wait(1_000);
    let heard = listener.heard();
    let answered = |mac: &&Mac| heard.iter().any(|frame| is_reply_to(frame, **mac));
    Seen::new().count("answered", askers.iter().filter(answered).count())
}

/// Announcements reach others unchanged, and update their neighbour entries.
fn announced(world: &World<'_>, make: fn(&Station) -> Vec<u8>, mac: fn(&Station) -> Mac) -> Seen {
    let [a, b, c] = world.stations([H1, H2, H1]);
    b.reaches(a.ip);
    c.reaches(a.ip);
    let (far, near) = (b.listens(), c.listens());
    let frame = make(&a);
    let mut sender = a.sender();
    for _ in 0..3 {
        sender.send(&frame);
        wait(300);
    }
    let of = |frames: Vec<Vec<u8>>| {
        frames.iter().filter(|frame| is_arp_of(frame, mac(&a), a.ip)).count()
    };
    let believes = |station: &Station| {
        station.neighbour(a.ip).map_or("nobody".to_owned(), |has| {
            if has == mac(&a) { "the sender".to_owned() } else { has.to_string() }
        })
    };
    let (far, near) = (of(far.heard()), of(near.heard()));
    Seen::new()
        .at_least("across hosts", far, 0)
        .at_least("on one host", near, 0)
        .word("believed", believes(&b))
}

/// Padded to the smallest frame of Ethernet, as by network cards, and far beyond.
fn padded(a: &Station) -> Vec<u8> {
    let mut frame = announcement(a.mac, a.ip);
    frame.resize(200, 0);
    frame
}

fn unicast(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    a.reaches(b.ip);
    let (asker, asked) = (a.listens(), b.listens());
    let frame = unicast_request(b.mac, a.mac, a.ip, b.ip);
    let mut sender = a.sender();
    for _ in 0..3 {
        sender.send(&frame);
        wait(300);
    }
    let answers = asker.heard().iter().filter(|frame| is_reply_to(frame, a.mac)).count();
    let arrived = asked.heard().iter().filter(|frame| is_arp_of(frame, a.mac, a.ip)).count();
    Seen::new().at_least("answers", answers, 0).at_least("arrived", arrived, 0)
}

/// As sent by QEMU when a machine has arrived.
fn rarp(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let listener = b.listens();
    let mut frame = announcement(a.mac, Ipv4Addr::UNSPECIFIED);
    frame[12..14].copy_from_slice(&0x8035_u16.to_be_bytes());
    frame[21] = 3;
    let mut sender = a.sender();
    for _ in 0..3 {
        sender.send(&frame);
        wait(100);
    }
    Seen::new().count("arrived", listener.heard_with(&[0x80, 0x35, 0, 1, 8, 0]))
}

/// Thirty addresses announced at once, as by keepalived.
fn many_announcements(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let ips: Vec<_> = (100..130).map(|at| Ipv4Addr::new(10, 0, 0, at)).collect();
    let listener = b.listens();
    let mut sender = a.sender();
    for ip in &ips {
        sender.send(&announcement(a.mac, *ip));
    }
    let heard = listener.heard();
    let arrived = |ip: &&Ipv4Addr| heard.iter().any(|frame| is_arp_of(frame, a.mac, **ip));
    Seen::new().count("addresses heard of 30", ips.iter().filter(arrived).count())
}

fn burst(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let listener = b.listens();
    let mut sender = a.sender();
    for _ in 0..300 {
        sender.send(&announcement(a.mac, a.ip));
        wait(1);
    }
    let heard = listener.heard();
    let arrived = heard.iter().filter(|frame| is_arp_of(frame, a.mac, a.ip)).count();
    Seen::new().at_least("arrived of 300", arrived, 3)
}
