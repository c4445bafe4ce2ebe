//! Neighbour discovery and other messages of routers (RFC 4861, RFC 4862).

use std::net::Ipv6Addr;
use std::time::Duration;

use sluice_base::Mac;

use super::super::client::Client;
use super::super::frames::{ALL_NODES, advertisement, icmp6, is_advertisement_to, solicitation};
use super::super::seen::Seen;
use super::super::station::{Station, until, wait};
use super::super::world::Host::{self, H1, H2};
use super::super::world::World;
use super::super::{Case, When, case};
use crate::rig::raw::ethernet;

pub(super) const CASES: &[Case] = &[
    case("nd/asked-across-hosts", asked).with(&["ndisc6"]),
    case("nd/nobody-has-it", nobody).with(&["ndisc6"]),
    case("nd/dad-of-a-used-address", |world| dad(world, true)),
    case("nd/dad-of-a-free-address", |world| dad(world, false)),
    case("nd/dad-of-a-deleted-address", dad_of_deleted),
    case("nd/address-moves-with-announcement", moves),
    case("nd/ping", ping),
    case("nd/link-local", link_local),
    case("nd/link-local-not-made-from-the-mac", |w| stable_privacy(w, false)),
    case("nd/link-local-not-made-from-the-mac-at-bound-port", |w| stable_privacy(w, true)),
    case("nd/slaac-across-hosts", |world| slaac(world, H2)).with(&["radvd"]),
    case("nd/slaac-on-one-host", |world| slaac(world, H1)).with(&["radvd"]),
    case("nd/router-solicited", solicited).with(&["radvd", "rdisc6"]),
    case("nd/router-solicitation-passes", |world| passes(world, 133)),
    case("nd/router-advertisement-passes", |world| passes(world, 134)),
    case("nd/redirect-passes", |world| passes(world, 137)),
    case("nd/unsolicited-advertisement-passes", unsolicited),
    case("nd/sixteen-ask-at-once", sixteen_ask),
    case("nd/three-hundred-advertisements", burst).when(When::Alone),
];

const LIMIT: Duration = Duration::from_secs(5);
const SHARED: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x200);

fn pair<const N: usize>(world: &World<'_>, hosts: [Host; N]) -> [Station; N] {
    let stations = world.bare(hosts);
    stations.iter().for_each(Station::has_address6);
    // The reports of groups have been sent.
    wait(300);
    stations
}

/// Returns the MAC that `ndisc6` gets.
fn told(station: &Station, ip: Ipv6Addr) -> String {
    let text = station.prints(&format!("ndisc6 -1 -q -r 3 -w 700 {ip} eth0"));
    text.trim().to_lowercase()
}

fn asked(world: &World<'_>) -> Seen {
    let [a, b] = pair(world, [H1, H2]);
    Seen::new().word("answer", told(&a, b.ip6)).word("answer back", told(&b, a.ip6))
}

fn nobody(world: &World<'_>) -> Seen {
    let [a, b] = pair(world, [H1, H2]);
    b.pings6(a.ip6, 1);
    Seen::new().word("answer", told(&a, SHARED))
}

/// Returns the result of duplicate address detection for an address that a machine takes.
fn probed(station: &Station, ip: Ipv6Addr) -> &'static str {
    station.does(&format!("-6 addr add {ip}/64 dev eth0"));
    let show = || station.does(&format!("-6 addr show dev eth0 to {ip}"));
    let ended = until(Duration::from_secs(5), || {
        let text = show();
        !text.contains("tentative") || text.contains("dadfailed")
    });
    match (ended, show().contains("dadfailed")) {
        (None, _) => "nothing",
        (_, true) => "duplicate",
        (_, false) => "unique",
    }
}

fn dad(world: &World<'_>, used: bool) -> Seen {
    let [a, b] = pair(world, [H1, H2]);
    if used {
        b.does(&format!("-6 addr add {SHARED}/64 dev eth0 nodad"));
        wait(300);
    }
    Seen::new().word("address is", probed(&a, SHARED))
}

fn dad_of_deleted(world: &World<'_>) -> Seen {
    let [a, b, user] = pair(world, [H1, H2, H1]);
    b.does(&format!("-6 addr add {SHARED}/64 dev eth0 nodad"));
    b.sends(&advertisement(b.mac, SHARED));
    let before = user.heals6(SHARED, LIMIT).is_some();
    b.does(&format!("-6 addr del {SHARED}/64 dev eth0"));
    wait(500);
    let found = probed(&a, SHARED);
    user.forgets();
    let after = user.heals6(SHARED, LIMIT);
    Seen::new()
        .word("reachable before", before)
        .word("address is", found)
        .healed("asked again", after)
}

fn moves(world: &World<'_>) -> Seen {
    let [a, b, user, asker] = pair(world, [H1, H2, H2, H1]);
    a.does(&format!("-6 addr add {SHARED}/64 dev eth0 nodad"));
    a.sends(&advertisement(a.mac, SHARED));
    let before = user.heals6(SHARED, LIMIT).is_some();
    a.does(&format!("-6 addr del {SHARED}/64 dev eth0"));
    b.does(&format!("-6 addr add {SHARED}/64 dev eth0 nodad"));
    b.sends(&advertisement(b.mac, SHARED));
    let used = user.heals6(SHARED, LIMIT);
    let anew = asker.heals6(SHARED, LIMIT);
    Seen::new().word("reachable before", before).healed("in use", used).healed("asked anew", anew)
}

