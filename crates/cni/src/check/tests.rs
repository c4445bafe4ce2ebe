use serde_json::json;
use sluice_api::port::{CardAddress, Kind, Place};

use super::*;

const NETNS: &str = "/run/netns/x";

fn port() -> NewPort {
    NewPort {
        place: Place::Netns(NETNS.to_owned()),
        kind: Kind::Tap,
        vnet: "blue".to_owned(),
        name: None,
        device: Some("eth0".to_owned()),
        ips: vec!["10.0.0.7/24".parse().unwrap()],
        mac: Some("02:00:00:00:00:0a".to_owned()),
        allowed: Vec::new(),
        moves: false,
        standby: false,
        change: false,
        taken: 0,
        gateway: None,
        routes: vec!["0.0.0.0/0,10.0.0.1".parse().unwrap()],
        mtu: Some(1400),
        cni: None,
    }
}

fn card() -> Card {
    Card {
        device: "eth0".to_owned(),
        mac: "02:00:00:00:00:0a".to_owned(),
        mtu: 1400,
        up: true,
        addresses: vec![CardAddress { ip: [10, 0, 0, 7].into(), prefix: 24 }],
        routes: port().routes,
    }
}

fn before() -> Value {
    json!({
        "interfaces": [
            {"name": "eth0", "sandbox": "/other"},
            {"name": "eth0", "mac": "02:00:00:00:00:0A", "mtu": 1400, "sandbox": NETNS}
        ],
        "ips": [
            {"address": "10.0.0.7/24", "interface": 1},
            {"address": "10.8.0.1/24", "interface": 0}
        ]
    })
}

#[test]
fn interface_as_it_was_made_passes() {
    assert_eq!(difference(&port(), &card(), &before(), NETNS), None);
}

/// A change of a device.
type Change = fn(&mut Card);

#[test]
fn every_change_of_device_is_found() {
    let changes: [(&str, Change); 6] = [
        ("MAC", |card| card.mac = "02:00:00:00:00:0b".to_owned()),
        ("MTU", |card| card.mtu = 1500),
        ("is down", |card| card.up = false),
        ("address 10.0.0.7/24", |card| card.addresses.clear()),
        ("address 10.0.0.7/24", |card| card.addresses[0].prefix = 16),
        ("route 0.0.0.0/0,10.0.0.1", |card| card.routes.clear()),
    ];
    for (words, change) in changes {
        let mut changed = card();
        change(&mut changed);
        let said = difference(&port(), &changed, &before(), NETNS).unwrap();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn result_of_another_interface_is_found() {
    for (pointer, value, words) in [
        ("/interfaces/1/sandbox", json!("/else"), "prevResult has no interface eth0"),
        ("/interfaces/1/mac", json!("02:00:00:00:00:0c"), "MAC"),
        ("/interfaces/1/mtu", json!(1500), "MTU"),
        ("/ips/0/address", json!("10.0.0.8/24"), "address 10.0.0.8/24"),
        ("/interfaces", json!([]), "prevResult has no interface"),
    ] {
        let mut result = before();
        *result.pointer_mut(pointer).unwrap() = value;
        let said = difference(&port(), &card(), &result, NETNS).unwrap();
        assert!(said.contains(words), "{pointer}: {said}");
    }
    // An address that the container gave itself is no address of the port.
    let mut result = before();
    result["ips"][0]["address"] = json!("10.0.0.8/24");
    let mut own = card();
    own.addresses.push(CardAddress { ip: [10, 0, 0, 8].into(), prefix: 24 });
    let said = difference(&port(), &own, &result, NETNS).unwrap();
    assert!(said.contains("not bound to 10.0.0.8/24"), "{said}");
}
