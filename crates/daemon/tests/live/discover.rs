//! Hosts hear each other's beacons on the underlay's network, and a tenant neither hears one nor
//! has one heard, though the host routes for it.
//!
//! ```text
//!   c1 ── t0 h1 up0 ═══════ up0 h2
//!         (routes)
//! ```

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Child, Stdio};

use crate::rig::{Net, Netns, cable, program, skip};
use rustix::net::sockopt;
use serde_json::Value;
use sluice_daemon::discovery::{Announcer, Beacon, Place};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);
const PORT: u16 = 7475;
const H1: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const H2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TENANT: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);

/// Announces a host from one of its devices.
fn announce(netns: &Netns, address: Ipv4Addr, beacon: Beacon) -> Announcer {
    let place = Place { device: "up0".to_owned(), address };
    netns.inside(|| Announcer::start(vec![place], beacon).unwrap())
}

/// Begins to listen.
fn discover(netns: &Netns, words: &[&str]) -> Child {
    let mut command = netns.command(program().to_str().unwrap());
    command.args(["fabric", "discover", "--json", "--for", "3s"]).args(words);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Returns the output, and the names of the hosts that were heard with their addresses.
fn heard(child: Child) -> (Value, Vec<(String, String)>) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = all["hosts"].as_array().unwrap();
    let rows = rows.iter().map(|row| (text(row, "host"), text(row, "address"))).collect();
    (all, rows)
}

/// Sends what a host would, in another's name, for as long as somebody listens.
fn forge(netns: &Netns, listeners: &mut [Child]) {
    let forged = Beacon::waiting("forged", 7474).unwrap().datagram();
    let socket = netns.inside(|| UdpSocket::bind((TENANT, 0)).unwrap());
    // As far as it goes, not for this network alone.
    sockopt::set_ip_multicast_ttl(&socket, 64).unwrap();
    while listeners.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        for to in [GROUP, H1, H2] {
            // A host may answer that nobody listens.
            _ = socket.send_to(&forged, SocketAddrV4::new(to, PORT));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
#[ignore = "live: needs root"]
fn hosts_discover_each_other_tenants_stay_out() {
    if skip("live::discover", &[]) {
        return;
    }
    let mut net = Net::new("discover");
    let [h1, h2, c1] = ["h1", "h2", "c1"].map(|name| net.netns(name));
    cable((&h1, "up0", "192.0.2.1/24"), (&h2, "up0", "192.0.2.2/24"));
    cable((&h1, "t0", "10.42.0.9/24"), (&c1, "eth0", "10.42.0.1/24"));
    h1.run("sysctl -qw net.ipv4.ip_forward=1");
    c1.ip("route add default via 10.42.0.9");
    h2.ip("route add 10.42.0.0/24 via 192.0.2.1");
    let authority = "ab".repeat(32);
    let member = Beacon::member("h1", 7474, ("prod", &authority)).unwrap();
    let _h1 = announce(&h1, H1, member);
    let second = announce(&h2, H2, Beacon::waiting("h2", 7474).unwrap());

    let mut listeners = [
        discover(&h1, &["--device", "up0"]),
        discover(&h2, &[]),
        discover(&h1, &["--device", "t0"]),
        discover(&c1, &[]),
    ];
    forge(&c1, &mut listeners);
    let [by_h1, by_h2, at_tenant, by_tenant] = listeners.map(heard);
    let pair = |host: &str, address: Ipv4Addr| (host.to_owned(), address.to_string());
    let both = [pair("h1", H1), pair("h2", H2)];
    assert_eq!((by_h1.1.as_slice(), by_h2.1.as_slice()), (&both[..], &both[..]));
    let row = &by_h2.0["hosts"][0];
    assert_eq!((&row["fabric"], &row["authority"]), (&"prod".into(), &authority.into()));
    assert_eq!((&row["device"], &row["port"]), (&"up0".into(), &7474.into()));
    // The tenant was heard where it is, so what it sent could have been heard elsewhere.
    assert_eq!(at_tenant.1, [pair("forged", TENANT)]);
    assert_eq!(by_tenant.1, [pair("forged", TENANT)]);

    // A host that joins says so at once.
    let listener = discover(&h1, &["--device", "up0"]);
    let joined = Beacon::member("h2", 7474, ("prod", &"ab".repeat(32))).unwrap();
    second.set(vec![Place { device: "up0".to_owned(), address: H2 }], joined);
    let (all, _) = heard(listener);
    assert_eq!(all["hosts"][1]["fabric"], "prod");
    let nobody = h1.attempt(&format!("{} fabric discover --device no0", program().display()));
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(said.contains("cannot listen on no0: No such device"), "{said}");
}
