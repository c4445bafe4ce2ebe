//! Changes of addresses, machines and MACs, and the state that follows them.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::super::seen::Seen;
use super::super::station::{Station, names, wait};
use super::super::world::Host::{self, H1, H2};
use super::super::world::World;
use super::super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case("claims/address-moves-with-announcement", |w| moves(w, H2, true)).with(&["arping"]),
    case("claims/address-moves-in-silence", |w| moves(w, H2, false)).with(&["arping"]),
    case("claims/address-moves-on-one-host", |w| moves(w, H1, true)).with(&["arping"]),
    case("claims/address-moves-between-bound-ports", bound_moves).with(&["arping"]),
    case("claims/address-shared-by-bound-ports", shared_moves).with(&["arping"]),
    case("claims/address-deleted", deleted).with(&["arping"]),
    case("claims/link-down", |world| link_down(world, false)).with(&["arping"]),
    case("claims/link-down-at-bound-port", |world| link_down(world, true)).with(&["arping"]),
    case("claims/port-deleted", port_deleted).with(&["arping"]),
    case("claims/namespace-deleted", namespace_deleted).with(&["arping"]),
    case("claims/machine-changes-its-mac", mac_changes),
    case("claims/card-replaced-under-one-address", card_replaced),
    case("claims/unicast-reply-takes-nothing", unicast_reply).with(&["arping"]),
    case("claims/dead-while-others-send", dead_while_others_send).with(&["arping"]),
];

/// Longest wait for recovery.
const LIMIT: Duration = Duration::from_secs(4);
const VIP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);

/// An address moves from one machine to another; a third machine has used it, a fourth one resolves
/// it anew.
fn moves(world: &World<'_>, to: Host, announced: bool) -> Seen {
    let [a, b, user, asker] = world.stations([H1, to, H2, H1]);
    a.does(&format!("addr add {VIP}/24 dev eth0"));
    a.announces(VIP);
    user.reaches(VIP);
    a.does(&format!("addr del {VIP}/24 dev eth0"));
    b.does(&format!("addr add {VIP}/24 dev eth0"));
    if announced {
        b.announces(VIP);
    }
    wait(1_000);
    let who = names(&asker.asks(VIP, ""), &[&a, &b]);
    let anew = asker.heals(VIP, LIMIT);
    user.forgets();
    let again = user.heals(VIP, LIMIT);
    Seen::new().word("who answers", who).healed("asked anew", anew).healed("asked again", again)
}

/// The same with an IP without a binding, between ports that are bound to others.
fn bound_moves(world: &World<'_>) -> Seen {
    let (a, b) = (world.bound(H1), world.bound(H2));
    let [user] = world.stations([H2]);
    user.reaches(a.ip);
    let reached = user.reaches(b.ip);
    a.does(&format!("addr add {VIP}/24 dev eth0"));
    a.announces(VIP);
    let first = user.reaches(VIP);
    a.does(&format!("addr del {VIP}/24 dev eth0"));
    b.does(&format!("addr add {VIP}/24 dev eth0"));
    b.announces(VIP);
    wait(1_000);
    let who = names(&user.asks(VIP, ""), &[&a, &b]);
    Seen::new()
        .word("own address", reached)
        .word("at the first", first)
        .word("who answers at the second", who)
}

/// An address that both bound ports may share moves there and back, to a port of the other host and
/// to one of the same. Each port keeps its own address.
fn shared_moves(world: &World<'_>) -> Seen {
    let all = [H1, H2, H2].map(|host| world.sharing(host, VIP));
    let [user] = world.stations([H1]);
    let mut seen = Seen::new();
    let turns = ["first", "other host", "same host", "back"];
    let mut holder: Option<&Station> = None;
    for (turn, at) in turns.into_iter().zip([0, 1, 2, 0]) {
        if let Some(before) = holder.replace(&all[at]) {
            before.does(&format!("addr del {VIP}/24 dev eth0"));
        }
        all[at].does(&format!("addr add {VIP}/24 dev eth0"));
        all[at].announces(VIP);
        seen = seen.healed(&format!("{turn}: reached"), user.heals(VIP, LIMIT));
        let others: Vec<_> = all.iter().collect();
        seen = seen.word(&format!("{turn}: who answers"), names(&user.asks(VIP, ""), &others));
    }
    let own: Vec<_> = all.iter().map(|station| user.reaches(station.ip)).collect();
    seen.word("own addresses", own.iter().all(|reached| *reached))
}