fn ping(world: &World<'_>) -> Seen {
    let [a, b] = pair(world, [H1, H2]);
    let healed = a.heals6(b.ip6, LIMIT);
    Seen::new().healed("reached", healed).count("answered of 5", a.pings6(b.ip6, 5))
}

fn reaches_link_local(a: &Station, b: &Station) -> Seen {
    let address = b.link_local();
    let reached =
        address.is_some_and(|ip| until(LIMIT, || a.pings6(format!("{ip}%eth0"), 1) == 1).is_some());
    Seen::new().word("it has one", address.is_some()).word("reachable", reached)
}

fn link_local(world: &World<'_>) -> Seen {
    let [a, b] = world.bare([H1, H2]);
    a.speaks_v6();
    b.speaks_v6();
    reaches_link_local(&a, &b)
}

/// RFC 7217: addresses made from a secret of the machine.
fn stable_privacy(world: &World<'_>, bound: bool) -> Seen {
    let [a] = world.bare([H1]);
    let b = if bound { world.bound(H2) } else { world.bare([H2])[0].clone() };
    b.sysctl("net/ipv6/conf/eth0/stable_secret", "2001:db8::5ec7:e7");
    b.sysctl("net/ipv6/conf/eth0/addr_gen_mode", "2");
    a.speaks_v6();
    b.speaks_v6();
    reaches_link_local(&a, &b)
}

/// Starts a router with a prefix.
fn router(world: &World<'_>, station: &Station) -> Client {
    station.sysctl("net/ipv6/conf/all/forwarding", "1");
    let config = world.write(
        "radvd.conf",
        "interface eth0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4;\n\
         prefix fd00:7::/64 { AdvOnLink on; AdvAutonomous on; }; };\n",
    );
    let pid = world.file("radvd.pid");
    let line = format!("radvd -n -m stderr -C {} -p {}", config.display(), pid.display());
    Client::start(world, station, &line)
}

fn slaac(world: &World<'_>, host: Host) -> Seen {
    let [r, a] = world.bare([H1, host]);
    r.has_address6();
    r.link_local();
    let _radvd = router(world, &r);
    wait(500);
    a.speaks_v6();
    let has = |what: &str, part: &str| {
        until(LIMIT, || a.does(&format!("-6 {what} show dev eth0")).contains(part)).is_some()
    };
    let address = has("addr", "inet6 fd00:7:");
    Seen::new().word("has an address", address).word("has a router", has("route", "default"))
}

fn solicited(world: &World<'_>) -> Seen {
    let [r, a] = world.bare([H1, H2]);
    r.has_address6();
    a.speaks_v6();
    assert!(r.link_local().is_some() && a.link_local().is_some());
    let _radvd = router(world, &r);
    wait(500);
    let text = a.prints("rdisc6 -1 -r 3 -w 1500 eth0");
    Seen::new().word("told a prefix", text.contains("fd00:7::/64"))
}

/// A message that is not part of neighbour resolution, to all nodes.
fn passes(world: &World<'_>, kind: u8) -> Seen {
    let [a, b, c] = pair(world, [H1, H2, H1]);
    let (far, near) = (b.listens(), c.listens());
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x50, 0xff, 0xfe00, 1);
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.resize(if kind == 137 { 40 } else { 16 }, 0);
    message.extend([1, 1]);
    message.extend(a.mac.0);
    let packet = icmp6(source, ALL_NODES.0, 255, &message);
    let frame = ethernet(ALL_NODES.1, a.mac, 0x86dd, &packet);
    let mut sender = a.sender();
    for _ in 0..5 {
        sender.send(&frame);
        wait(100);
    }
    let part = &frame[54..];
    Seen::new().at_least("across hosts", far.heard_with(part), 0).at_least(
        "on one host",
        near.heard_with(part),
        0,
    )
}

fn unsolicited(world: &World<'_>) -> Seen {
    let [a, b, c] = pair(world, [H1, H2, H1]);
    let (far, near) = (b.listens(), c.listens());
    let frame = advertisement(a.mac, a.ip6);
    let mut sender = a.sender();
    for _ in 0..3 {
        sender.send(&frame);
        wait(300);
    }
    Seen::new().at_least("across hosts", far.heard_with(&frame[54..]), 0).at_least(
        "on one host",
        near.heard_with(&frame[54..]),
        0,
    )
}

/// Machines ask at almost the same time for one that has not spoken.
fn sixteen_ask(world: &World<'_>) -> Seen {
    let [a, b] = world.bare([H1, H2]);
    a.speaks_v6();
    b.has_address6();
    wait(300);
    let askers: Vec<_> = (0..16).map(|at| Mac([2, 0x50, 0, 1, 0, at])).collect();
    let listener = a.listens();
    let mut sender = a.sender();
    for (at, mac) in (0x100..).zip(&askers) {
        let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, at);
        sender.send(&solicitation(*mac, ip, b.ip6));
    }
    // The target has to resolve unknown askers itself: only the kernel's first answers count, which
    // go to the MAC of the question.
    wait(1_000);
    let heard = listener.heard();
    let answered = |mac: &&Mac| heard.iter().any(|frame| is_advertisement_to(frame, **mac));
    Seen::new().count("answered", askers.iter().filter(answered).count())
}

fn burst(world: &World<'_>) -> Seen {
    let [a, b] = pair(world, [H1, H2]);
    let listener = b.listens();
    let frame = advertisement(a.mac, a.ip6);
    let mut sender = a.sender();
    for _ in 0..300 {
        sender.send(&frame);
        wait(1);
    }
    Seen::new().at_least("arrived of 300", listener.heard_with(&frame[54..]), 3)
}
