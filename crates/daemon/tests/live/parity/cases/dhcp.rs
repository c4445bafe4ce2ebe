//! Addresses from a server: dnsmasq, and clients of three makers.

use std::time::Duration;

use super::super::client::Client;
use super::super::seen::Seen;
use super::super::station::{Station, until, wait};
use super::super::world::Host::{self, H1, H2};
use super::super::world::World;
use super::super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case("dhcp/udhcpc-across-hosts", |world| first(world, H2, "")).with(UDHCPC),
    case("dhcp/udhcpc-on-one-host", |world| first(world, H1, "")).with(UDHCPC),
    case("dhcp/udhcpc-with-probe", |world| first(world, H2, "-a")).with(UDHCPC),
    case("dhcp/udhcpc-broadcast-flag", |world| first(world, H2, "-B")).with(UDHCPC),
    case("dhcp/dhclient", dhclient).with(&["dnsmasq", "dhclient"]),
    case("dhcp/three-clients", three).with(UDHCPC),
    case("dhcp/renewed", renewed).with(UDHCPC),
    case("dhcp/address-released-and-given-to-another", |w| reused(w, Gone::Released)).with(UDHCPC),
    case("dhcp/card-down-and-address-given-to-another", |w| reused(w, Gone::Down)).with(UDHCPC),
    case("dhcp/namespace-gone-and-address-given-to-another", |w| reused(w, Gone::Deleted))
        .with(UDHCPC),
    case("dhcp/used-address-is-declined", declined).with(UDHCPC),
    case("dhcp/v6", v6).with(&["dnsmasq", "dhclient"]),
];

const UDHCPC: &[&str] = &["dnsmasq", "udhcpc"];

/// Script of both clients: it sets the address and nothing else of the machine.
const SCRIPT: &str = r#"#!/bin/sh
case "$1" in
bound|renew) ip addr replace "$ip/24" dev "$interface" ;;
deconfig) ip addr flush dev "$interface"; ip link set "$interface" up ;;
esac
case "$reason" in
BOUND|RENEW|REBOOT) ip addr replace "$new_ip_address/24" dev "$interface" ;;
PREINIT) ip link set "$interface" up ;;
BOUND6) ip -6 addr replace "$new_ip6_address/64" dev "$interface" nodad ;;
esac
exit 0
"#;

/// Starts a server at 10.0.0.1 with a range.
fn server(world: &World<'_>, station: &Station, range: &str) -> Client {
    let leases = world.file("leases");
    let line = format!(
        "dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --interface=eth0 \
         --bind-interfaces --dhcp-authoritative --no-ping --log-dhcp --log-facility=- --user=root \
         --pid-file={}.pid --dhcp-leasefile={} {range}",
        leases.display(),
        leases.display()
    );
    let server = Client::start(world, station, &line);
    until(Duration::from_secs(5), || server.said().contains("DHCP, "));
    server
}

const MANY: &str = "--dhcp-range=10.0.0.100,10.0.0.120,2m";
const ONE: &str = "--dhcp-range=10.0.0.100,10.0.0.100,2m";

fn script(world: &World<'_>) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = world.write("configure", SCRIPT);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn client(world: &World<'_>, station: &Station, more: &str) -> Client {
    let script = script(world);
    let line = format!("udhcpc -f -i eth0 -s {script} -t 5 -T 1 -A 1 {more}");
    Client::start(world, station, &line)
}

/// Returns true if a machine gets an address in time.
fn is_given(station: &Station, seconds: u64) -> bool {
    let has = || station.does("-4 addr show dev eth0").contains("inet 10.0.0.1");
    until(Duration::from_secs(seconds), has).is_some()
}

fn first(world: &World<'_>, host: Host, more: &str) -> Seen {
    let [s] = world.stations([H1]);
    let [a] = world.bare([host]);
    let _server = server(world, &s, MANY);
    let _client = client(world, &a, more);
    Seen::new().word("has an address", is_given(&a, 12)).word("reaches it", a.reaches(s.ip))
}

