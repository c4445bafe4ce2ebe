//! Large packets.

use super::super::seen::Seen;
use super::super::station::Station;
use super::super::world::Host::{self, H1, H2};
use super::super::world::{MTU, MTU_MAX, World};
use super::super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case("mtu/jumbo-across-hosts", |world| jumbo(world, H2)),
    case("mtu/jumbo-on-one-host", |world| jumbo(world, H1)),
    case("mtu/full-packet", |world| sizes(world, MTU, MTU)),
    case("mtu/one-byte-too-much", |world| sizes(world, MTU_MAX, MTU)),
    case("mtu/fragments", fragments),
    case("mtu/jumbo-fragments", jumbo_fragments),
    case("mtu/tcp-between-unequal-ones", unequal),
];

fn pings_of(a: &Station, b: &Station, packet: u16, more: &str) -> usize {
    let size = packet - 28;
    let text = a.prints(&format!("ping -n -c 5 -i 0.2 -W 1 {more} -s {size} {}", b.ip));
    text.matches("bytes from").count()
}

fn jumbo(world: &World<'_>, host: Host) -> Seen {
    let [a, b] = world.stations([H1, host]);
    for station in [&a, &b] {
        station.does(&format!("link set eth0 mtu {MTU_MAX}"));
    }
    a.reaches(b.ip);
    Seen::new()
        .count("answered of 5", pings_of(&a, &b, MTU_MAX, "-M do"))
        .count("of a byte less", pings_of(&a, &b, MTU_MAX - 1, "-M do"))
}

/// Packets as large as the sender may send, to a receiver with a smaller MTU.
fn sizes(world: &World<'_>, sender: u16, receiver: u16) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    a.does(&format!("link set eth0 mtu {sender}"));
    b.does(&format!("link set eth0 mtu {receiver}"));
    a.reaches(b.ip);
    Seen::new()
        .count("answered of 5", pings_of(&a, &b, receiver, "-M do"))
        .count("of a byte more", pings_of(&a, &b, receiver + 1, "-M do"))
}

fn fragments(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    a.reaches(b.ip);
    Seen::new().count("answered of 5", pings_of(&a, &b, 8_000, ""))
}

fn jumbo_fragments(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    for station in [&a, &b] {
        station.does(&format!("link set eth0 mtu {MTU_MAX}"));
    }
    a.reaches(b.ip);
    Seen::new().count("answered of 5", pings_of(&a, &b, 40_000, ""))
}

/// Both announce their MSS; the larger one follows.
fn unequal(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    a.does(&format!("link set eth0 mtu {MTU_MAX}"));
    a.reaches(b.ip);
    Seen::new()
        .count("bytes there", super::traffic::transfer(&a, &b))
        .count("bytes back", super::traffic::transfer(&b, &a))
}
