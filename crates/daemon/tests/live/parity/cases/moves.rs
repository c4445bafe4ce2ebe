//! Machines that move, once and often.

use std::time::Duration;

use super::super::seen::Seen;
use super::super::station::{Station, wait};
use super::super::world::Host::{self, H1, H2};
use super::super::world::World;
use super::super::{Case, When, case};
use crate::rig::ping::Pinger;

pub(super) const CASES: &[Case] = &[
    case("moves/to-the-other-host", |world| once(world, H2)),
    case("moves/on-one-host", |world| once(world, H1)),
    case("moves/in-silence", in_silence),
    case("moves/away-and-back", |world| often(world, 2)),
    case("moves/eight-times", |world| often(world, 8)),
    case("moves/two-cards-that-take-turns", |world| cards(world, 8)),
    case("moves/after-link-down", after_link_down),
    case("moves/bond-every-seven-seconds", cards_slowly).when(When::Soak),
];

const LIMIT: Duration = Duration::from_secs(5);

/// Moves the machine from `from` to `to`.
fn arrives(machine: &Station, from: &Station, to: &Station) {
    from.does("addr flush dev eth0");
    from.does("link set eth0 down");
    to.does("link set eth0 up");
    to.does(&format!("addr replace {}/24 dev eth0", machine.ip));
}

fn once(world: &World<'_>, host: Host) -> Seen {
    let [user, old] = world.stations([H2, H1]);
    let new = world.twin(host, &old);
    new.does("link set eth0 down");
    let before = user.reaches(old.ip);
    arrives(&old, &old, &new);
    new.announces(old.ip);
    let after = user.heals(old.ip, LIMIT);
    let lost = 20 - user.pings(old.ip, 20);
    Seen::new().word("reachable before", before).healed("healed", after).count("lost of 20", lost)
}

/// The machine does not announce itself; it only sends one datagram to another station.
fn in_silence(world: &World<'_>) -> Seen {
    let [user, old, other] = world.stations([H2, H1, H1]);
    let new = world.twin(H2, &old);
    new.does("link set eth0 down");
    let before = user.reaches(old.ip);
    arrives(&old, &old, &new);
    let spoke = new.heals(other.ip, LIMIT);
    let after = user.heals(old.ip, LIMIT);
    Seen::new().word("reachable before", before).healed("spoke", spoke).healed("healed", after)
}

fn often(world: &World<'_>, times: usize) -> Seen {
    let [user, first] = world.stations([H2, H1]);
    let second = world.twin(H2, &first);
    second.does("link set eth0 down");
    let before = user.reaches(first.ip);
    for turn in 0..times {
        let (from, to) = if turn % 2 == 0 { (&first, &second) } else { (&second, &first) };
        arrives(&first, from, to);
        to.announces(first.ip);
        wait(300);
    }
    let after = user.heals(first.ip, LIMIT);
    Seen::new().word("reachable before", before).healed("healed", after)
}

/// A bond's fail-over: the same MAC speaks through another device, and no link goes down.
fn turns(world: &World<'_>, times: usize, pause_ms: u64) -> Seen {
    let [user, first] = world.stations([H2, H1]);
    let second = world.twin(H2, &first);
    let before = user.reaches(first.ip);
    let mut pinger = Pinger::with_patience(&user.netns, first.ip, Duration::from_millis(300));
    let mut lost = 0;
    for turn in 0..times {
        let (from, to) = if turn % 2 == 0 { (&first, &second) } else { (&second, &first) };
        from.does("addr flush dev eth0");
        to.does(&format!("addr replace {}/24 dev eth0", first.ip));
        to.announces(first.ip);
        wait(pause_ms);
        lost += usize::from(!(0..3).any(|_| pinger.ping(84)));
    }
    let after = user.heals(first.ip, LIMIT);
    Seen::new().word("reachable before", before).count("turns lost", lost).healed("healed", after)
}

fn cards(world: &World<'_>, times: usize) -> Seen {
    turns(world, times, 200)
}

fn cards_slowly(world: &World<'_>) -> Seen {
    turns(world, 10, 7_000)
}

/// A device goes down and comes up, with the same addresses.
fn after_link_down(world: &World<'_>) -> Seen {
    let [user, machine] = world.stations([H2, H1]);
    let before = user.reaches(machine.ip);
    machine.does("link set eth0 down");
    wait(1_000);
    let down = user.pings(machine.ip, 2);
    machine.does("link set eth0 up");
    let after = user.heals(machine.ip, LIMIT);
    Seen::new()
        .word("reachable before", before)
        .count("answered while down", down)
        .healed("healed", after)
}
