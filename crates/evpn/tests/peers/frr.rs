//! FRR's zebra and bgpd with a bridge and a VXLAN device of the kernel.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;

use sluice_base::Nanos;
use sluice_evpn::{Event, MacKey};

use crate::lab::{AS, Lab, OURS, Ours, THEIRS, endpoint, key, network, skip, vni, wait_for};

const BGPD: &str = "/usr/lib/frr/bgpd";
const PROGRAMS: [&str; 2] = [BGPD, "vtysh"];
const STALE_MAX: Nanos = Nanos::from_millis(20_000);
const OUR_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A lab with FRR in it.
struct Frr {
    lab: Lab,
}

impl Frr {
    fn start(word: &str) -> Self {
        let lab = Lab::new(word);
        // The daemons change to a user of their own before they make their sockets here.
        fs::set_permissions(&lab.dir, fs::Permissions::from_mode(0o777)).unwrap();
        for line in [
            "link add br100 type bridge",
            &format!("link add vx100 type vxlan id 100 local {THEIRS} dstport 4789 nolearning"),
            "link set vx100 master br100",
            "link add p0 type veth peer name q0",
            "link set p0 master br100",
        ] {
            lab.theirs.ip(line).unwrap();
        }
        for device in ["br100", "vx100", "p0", "q0"] {
            lab.theirs.ip(&format!("link set {device} up")).unwrap();
        }
        lab.theirs.run("bridge link set dev vx100 learning off neigh_suppress on").unwrap();
        lab.write("zebra.conf", "hostname peer\n");
        lab.write("bgpd.conf", &configuration());
        let mut frr = Self { lab };
        frr.daemons();
        frr
    }

    fn daemons(&mut self) {
        _ = fs::remove_file(self.lab.dir.join("zserv.api"));
        self.daemon("zebra");
        wait_for("zebra's socket", || self.lab.dir.join("zserv.api").exists());
        self.daemon("bgpd");
    }

    fn daemon(&mut self, name: &str) {
        let dir = self.lab.dir.clone();
        let mut command = self.lab.theirs.command(format!("/usr/lib/frr/{name}"));
        command.arg("-f").arg(dir.join(format!("{name}.conf")));
        command.arg("-i").arg(dir.join(format!("{name}.pid")));
        command.arg("-z").arg(dir.join("zserv.api")).arg("--vty_socket").arg(&dir);
        command.args(["-P", "0", "--log", "stdout"]);
        self.lab.start(name, &mut command);
    }

    fn vtysh(&self, line: &str) -> String {
        let mut command = std::process::Command::new("vtysh");
        command.arg("--vty_socket").arg(&self.lab.dir).args(["-c", line]);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Puts an address behind the bridge's own port.
    fn put(&self, key: MacKey) {
        let line = format!("bridge fdb replace {} dev p0 master dynamic", key.mac);
        self.lab.theirs.run(&line).unwrap();
    }

    fn remove(&self, key: MacKey) {
        let line = format!("bridge fdb del {} dev p0 master", key.mac);
        self.lab.theirs.run(&line).unwrap();
    }

    /// Returns true if the kernel sends frames for a MAC to our VTEP: the bridge sends them to the
    /// VXLAN device, and that to us. The second entry alone stays while the MAC is at `p0`.
    fn sends_to_us(&self, key: MacKey) -> bool {
        let text = self.lab.theirs.run("bridge fdb show dev vx100").unwrap();
        let (mac, dst) = (key.mac.to_string(), format!("dst {OURS}"));
        let has =
            |word: &str| text.lines().any(|line| line.starts_with(&mac) && line.contains(word));
        has("master br100") && has(&dst)
    }

    /// Returns true if the kernel sends frames for all of the network to our VTEP.
    fn floods_to_us(&self) -> bool {
        let text = self.lab.theirs.run("bridge fdb show dev vx100").unwrap();
        let dst = format!("dst {OURS}");
        text.lines().any(|line| line.starts_with("00:00:00:00:00:00") && line.contains(&dst))
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.lab.theirs.run("bridge fdb show").unwrap_or_default());
            for line in ["show evpn mac vni 100", "show bgp l2vpn evpn route"] {
                println!("{line}\n{}", self.vtysh(line));
            }
        }
    }
}

fn configuration() -> String {
    format!(
        "router bgp {AS}
 bgp router-id {THEIRS}
 no bgp default ipv4-unicast
 timers bgp 3 9
 neighbor {OURS} remote-as {AS}
 neighbor {OURS} timers connect 1
 address-family l2vpn evpn
  neighbor {OURS} activate
  advertise-all-vni
 exit-address-family
"
    )
}

