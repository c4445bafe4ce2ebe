//! Tests of a member's configuration.

use std::path::Path;

use sluice_api::config::{Policy, UnderlayKind};
use sluice_api::fabric_config::{Member, Operation, Role, VnetSettings};
use sluice_base::Mac;

use super::*;
use crate::config::{DeviceFacts, Devices, plan};

struct Eth0;

impl Devices for Eth0 {
    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        let mac = Mac([2, 0, 0, 0, 9, 1]);
        (device == "eth0").then_some(DeviceFacts { mac, mtu: 1500 })
    }
}

fn fabric() -> FabricConfig {
    let member = |id: u8| Member {
        id: id.into(),
        seat: 7,
        vtep: [10, 0, 0, id].into(),
        address: None,
        role: Role::Auto,
    };
    let mut shared = FabricConfig::new("prod").unwrap();
    let change = [
        Operation::AddMember { name: "h1".to_owned(), member: member(1) },
        Operation::AddMember { name: "h2".to_owned(), member: member(2) },
        Operation::CreateVnet { name: "blue".to_owned(), vnet: VnetSettings::new(100) },
        Operation::Set { key: "moves_max".to_owned(), value: Some(9.into()) },
        Operation::Set { key: "policy".to_owned(), value: Some("LZ".into()) },
        Operation::Set { key: "class.5.strict".to_owned(), value: Some(true.into()) },
    ];
    shared.apply(&change).unwrap();
    shared
}

fn local(text: &str) -> LocalConfig {
    match HostFile::read(text).unwrap() {
        HostFile::Local(local) => *local,
        HostFile::Whole => panic!("{text}"),
    }
}

#[test]
fn composed_configuration_passes_every_check() {
    let mut local = local_default("h1");
    local.underlay = Some(LocalUnderlay::new("eth0"));
    let config = compose(&local, None, &fabric(), ("h1", Path::new("/state"))).unwrap();
    let text = toml::to_string(&config).unwrap();
    let plan = plan("composed", &text, &Eth0).unwrap();
    let fabric = plan.fabric.unwrap();
    assert_eq!(fabric.certificates, Path::new("/state/tls"));
    assert_eq!(fabric.moves.moves, 9);
    assert_eq!(fabric.hosts[0].name, "h2");
    assert_eq!(plan.config.host.policy, Policy::LZ);
    assert!(plan.config.classes[0].strict && plan.config.classes[0].lossless);
    assert_eq!(plan.config, config, "text loses nothing");
}

#[test]
fn http_address_of_file_is_members_own() {
    let text = |at| format!("[host]\nname = \"h1\"\n[api]\nlisten = \"{at}\"\n");
    let underlay = LocalUnderlay::new("eth0");
    let local = local(&text("127.0.0.1:9342"));
    let config = compose(&local, Some(&underlay), &fabric(), ("h1", Path::new("/state"))).unwrap();
    assert_eq!(config.api.listen, Some("127.0.0.1:9342".parse().unwrap()));
    // The file is checked before there is a plan: a host listens while it waits for its fabric.
    let refused = HostFile::read(&text("192.0.2.1:9342")).unwrap_err();
    assert!(refused.contains("api.listen: 192.0.2.1:9342 is no loopback address"), "{refused}");
}

#[test]
fn underlay_of_file_goes_before_that_of_command() {
    let (shared, by_command) = (fabric(), LocalUnderlay::new("eth0"));
    let at = ("h2", Path::new("/state"));
    let bare = local("[host]\nname = \"h2\"\n");
    let composed = |local: &LocalConfig, underlay| compose(local, underlay, &shared, at);
    let config = composed(&bare, Some(&by_command)).unwrap().underlay.unwrap();
    assert_eq!((config.device.as_str(), config.kind), ("eth0", UnderlayKind::L2));
    assert_eq!(config.address.octets(), [10, 0, 0, 2]);
    let file =
        local("[host]\nname = \"h2\"\n[underlay]\nkind = \"udp\"\ndevice = \"eth1\"\nmtu = 1400\n");
    let config = composed(&file, Some(&by_command)).unwrap().underlay.unwrap();
    assert_eq!((config.device.as_str(), config.kind), ("eth1", UnderlayKind::Udp));
    assert!(composed(&bare, None).unwrap_err().contains("`[underlay]`"));
}

#[test]
fn host_that_is_no_member_has_no_configuration() {
    let error = compose(&local_default("h9"), None, &fabric(), ("h9", Path::new("/"))).unwrap_err();
    assert_eq!(error, "fabric `prod` has no member `h9`");
}

#[test]
fn file_with_part_of_fabric_says_everything() {
    for text in [
        include_str!("../../../../../docs/host.toml"),
        "[host]\nname = \"s\"\nrole = \"switch\"\n",
        "[host]\nname = \"h\"\n[[vnet]]\nname = \"blue\"\n",
        "[host]\nname = \"h\"\n[underlay]\nkind = \"l2\"\naddress = \"10.0.0.1\"\n",
        "not = [toml",
    ] {
        assert_eq!(HostFile::read(text), Ok(HostFile::Whole), "{text}");
    }
}

#[test]
fn key_of_fabric_in_member_file_is_refused() {
    let error = HostFile::read("[host]\nname = \"h\"\npolicy = \"LL\"\n").unwrap_err();
    assert!(error.contains("`host.policy`") && error.contains("sluice config set policy="));
    let error = HostFile::read("[host]\nname = \"h\"\ncolour = 1\n").unwrap_err();
    assert!(error.contains("line 3"), "{error}");
}

#[test]
fn documented_file_of_member_is_local_and_valid() {
    let text = include_str!("../../../../../docs/member.toml");
    let config = compose(&local(text), None, &fabric(), ("h1", Path::new("/state"))).unwrap();
    assert_eq!(config.ports[0].vnet, "blue");
    let plan = plan("docs/member.toml", &toml::to_string(&config).unwrap(), &Eth0).unwrap();
    assert_eq!(plan.config.host.name, "h1");
}