fn deleted(world: &World<'_>) -> Seen {
    let [a, b, asker] = world.stations([H1, H2, H1]);
    b.does(&format!("addr add {VIP}/24 dev eth0"));
    b.announces(VIP);
    a.reaches(VIP);
    b.does(&format!("addr del {VIP}/24 dev eth0"));
    wait(1_000);
    let probe = names(&asker.asks(VIP, "-0"), &[&a, &b]);
    Seen::new().word("who answers a probe", probe)
}

/// Observes whether another machine answers for one that is gone.
fn gone(asker: &Station, machine: &Station) -> Seen {
    wait(1_500);
    let answers = asker.asks(machine.ip, "");
    Seen::new().word("answered for", answers.contains(&machine.mac))
}

fn link_down(world: &World<'_>, bound: bool) -> Seen {
    let [a, asker] = world.stations([H1, H1]);
    let b = if bound { world.bound(H2) } else { world.stations([H2])[0].clone() };
    let before = a.reaches(b.ip) && b.reaches(a.ip);
    b.does("link set eth0 down");
    gone(&asker, &b).word("reachable before", before)
}

fn port_deleted(world: &World<'_>) -> Seen {
    let [a, asker, b] = world.stations([H1, H1, H2]);
    let before = a.reaches(b.ip) && b.reaches(a.ip);
    world.unplug(&b);
    gone(&asker, &b).word("reachable before", before)
}

/// A namespace is deleted, as by a container engine that announces nothing.
fn namespace_deleted(world: &World<'_>) -> Seen {
    let [a, asker, b] = world.stations([H1, H1, H2]);
    let before = a.reaches(b.ip) && b.reaches(a.ip);
    crate::rig::run(&format!("ip netns del {}", b.netns.name()));
    gone(&asker, &b).word("reachable before", before)
}

fn mac_changes(world: &World<'_>) -> Seen {
    let [a, b, asker] = world.stations([H1, H2, H1]);
    let before = a.reaches(b.ip);
    b.does("link set eth0 address 02:50:00:00:00:99");
    let back = b.heals(a.ip, LIMIT);
    let anew = asker.heals(b.ip, LIMIT);
    a.forgets();
    let again = a.heals(b.ip, LIMIT);
    Seen::new()
        .word("reachable before", before)
        .healed("it reaches others", back)
        .healed("asked anew", anew)
        .healed("asked again", again)
}

/// A container ends, and another one comes with its address and a MAC of its own, and is silent.
fn card_replaced(world: &World<'_>) -> Seen {
    let [a, old] = world.stations([H1, H2]);
    let before = a.reaches(old.ip) && old.reaches(a.ip);
    world.unplug(&old);
    let [new, asker] = world.bare([H2, H1]);
    asker.has_address();
    new.does(&format!("addr add {}/24 dev eth0", old.ip));
    let anew = asker.heals(old.ip, LIMIT);
    // Its neighbour entry stays valid for half a minute, unless the new one is announced.
    a.forgets();
    let again = a.heals(old.ip, LIMIT);
    Seen::new()
        .word("reachable before", before)
        .healed("asked anew", anew)
        .healed("asked again", again)
}

/// A reply without a question, to a machine that does not use the address.
fn unicast_reply(world: &World<'_>) -> Seen {
    let [liar, owner, asker, other] = world.stations([H1, H2, H2, H1]);
    asker.reaches(owner.ip);
    let frame = super::super::frames::unicast_reply(other.mac, liar.mac, owner.ip);
    for _ in 0..3 {
        liar.sends(&frame);
    }
    wait(500);
    asker.forgets();
    let who = names(&asker.asks(owner.ip, ""), &[&liar, &owner]);
    Seen::new().word("who answers", who).word("reachable", asker.reaches(owner.ip))
}

/// A machine dies silently, while another one continues to send to it.
fn dead_while_others_send(world: &World<'_>) -> Seen {
    let [a, b, asker] = world.stations([H1, H2, H1]);
    let before = a.reaches(b.ip);
    a.does(&format!("neigh replace {} lladdr {} dev eth0 nud permanent", b.ip, b.mac));
    // The machine takes nothing and says nothing, with its link up.
    b.does("addr flush dev eth0");
    for _ in 0..4 {
        a.pings(b.ip, 1);
    }
    gone(&asker, &b).word("reachable before", before)
}