#[test]
#[ignore = "live: needs root and FRR"]
fn frr_and_speaker_exchange_routes() {
    if skip("live_peers::frr", &PROGRAMS) {
        return;
    }
    let frr = Frr::start("routes");
    let ours = Ours::start(&frr.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.announce(endpoint(key(1), &[OUR_IP]));
    frr.put(key(2));
    ours.wait_up(1);

    wait_for("FRR's VTEP", || ours.told().vteps.contains(&(vni(100), THEIRS)));
    wait_for("FRR's endpoint", || ours.place(key(2)) == Some(THEIRS));
    wait_for("our VTEP in its kernel", || frr.floods_to_us());
    wait_for("our endpoint in its kernel", || frr.sends_to_us(key(1)));
    wait_for("our endpoint's address", || {
        frr.vtysh("show evpn arp-cache vni 100").contains(&OUR_IP.to_string())
    });

    frr.remove(key(2));
    wait_for("FRR's endpoint is withdrawn", || ours.place(key(2)).is_none());
    ours.told().driver.speaker_mut().withdraw(key(1));
    wait_for("our endpoint is withdrawn", || !frr.sends_to_us(key(1)));
    ours.told().driver.speaker_mut().remove_network(vni(100));
    wait_for("our VTEP is withdrawn", || !frr.floods_to_us());
}

#[test]
#[ignore = "live: needs root and FRR"]
fn two_hundred_moves_leave_nothing_stuck() {
    if skip("live_peers::frr", &PROGRAMS) {
        return;
    }
    let frr = Frr::start("moves");
    let ours = Ours::start(&frr.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.wait_up(1);
    for step in 0..200_u32 {
        if step % 2 == 0 {
            frr.put(key(1));
            wait_for(&format!("move {step} to FRR"), || ours.place(key(1)) == Some(THEIRS));
            assert_eq!(ours.told().driver.speaker().exported(), 1, "after {step} moves");
        } else {
            let sequence = ours.announce(endpoint(key(1), &[]));
            assert!(sequence >= step, "{sequence} after {step} moves");
            wait_for(&format!("move {step} to us"), || frr.sends_to_us(key(1)));
            wait_for("FRR's own route is gone", || ours.place(key(1)).is_none());
        }
    }
    // It is here: FRR has nothing of its own any more.
    wait_for("FRR withdrew its route", || ours.told().driver.speaker().neighbors()[0].routes == 1);
}

#[test]
#[ignore = "live: needs root and FRR"]
fn killed_frr_keeps_routes_until_back() {
    if skip("live_peers::frr", &PROGRAMS) {
        return;
    }
    let mut frr = Frr::start("kill");
    let ours = Ours::start(&frr.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.announce(endpoint(key(1), &[]));
    frr.put(key(2));
    frr.put(key(3));
    ours.wait_up(1);
    wait_for("FRR's endpoints", || ours.place(key(2)).and(ours.place(key(3))) == Some(THEIRS));

    frr.lab.kill("bgpd");
    let is_down = |event: &Event| matches!(event, Event::Down(..));
    wait_for("the session has ended", || ours.count(is_down) >= 1);
    assert_eq!(ours.place(key(2)), Some(THEIRS), "kept while bgpd is away");
    // Nobody withdraws it. A zebra without bgpd would keep it for ever.
    frr.lab.kill("zebra");
    frr.remove(key(3));
    frr.daemons();
    ours.wait_up(2);
    wait_for("the endpoint that is no more", || ours.place(key(3)).is_none());
    assert_eq!(ours.place(key(2)), Some(THEIRS));
    wait_for("our endpoint in its kernel", || frr.sends_to_us(key(1)));

    // An operator's reset.
    frr.vtysh("clear bgp l2vpn evpn *");
    ours.wait_up(3);
    wait_for("FRR's endpoint is back", || ours.place(key(2)) == Some(THEIRS));
}

#[test]
#[ignore = "live: needs root and FRR"]
fn refresh_brings_routes_again() {
    if skip("live_peers::frr", &PROGRAMS) {
        return;
    }
    let frr = Frr::start("refresh");
    let ours = Ours::start(&frr.lab, STALE_MAX);
    frr.put(key(2));
    ours.wait_up(1);
    wait_for("its routes are kept out", || {
        ours.told().driver.speaker().neighbors()[0].kept_out.not_ours >= 2
    });
    // They were not kept: FRR is asked for them.
    ours.add_network(network(100));
    wait_for("FRR's endpoint", || ours.place(key(2)) == Some(THEIRS));
    ours.announce(endpoint(key(1), &[]));
    wait_for("our endpoint in its kernel", || frr.sends_to_us(key(1)));
    // FRR asks as well, and keeps what it has.
    frr.vtysh("clear bgp l2vpn evpn * soft in");
    ours.announce(endpoint(key(4), &[]));
    wait_for("a route behind the refresh", || frr.sends_to_us(key(4)));
    assert!(frr.sends_to_us(key(1)));
    assert_eq!(ours.count(|event| matches!(event, Event::Down(..))), 0);
}
