//! keepalived: an address that two machines share.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::super::client::Client;
use super::super::seen::Seen;
use super::super::station::{Station, until, wait};
use super::super::world::Host::{H1, H2};
use super::super::world::World;
use super::super::{Case, When, case};

pub(super) const CASES: &[Case] = &[
    case("vrrp/one-master", one_master).with(KEEPALIVED),
    case("vrrp/stopped", |world| fail_over(world, &PLAIN, Fault::Stop)).with(KEEPALIVED),
    case("vrrp/link-down", |world| fail_over(world, &PLAIN, Fault::Down)).with(KEEPALIVED),
    case("vrrp/bound-ports-stopped", |w| fail_over(w, &BOUND, Fault::Stop)).with(KEEPALIVED),
    case("vrrp/bound-ports-link-down", |w| fail_over(w, &BOUND, Fault::Down)).with(KEEPALIVED),
    case("vrrp/virtual-mac-stopped", |w| fail_over(w, &VMAC, Fault::Stop)).with(KEEPALIVED),
    case("vrrp/virtual-mac-link-down", |w| fail_over(w, &VMAC, Fault::Down)).with(KEEPALIVED),
    case("vrrp/thirty-addresses", thirty).with(KEEPALIVED).when(When::Alone),
    case("vrrp/virtual-mac-restarted-four-times", four_times).with(KEEPALIVED).when(When::Soak),
];

const KEEPALIVED: &[&str] = &["keepalived"];
const LIMIT: Duration = Duration::from_secs(5);
/// For the long case: a start takes a while.
const LONG: Duration = Duration::from_secs(15);
const VIP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);

/// Setup of the pair.
struct Setup {
    /// Additional configuration lines.
    more: &'static str,
    addresses: u8,
    /// True if the ports are bound, and may share the address.
    bound: bool,
}

const PLAIN: Setup = Setup { more: "", addresses: 1, bound: false };
const BOUND: Setup = Setup { bound: true, ..PLAIN };
const VMAC: Setup = Setup { more: "use_vmac vrrp5\n vmac_xmit_base\n", ..PLAIN };
const MANY: Setup = Setup { addresses: 30, ..PLAIN };

fn keepalived(world: &World<'_>, station: &Station, priority: u8, setup: &Setup) -> Client {
    let mut addresses = String::new();
    for at in 0..setup.addresses {
        writeln!(addresses, "  10.0.0.{}/24", VIP.octets()[3] + at).unwrap();
    }
    let text = format!(
        "global_defs {{\n vrrp_version 3\n}}\n\
         vrrp_instance five {{\n state BACKUP\n interface eth0\n virtual_router_id 5\n \
         priority {priority}\n advert_int 0.3\n {}virtual_ipaddress {{\n{addresses} }}\n}}\n",
        setup.more
    );
    let file = |what: &str| world.file(&format!("keepalived-{}.{what}", station.number));
    let config = world.write(&format!("keepalived-{}.conf", station.number), &text);
    let line = format!(
        "keepalived --dont-fork --log-console --vrrp --use-file {} --pid {} --vrrp_pid {}",
        config.display(),
        file("pid").display(),
        file("vrrp.pid").display()
    );
    Client::start(world, station, &line)
}

fn has_vip(station: &Station) -> bool {
    station.does("-4 addr show").contains(&format!("inet {VIP}/"))
}

/// Starts a master on the first host and a backup on the second, and waits until they have agreed.
fn agreed(world: &World<'_>, setup: &Setup) -> ([Station; 2], [Client; 2]) {
    let [a, b] = match setup.bound {
        true => [H1, H2].map(|host| world.sharing(host, VIP)),
        false => world.stations([H1, H2]),
    };
    let master = keepalived(world, &a, 150, setup);
    until(LIMIT, || has_vip(&a));
    let backup = keepalived(world, &b, 100, setup);
    wait(1_200);
    ([a, b], [master, backup])
}

fn one_master(world: &World<'_>) -> Seen {
    let ([a, b], _clients) = agreed(world, &PLAIN);
    wait(1_500);
    let [user] = world.stations([H2]);
    Seen::new()
        .word("first is master", has_vip(&a))
        .word("second is master", has_vip(&b))
        .word("reachable", user.reaches(VIP))
}

/// End of the master.
#[derive(Clone, Copy)]
enum Fault {
    Stop,
    Down,
}

fn fail_over(world: &World<'_>, setup: &Setup, fault: Fault) -> Seen {
    let ([a, b], mut clients) = agreed(world, setup);
    let [user, asker] = world.stations([H2, H1]);
    let before = user.reaches(VIP);
    match fault {
        Fault::Stop => clients[0].stop(),
        Fault::Down => a.does("link set eth0 down").clear(),
    }
    let used = user.heals(VIP, LIMIT);
    let taken = until(LIMIT, || has_vip(&b)).is_some();
    let anew = asker.heals(VIP, LIMIT);
    user.forgets();
    let again = user.heals(VIP, LIMIT);
    Seen::new()
        .word("reachable before", before)
        .word("second is master", taken)
        .healed("in use", used)
        .healed("asked anew", anew)
        .healed("asked again", again)
}

/// Clients that have used all of thirty addresses follow when these move to the other machine.
fn thirty(world: &World<'_>) -> Seen {
    let ([_a, b], mut clients) = agreed(world, &MANY);
    let [user] = world.stations([H2]);
    let all: Vec<_> = (0..30).map(|at| Ipv4Addr::new(10, 0, 0, VIP.octets()[3] + at)).collect();
    let before = all.iter().filter(|ip| user.pings(**ip, 2) > 0).count();
    clients[0].stop();
    until(LIMIT, || has_vip(&b));
    wait(2_500);
    let renewed = all.iter().filter(|ip| user.neighbour(**ip) == Some(b.mac)).count();
    let after = all.iter().filter(|ip| user.pings(**ip, 1) > 0).count();
    Seen::new()
        .count("reachable before", before)
        .count("entries renewed", renewed)
        .count("reachable after", after)
}

/// The virtual MAC moves eight times.
fn four_times(world: &World<'_>) -> Seen {
    let ([a, b], mut clients) = agreed(world, &VMAC);
    let [user] = world.stations([H2]);
    let before = user.reaches(VIP);
    let mut lost = 0;
    for _ in 0..4 {
        clients[0].stop();
        until(LONG, || has_vip(&b));
        lost += usize::from(user.heals(VIP, LONG).is_none());
        clients[0] = keepalived(world, &a, 150, &VMAC);
        until(LONG, || has_vip(&a));
        lost += usize::from(user.heals(VIP, LONG).is_none());
    }
    Seen::new().word("reachable before", before).count("moves lost of 8", lost)
}