fn dhclient(world: &World<'_>) -> Seen {
    let [s] = world.stations([H1]);
    let [a] = world.bare([H2]);
    let _server = server(world, &s, MANY);
    let line = format!(
        "dhclient -4 -d -1 -sf {} -lf {} -pf {} eth0",
        script(world),
        world.file("dhclient.leases").display(),
        world.file("dhclient.pid").display()
    );
    let _client = Client::start(world, &a, &line);
    Seen::new().word("has an address", is_given(&a, 12)).word("reaches it", a.reaches(s.ip))
}

fn three(world: &World<'_>) -> Seen {
    let [s] = world.stations([H1]);
    let machines = world.bare([H1, H2, H2]);
    let _server = server(world, &s, MANY);
    let _clients: Vec<_> = machines.iter().map(|machine| client(world, machine, "-a")).collect();
    let given = machines.iter().filter(|machine| is_given(machine, 12)).count();
    let reach = machines.iter().filter(|machine| machine.reaches(s.ip)).count();
    Seen::new().count("have an address", given).count("reach it", reach)
}

fn renewed(world: &World<'_>) -> Seen {
    let [s] = world.stations([H1]);
    let [a] = world.bare([H2]);
    let server = server(world, &s, MANY);
    let client = client(world, &a, "");
    let given = is_given(&a, 12);
    let acks = || server.said().matches("DHCPACK").count();
    let before = acks();
    client.signal(rustix::process::Signal::USR1);
    let renewed = until(Duration::from_secs(8), || acks() > before).is_some();
    Seen::new().word("has an address", given).word("renewed", renewed)
}

/// Way in which a machine leaves its address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    Released,
    Down,
    Deleted,
}

/// The only address of a server moves from one machine to another, which probes for it.
fn reused(world: &World<'_>, gone: Gone) -> Seen {
    let [s] = world.stations([H1]);
    let [old, new] = world.bare([H2, H1]);
    let first = server(world, &s, ONE);
    let mut holder = client(world, &old, "-a -R");
    let given = is_given(&old, 12) && old.reaches(s.ip) && s.reaches([10, 0, 0, 100].into());
    match gone {
        Gone::Released => {
            holder.stop();
            old.does("addr flush dev eth0");
        }
        Gone::Down => old.does("link set eth0 down").clear(),
        Gone::Deleted => {
            holder.signal(rustix::process::Signal::KILL);
            holder.stop();
            crate::rig::run(&format!("ip netns del {}", old.netns.name())).clear();
        }
    }
    drop((holder, first));
    // The lease has ended; a server without its file does not know it any more.
    std::fs::remove_file(world.file("leases")).unwrap();
    wait(1_000);
    let again = server(world, &s, ONE);
    let _client = client(world, &new, "-a");
    let has = is_given(&new, 6);
    let declined = again.said().contains("DHCPDECLINE");
    Seen::new()
        .word("first has it", given)
        .word("second has it", has)
        .word("second declines", declined)
        .word("second reaches others", has && new.reaches(s.ip))
}

/// Another machine has taken the only address by hand: the client finds out.
fn declined(world: &World<'_>) -> Seen {
    let [s] = world.stations([H1]);
    let [squatter, a] = world.bare([H2, H1]);
    squatter.does("addr add 10.0.0.100/24 dev eth0");
    squatter.reaches(s.ip);
    let server = server(world, &s, ONE);
    let _client = client(world, &a, "-a");
    let told = until(Duration::from_secs(8), || server.said().contains("DHCPDECLINE"));
    Seen::new().word("declined", told.is_some())
}

fn v6(world: &World<'_>) -> Seen {
    let [s, a] = world.bare([H1, H2]);
    s.has_address6();
    a.speaks_v6();
    assert!(s.link_local().is_some() && a.link_local().is_some());
    let _server = server(world, &s, "--dhcp-range=fd00::100,fd00::120,64,2m --enable-ra");
    let line = format!(
        "dhclient -6 -d -1 -sf {} -lf {} -pf {} eth0",
        script(world),
        world.file("dhclient6.leases").display(),
        world.file("dhclient6.pid").display()
    );
    let _client = Client::start(world, &a, &line);
    let has = || a.does("-6 addr show dev eth0").contains("inet6 fd00::1");
    let given = until(Duration::from_secs(12), has).is_some();
    let reached = a.heals6(s.ip6, Duration::from_secs(5)).is_some();
    Seen::new().word("has an address", given).word("reaches it", reached)
}
