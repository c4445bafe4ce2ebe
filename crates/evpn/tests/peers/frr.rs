//! FRR's zebra and bgpd with a bridge and a VXLAN device of the kernel.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};

use sluice_base::Nanos;
use sluice_evpn::{Event, MacKey};
use sluice_netns::frr;

use crate::lab::{AS, Lab, OURS, Ours, THEIRS, endpoint, key, network, skip, vni, wait_for};

const STALE_MAX: Nanos = Nanos::from_millis(20_000);
const OUR_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A lab with FRR in it. FRR ends before its lab.
struct Frr {
    frr: frr::Frr,
    lab: Lab,
}

impl Frr {
    /// Starts FRR; `None`: a program is missing, which is said.
    fn start(word: &str) -> Option<Self> {
        if skip("live_peers::frr", frr::missing().as_slice()) {
            return None;
        }
        let lab = Lab::new(word);
        let frr = frr::Frr::start(&lab.theirs, &lab.dir, (AS, THEIRS), &[OURS]).unwrap();
        Some(Self { frr, lab })
    }

    /// Puts an address behind the bridge's own port.
    fn put(&self, key: MacKey) {
        self.frr.put(&key.mac.to_string()).unwrap();
    }

    fn remove(&self, key: MacKey) {
        self.frr.remove(&key.mac.to_string()).unwrap();
    }

    /// Returns true if the kernel sends frames for a MAC to our VTEP.
    fn sends_to_us(&self, key: MacKey) -> bool {
        self.frr.sends(&key.mac.to_string(), OURS)
    }

    /// Returns true if the kernel sends frames for all of the network to our VTEP.
    fn floods_to_us(&self) -> bool {
        self.frr.floods(OURS)
    }
}

impl Deref for Frr {
    type Target = frr::Frr;

    fn deref(&self) -> &frr::Frr {
        &self.frr
    }
}

impl DerefMut for Frr {
    fn deref_mut(&mut self) -> &mut frr::Frr {
        &mut self.frr
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.frr.state());
        }
    }
}

#[test]
#[ignore = "live: needs root and FRR"]
fn frr_and_speaker_exchange_routes() {
    let Some(frr) = Frr::start("routes") else { return };
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
    let Some(frr) = Frr::start("moves") else { return };
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
    let Some(mut frr) = Frr::start("kill") else { return };
    let ours = Ours::start(&frr.lab, STALE_MAX);
    ours.add_network(network(100));
    ours.announce(endpoint(key(1), &[]));
    frr.put(key(2));
    frr.put(key(3));
    ours.wait_up(1);
    wait_for("FRR's endpoints", || ours.place(key(2)).and(ours.place(key(3))) == Some(THEIRS));

    frr.kill("bgpd");
    let is_down = |event: &Event| matches!(event, Event::Down(..));
    wait_for("the session has ended", || ours.count(is_down) >= 1);
    assert_eq!(ours.place(key(2)), Some(THEIRS), "kept while bgpd is away");
    // Nobody withdraws it. A zebra without bgpd would keep it for ever.
    frr.kill("zebra");
    frr.remove(key(3));
    frr.start_daemons().unwrap();
    ours.wait_up(2);
    wait_for("the endpoint that is no more", || ours.place(key(3)).is_none());
    assert_eq!(ours.place(key(2)), Some(THEIRS));
    wait_for("our endpoint in its kernel", || frr.sends_to_us(key(1)));

    // An operator's reset.
    _ = frr.vtysh("clear bgp l2vpn evpn *");
    ours.wait_up(3);
    wait_for("FRR's endpoint is back", || ours.place(key(2)) == Some(THEIRS));
}

#[test]
#[ignore = "live: needs root and FRR"]
fn refresh_brings_routes_again() {
    let Some(frr) = Frr::start("refresh") else { return };
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
    _ = frr.vtysh("clear bgp l2vpn evpn * soft in");
    ours.announce(endpoint(key(4), &[]));
    wait_for("a route behind the refresh", || frr.sends_to_us(key(4)));
    assert!(frr.sends_to_us(key(1)));
    assert_eq!(ours.count(|event| matches!(event, Event::Down(..))), 0);
}
