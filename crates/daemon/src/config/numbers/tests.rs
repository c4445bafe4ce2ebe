use sluice_base::Prng;

use super::*;
use crate::config::{DeviceFacts, Devices, plan};

struct Fake;

impl Devices for Fake {
    fn facts(&self, _device: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: sluice_base::Mac([2, 0, 0, 0, 0, 1]), mtu: 1_500 })
    }
}

/// Returns the text of a host with these networks and peers, by the last part of their names.
fn text(vnets: &[u16], peers: &[u16]) -> String {
    let mut text = "[host]\nname = \"h1\"\npolicy = \"ZL\"\n[underlay]\nkind = \"udp\"\n\
                    device = \"eth7\"\naddress = \"10.0.0.1\"\n"
        .to_owned();
    for n in vnets {
        text += &format!("[[vnet]]\nname = \"net{n}\"\nvni = {}\n", 100 + n);
    }
    for n in peers {
        text += &format!("[[peer]]\nname = \"peer{n}\"\nvtep = \"10.0.1.{n}\"\nvnets = []\n");
    }
    text
}

fn config(vnets: &[u16], peers: &[u16]) -> HostConfig {
    plan("h1.toml", &text(vnets, peers), &Fake).unwrap().config
}

fn all_free() -> (impl Fn(VnetId) -> bool, impl Fn(TunnelId) -> bool) {
    (|_| true, |_| true)
}

#[test]
fn stayers_keep_numbers_newcomers_take_lowest() {
    let now = config(&[1, 2, 3], &[1, 2]);
    let next = config(&[9, 3, 1], &[7, 8, 2]);
    let numbers = Numbers::of_positions(&now).follow(&now, &next, all_free()).unwrap();
    let of = |name| numbers.vnet(name).map(|id| id.0);
    assert_eq!([of("net1"), of("net3"), of("net9"), of("net2")], [Some(0), Some(2), Some(1), None]);
    let of = |name| numbers.tunnel(name).map(|id| id.0);
    assert_eq!([of("peer2"), of("peer7"), of("peer8")], [Some(1), Some(0), Some(2)]);
    assert!(numbers.fit(&next) && !numbers.fit(&now));
}

#[test]
fn place_that_is_not_free_is_left_out() {
    let (now, next) = (config(&[1], &[]), config(&[2, 3], &[]));
    let old = Numbers::of_positions(&now);
    let numbers = old.follow(&now, &next, (|id| id != VnetId(0), |_| true)).unwrap();
    assert_eq!([numbers.vnet("net2"), numbers.vnet("net3")], [1, 2].map(|n| Some(VnetId(n))));
    let none = old.follow(&now, &next, (|id| id == VnetId(1), |_| true));
    assert_eq!(none, Err("spare_vnets"));
}

#[test]
fn network_of_another_vni_is_another_one() {
    let now = config(&[1], &[1]);
    let mut next = now.clone();
    next.vnets[0].vni = Some(77);
    next.peers[0].vtep = "10.0.1.9".parse().unwrap();
    let free = (|id| id != VnetId(0), |id| id != TunnelId(0));
    let numbers = Numbers::of_positions(&now).follow(&now, &next, free).unwrap();
    assert_eq!(numbers.vnet("net1"), Some(VnetId(1)));
    assert_eq!(numbers.tunnel("peer1"), Some(TunnelId(1)));
}

#[test]
fn numbers_do_not_count_for_fingerprint() {
    let now = config(&[1, 2], &[1]);
    let next = config(&[2], &[1]);
    let numbers = Numbers::of_positions(&now).follow(&now, &next, all_free()).unwrap();
    let fresh = plan("h1.toml", &text(&[2], &[1]), &Fake).unwrap();
    let kept = crate::config::renumber(fresh.clone(), numbers, &Fake).unwrap();
    assert_eq!(kept.fingerprint, fresh.fingerprint);
    assert_eq!(kept.switch.spare_places.vnets.first(), Some(&VnetId(0)), "its place is free");
    assert_eq!(fresh.switch.spare_places.vnets.first(), Some(&VnetId(1)));
    let foreign = Numbers::of_positions(&now);
    assert!(crate::config::renumber(fresh, foreign, &Fake).is_err());
}

#[test]
fn numbers_stay_unique_over_many_changes() {
    let mut rng = Prng::new(7);
    for _ in 0..50 {
        let mut now = config(&[], &[]);
        let mut numbers = Numbers::of_positions(&now);
        for _ in 0..12 {
            let mut vnets: Vec<u16> = (0..12).filter(|_| rng.chance(1, 2)).collect();
            if rng.chance(1, 2) {
                vnets.reverse();
            }
            let next = config(&vnets, &[]);
            let followed = numbers.follow(&now, &next, all_free()).unwrap();
            assert!(followed.fit(&next), "{followed:?}");
            for vnet in now.vnets.iter().filter(|old| next.vnets.contains(old)) {
                assert_eq!(followed.vnet(&vnet.name), numbers.vnet(&vnet.name));
            }
            (now, numbers) = (next, followed);
        }
    }
}
