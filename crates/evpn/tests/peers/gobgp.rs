//! GoBGP: a speaker without a data plane, whose routes are made by hand.

use std::net::{IpAddr, Ipv4Addr};

use sluice_base::Nanos;
use sluice_evpn::{Event, MacKey};

use crate::lab::{AS, Lab, OURS, Ours, THEIRS, endpoint, key, network, skip, vni, wait_for};

const PROGRAMS: [&str; 2] = ["gobgpd", "gobgp"];
const STALE_MAX: Nanos = Nanos::from_millis(20_000);
const THEIR_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

struct GoBgp {
    lab: Lab,
}

impl GoBgp {
    fn start(word: &str) -> Self {
        let mut gobgp = Self { lab: Lab::new(word) };
        gobgp.daemon();
        gobgp
    }

    fn daemon(&mut self) {
        let text = format!(
            r#"
[global.config]
as = {AS}
router-id = "{THEIRS}"
[[neighbors]]
[neighbors.config]
neighbor-address = "{OURS}"
peer-as = {AS}
[neighbors.timers.config]
connect-retry = 1
hold-time = 9
keepalive-interval = 3
[neighbors.graceful-restart.config]
enabled = true
restart-time = 20
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "l2vpn-evpn"
[neighbors.afi-safis.mp-graceful-restart.config]
enabled = true
"#
        );
        let path = self.lab.write("gobgpd.conf", &text);
        let mut command = self.lab.theirs.command("gobgpd");
        command.arg("-f").arg(path).args(["--api-hosts", "127.0.0.1:50051"]);
        self.lab.start("gobgpd", &mut command);
        wait_for("the command line of GoBGP", || self.ask("global").is_ok());
    }

    fn ask(&self, words: &str) -> Result<String, sluice_netns::Error> {
        self.lab.theirs.run(&format!("gobgp {words}"))
    }

    /// Adds or deletes a route of type 2.
    fn mac(&self, verb: &str, key: MacKey, ip: IpAddr) {
        let vni = key.vni;
        let words = format!(
            "global rib {verb} macadv {} {ip} etag 0 label {vni} rd {THEIRS}:{vni} rt {AS}:{vni} \
             encap vxlan nexthop {THEIRS} -a evpn",
            key.mac
        );
        self.ask(&words).unwrap();
    }

    fn table(&self) -> String {
        self.ask("global rib -a evpn").unwrap()
    }
}

#[test]
#[ignore = "live: needs root and GoBGP"]
fn gobgp_and_speaker_exchange_routes() {
    if skip("live_peers::gobgp", &PROGRAMS) {
        return;
    }
    let gobgp = GoBgp::start("go");
    let ours = Ours::start(&gobgp.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.announce(endpoint(key(1), &["10.0.0.1".parse().unwrap()]));
    wait_for("the session", || ours.count(|event| matches!(event, Event::Up(_))) == 1);
    gobgp.mac("add", key(2), THEIR_IP);
    let multicast = format!(
        "global rib add multicast {THEIRS} etag 0 rd {THEIRS}:100 rt {AS}:100 encap vxlan \
         pmsi ingress-repl 100 {THEIRS} nexthop {THEIRS} -a evpn"
    );
    gobgp.ask(&multicast).unwrap();
    wait_for("GoBGP's endpoint", || ours.place(key(2)) == Some(THEIRS));
    assert_eq!(ours.told().macs[&key(2)].ips, [THEIR_IP]);
    wait_for("GoBGP's VTEP", || ours.told().vteps.contains(&(vni(100), THEIRS)));

    let mac = key(1).mac.to_string();
    wait_for("our endpoint, alone and with its address", || {
        let table = gobgp.table();
        let lines = table.lines().filter(|line| line.contains(&mac));
        lines.clone().count() == 2 && lines.filter(|line| line.contains("10.0.0.1")).count() == 1
    });
    let table = gobgp.table();
    for word in ["type:multicast", "VXLAN", "65000:100"] {
        assert!(table.contains(word), "{word} is not in:\n{table}");
    }

    gobgp.mac("del", key(2), THEIR_IP);
    wait_for("GoBGP's endpoint is withdrawn", || ours.place(key(2)).is_none());
    ours.told().driver.speaker_mut().withdraw(key(1));
    wait_for("our endpoint is withdrawn", || !gobgp.table().contains(&mac));
}

#[test]
#[ignore = "live: needs root and GoBGP"]
fn gobgp_killed_and_back() {
    if skip("live_peers::gobgp", &PROGRAMS) {
        return;
    }
    let mut gobgp = GoBgp::start("gokill");
    let ours = Ours::start(&gobgp.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.announce(endpoint(key(1), &[]));
    wait_for("the session", || ours.count(|event| matches!(event, Event::Up(_))) == 1);
    gobgp.mac("add", key(2), THEIR_IP);
    wait_for("GoBGP's endpoint", || ours.place(key(2)) == Some(THEIRS));
    gobgp.lab.kill("gobgpd");
    wait_for("the session has ended", || ours.count(|event| matches!(event, Event::Down(..))) >= 1);
    assert_eq!(ours.place(key(2)), Some(THEIRS), "kept while it is away");
    gobgp.daemon();
    wait_for("the session is back", || ours.count(|event| matches!(event, Event::Up(_))) == 2);
    // It forgot its routes with its process.
    wait_for("the endpoint that is no more", || ours.place(key(2)).is_none());
    let mac = key(1).mac.to_string();
    wait_for("our endpoint", || gobgp.table().contains(&mac));
    // It asks for all routes, and keeps what it has.
    gobgp.ask(&format!("neighbor {OURS} softresetin -a evpn")).unwrap();
    ours.announce(endpoint(key(4), &[]));
    let other = key(4).mac.to_string();
    wait_for("a route behind the refresh", || gobgp.table().contains(&other));
    assert!(gobgp.table().contains(&mac));
}

#[test]
#[ignore = "live: needs root and GoBGP"]
fn gobgp_keeps_routes_while_speaker_restarts() {
    if skip("live_peers::gobgp", &PROGRAMS) {
        return;
    }
    let gobgp = GoBgp::start("gograce");
    let [stays, goes] = [key(1), key(2)].map(|key| key.mac.to_string());
    let ours = Ours::start(&gobgp.lab, STALE_MAX);
    ours.add_network(network(100));
    for key in [key(1), key(2)] {
        ours.announce(endpoint(key, &[]));
    }
    wait_for("our endpoints", || {
        let table = gobgp.table();
        table.contains(&stays) && table.contains(&goes)
    });
    // It ends as a process that is killed does.
    drop(ours);
    let is_up = || gobgp.ask("neighbor").is_ok_and(|text| text.contains("Establ"));
    wait_for("GoBGP has noticed", || !is_up());
    let table = gobgp.table();
    assert!(table.contains(&stays) && table.contains(&goes), "kept (RFC 4724):\n{table}");
    let ours = Ours::start(&gobgp.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.announce(endpoint(key(1), &[]));
    wait_for("what was not repeated is gone", || !gobgp.table().contains(&goes));
    assert!(is_up() && gobgp.table().contains(&stays));
}
