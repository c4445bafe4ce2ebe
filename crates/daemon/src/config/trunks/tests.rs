use sluice_api::fabric_config::{Operation, VnetSettings};

use super::*;
use crate::config::member::HostFile;

const FILE: &str = r#"
[host]
name = "h1"
[[trunk]]
name = "rack"
device = "eth1"
link = { rate_mbps = 1000 }
[[trunk]]
name = "desk"
device = "eth2"
"#;

fn local(text: &str) -> LocalConfig {
    match HostFile::read(text).unwrap() {
        HostFile::Local(local) => *local,
        HostFile::Whole => panic!("{text}"),
    }
}

fn shared(vlans: &[(&str, u16, &str, bool)]) -> FabricConfig {
    let mut shared = FabricConfig::new("prod").unwrap();
    let vnet = |(name, vni): (&str, u32)| Operation::CreateVnet {
        name: name.to_owned(),
        vnet: VnetSettings::new(vni),
    };
    let mut change: Vec<Operation> = [("blue", 100), ("red", 200)].into_iter().map(vnet).collect();
    change.extend(vlans.iter().map(|(trunk, number, vnet, native)| Operation::SetVlan {
        trunk: (*trunk).to_owned(),
        number: *number,
        vlan: Some(Vlan { vnet: (*vnet).to_owned(), native: *native }),
    }));
    shared.apply(&change).unwrap();
    shared
}

#[test]
fn vlans_of_trunks_are_ports() {
    let shared = shared(&[
        ("rack", 10, "blue", false),
        ("rack", 20, "red", true),
        ("desk", 10, "red", false),
        ("elsewhere", 30, "blue", false),
    ]);
    let TrunkPorts { ports, left_out } = ports(&local(FILE), &shared);
    assert!(left_out.is_empty(), "{left_out:?}");
    let of = |port: &Port| {
        (port.name.clone(), port.device.clone(), port.vlan.unwrap(), port.vnet.clone(), port.native)
    };
    let is = |name: &str, device: &str, vlan, vnet: &str, native| {
        (name.to_owned(), device.to_owned(), vlan, vnet.to_owned(), native)
    };
    assert_eq!(
        ports.iter().map(of).collect::<Vec<_>>(),
        [
            is("rack.10", "eth1", 10, "blue", false),
            is("rack.20", "eth1", 20, "red", true),
            is("desk.10", "eth2", 10, "red", false),
        ]
    );
    assert_eq!(ports[0].link.as_ref().unwrap().rate_mbps, Some(1_000));
    assert!(ports.iter().all(|port| port.kind == PortKind::L2));
}

#[test]
fn vlan_beside_port_of_file_is_left_out() {
    let shared = shared(&[("rack", 10, "blue", true), ("desk", 10, "red", false)]);
    let port = |more: &str| format!("{FILE}[[port]]\nkind = \"l2\"\n{more}");
    for (more, expected) in [
        ("name = \"a\"\nvnet = \"red\"\ndevice = \"eth1\"\nvlan = 10\n", "that VLAN of `eth1`"),
        ("name = \"a\"\nvnet = \"blue\"\ndevice = \"eth1\"\nvlan = 11\n", "network `blue`"),
        ("name = \"a\"\nvnet = \"red\"\ndevice = \"eth1\"\n", "all frames of `eth1`"),
        (
            "name = \"a\"\nvnet = \"red\"\ndevice = \"eth1\"\nvlan = 12\nnative = true\n",
            "the untagged frames",
        ),
        ("name = \"rack.10\"\nvnet = \"red\"\ndevice = \"eth9\"\n", "would have the name"),
    ] {
        let all = ports(&local(&port(more)), &shared);
        let [why] = &all.left_out[..] else { panic!("{more}: {all:?}") };
        assert!(why.contains("VLAN 10 of trunk `rack`") && why.contains(expected), "{why}");
        assert_eq!(all.ports.len(), 1, "the other trunk has its own: {all:?}");
    }
    let beside = "name = \"a\"\nvnet = \"red\"\ndevice = \"eth1\"\nvlan = 12\n";
    assert!(ports(&local(&port(beside)), &shared).left_out.is_empty());
}

#[test]
fn trunk_that_is_there_twice_is_refused() {
    let more = |name: &str, device: &str| {
        format!("{FILE}[[trunk]]\nname = \"{name}\"\ndevice = \"{device}\"\n")
    };
    for (text, expected) in [
        (more("rack", "eth3"), "have the name `rack`"),
        (more("third", "eth1"), "have the device `eth1`"),
        (format!("{FILE}[underlay]\ndevice = \"eth1\"\n"), "the device of the underlay"),
    ] {
        let why = HostFile::read(&text).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}
