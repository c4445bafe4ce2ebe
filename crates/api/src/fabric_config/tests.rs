//! Tests of the shared configuration.

use serde_json::{Value, json};

use super::*;
use crate::placement::{Policy, PolicyVersion, VERSION_MAX};

fn member(id: u16) -> Member {
    let last = u8::try_from(id).unwrap();
    Member { id, seat: 7, vtep: Ipv4Addr::new(10, 0, 0, last), address: None, role: Role::Auto }
}

fn add(name: &str, id: u16) -> Operation {
    Operation::AddMember { name: name.to_owned(), member: member(id) }
}

fn vnet(name: &str, vni: u32) -> Operation {
    Operation::CreateVnet { name: name.to_owned(), vnet: VnetSettings::new(vni) }
}

fn by(host: &str) -> TokenUse {
    TokenUse { host: host.to_owned(), key: "ab".to_owned() }
}

fn set(key: &str, value: Value) -> Operation {
    Operation::Set { key: key.to_owned(), value: Some(value).filter(|value| !value.is_null()) }
}

/// A fabric with two members and two networks.
fn fabric() -> FabricConfig {
    let mut config = FabricConfig::new("prod").unwrap();
    config.apply(&[add("h1", 1), add("h2", 2), vnet("blue", 100), vnet("red", 200)]).unwrap();
    config
}

#[test]
fn inapplicable_change_names_reason_and_remedy() {
    let token =
        |used_by: Option<&str>| Token { hash: String::new(), expires_ms: 0, used: used_by.map(by) };
    let mut config = fabric();
    config.apply(&[Operation::AddToken { id: "t1".to_owned(), token: token(Some("h9")) }]).unwrap();
    let vnet_with = |name: &str, change: fn(&mut VnetSettings)| {
        let mut vnet = VnetSettings::new(300);
        change(&mut vnet);
        Operation::CreateVnet { name: name.to_owned(), vnet }
    };
    let name = || "h1".to_owned();
    let table = [
        (vnet("blue", 300), "there is a network `blue` already"),
        (vnet("green", 100), "network `blue` has VNI 100"),
        (vnet("green", 1 << 24), "does not fit into 24 bits"),
        (vnet("../x", 300), "cannot be the name of a network"),
        (vnet("", 300), "cannot be the name of a network"),
        (vnet_with("green", |vnet| vnet.mtu = Some(500)), "below 576"),
        (vnet_with("green", |vnet| vnet.priority = Some(8)), "above 7"),
        (vnet_with("green", |vnet| vnet.service_mbps = Some(0)), "would serve no port"),
        (Operation::DeleteVnet { name: "green".to_owned() }, "there is blue, fine, red"),
        (add("h1", 3), "already; give the host another name"),
        (add("h3", 2), "member `h2` has the number 2"),
        (add("h3", 0), "is not within 1 to 32767"),
        (add(&"x".repeat(64), 3), "use 1 to 63 letters"),
        (Operation::RemoveMember { name: "h3".to_owned() }, "there is h1, h2"),
        (
            Operation::SetMember { name: name(), key: "id".to_owned(), value: Some(json!(9)) },
            "does not change",
        ),
        (
            Operation::SetMember {
                name: name(),
                key: "vtep".to_owned(),
                value: Some(json!("10.0.0.2")),
            },
            "member `h2` has the VTEP 10.0.0.2",
        ),
        (set("polcy", json!("ZZ")), "unknown field `polcy`"),
        (set("policy", json!("QQ")), "`policy` cannot be \"QQ\""),
        (set("class.9.weight", json!(1)), "there is no priority 9"),
        (set("class.5.weight", json!(0)), "would never serve priority 5"),
        (set("class.5.colour", json!(1)), "unknown field `colour`"),
        (set("hold.x", json!(1)), "cannot be 1"),
        (set("hold", json!("soon")), "write a time such as"),
        (Operation::SpendToken { id: "t2".to_owned(), by: by("h1") }, "there is no token `t2`"),
        (Operation::SpendToken { id: "t1".to_owned(), by: by("h1") }, "`h9` has joined with"),
        (Operation::SetAuthorities { authorities: vec![] }, "without an authority"),
    ];
    for (operation, expected) in table {
        let before = config.clone();
        // The first operation is good: nothing of a change may stay.
        let error = config.apply(&[vnet("fine", 999), operation.clone()]).unwrap_err();
        assert!(error.to_string().contains(expected), "{operation:?}: {error}");
        assert_eq!(config, before, "{operation:?}");
    }
}

#[test]
fn inverse_of_change_restores_networks_and_settings() {
    let mut config = fabric();
    let before = config.clone();
    let change = [
        vnet("green", 300),
        Operation::DeleteVnet { name: "red".to_owned() },
        // Free again within the same change.
        vnet("red2", 200),
        Operation::SetVnet {
            name: "blue".to_owned(),
            key: "mtu".to_owned(),
            value: Some(json!(1400)),
        },
        set("policy", json!("LL")),
        set("class.5.strict", json!(true)),
        set("policy", json!("LZ")),
    ];
    let inverse = config.apply(&change).unwrap();
    assert_eq!(config.settings.entries().len(), 2);
    config.apply(&inverse).unwrap();
    assert_eq!(config, before);
}

#[test]
fn members_and_tokens_survive_inverse() {
    let mut config = fabric();
    let token = Token { hash: "ab".to_owned(), expires_ms: 5, used: None };
    let change = [
        add("h3", 3),
        Operation::AddToken { id: "t".to_owned(), token },
        Operation::SpendToken { id: "t".to_owned(), by: by("h3") },
        Operation::RemoveMember { name: "h2".to_owned() },
    ];
    assert_eq!(config.apply(&change).unwrap(), []);
    assert_eq!(config.members.keys().collect::<Vec<_>>(), ["h1", "h3"]);
    assert_eq!(config.free_id(), Some(2));
}

#[test]
fn change_survives_bytes_and_unknown_operation_is_named() {
    let change = vec![add("h3", 3), vnet("green", 300), set("hold", json!("2s"))];
    assert_eq!(read_change(&write_change(&change)).unwrap(), change);
    let newer = br#"[{"set":{"key":"hold"}},{"paint_vnet":{"name":"blue"}}]"#;
    let error = read_change(newer).unwrap_err();
    assert_eq!(error, Unreadable::UnknownOperation("paint_vnet".to_owned()));
    assert!(error.to_string().contains("upgrade this host first"));
    assert!(matches!(read_change(b"[{"), Err(Unreadable::NoChange(_))));
    assert!(matches!(read_change(br#"[{"set":{"key":1}}]"#), Err(Unreadable::NoChange(_))));
    let error = read_change(br#"["paint_all"]"#).unwrap_err();
    assert_eq!(error, Unreadable::UnknownOperation("paint_all".to_owned()));
    let large = vec![b' '; operation::CHANGE_SIZE_MAX + 1];
    assert_eq!(read_change(&large), Err(Unreadable::TooLarge(large.len())));
}

#[test]
fn known_operations_are_all_named() {
    let token = Token { hash: String::new(), expires_ms: 0, used: None };
    let (name, key, id) = ("h1".to_owned(), "k".to_owned(), "t".to_owned());
    let all = [
        add("h1", 1),
        Operation::RemoveMember { name: name.clone() },
        Operation::SetMember { name: name.clone(), key: key.clone(), value: None },
        vnet("blue", 1),
        Operation::DeleteVnet { name: name.clone() },
        Operation::SetVnet { name: name.clone(), key, value: None },
        set("hold", Value::Null),
        set_placement(None),
        Operation::AddToken { id: id.clone(), token },
        Operation::SpendToken { id: id.clone(), by: by("h1") },
        Operation::RemoveToken { id: id.clone() },
        Operation::SetAuthorities { authorities: vec![id.clone()] },
        Operation::Revoke { serial: id, host: name },
    ];
    for operation in all {
        // What a later program adds is no mistake, and is named with its operation.
        let mut value = serde_json::to_value(&operation).unwrap();
        let inner = value.as_object_mut().unwrap().values_mut().next().unwrap();
        inner.as_object_mut().unwrap().insert("extra".to_owned(), json!(1));
        let bytes = serde_json::to_vec(&[value]).unwrap();
        let Err(Unreadable::UnknownOperation(what)) = read_change(&bytes) else {
            panic!("{operation:?}");
        };
        assert!(what.ends_with("(unknown field `extra`)"), "{what}");
        assert!(!operation.keys().is_empty() && !operation.to_string().is_empty());
    }
}

#[test]
fn difference_of_texts_makes_one_of_other() {
    let mut config = fabric();
    config.apply(&[set("class.5.weight", json!(3)), set("moves_max", json!(9))]).unwrap();
    let before = Editable::of(&config);
    let text = before.text();
    assert_eq!(Editable::read(&text).unwrap(), before);
    let wanted = Editable::read(
        "[settings]\nhold = \"forever\"\n[settings.class.5]\nstrict = true\n\
         [vnet.blue]\nvni = 101\nmtu = 1400\n[vnet.green]\nvni = 200\n",
    )
    .unwrap();
    let change = before.difference(&wanted);
    config.apply(&change).unwrap();
    assert_eq!(Editable::of(&config), wanted);
    assert_eq!(wanted.difference(&wanted), []);
}

#[test]
fn wrong_text_is_refused_with_line() {
    let error = Editable::read("[vnet.blue]\nvni = \"x\"\n").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let error = Editable::read("[member.h1]\n").unwrap_err().to_string();
    assert!(error.contains("unknown field `member`"), "{error}");
}

#[test]
fn changes_with_common_name_exclude_each_other() {
    let common = |a: &Operation, b: &Operation| a.keys().iter().any(|key| b.keys().contains(key));
    assert!(common(&vnet("blue", 1), &vnet("blue", 2)));
    assert!(common(&vnet("a", 1), &vnet("b", 1)));
    assert!(!common(&vnet("a", 1), &vnet("b", 2)));
    assert!(common(&set("class.5.weight", json!(1)), &set("class.5.strict", json!(true))));
    assert!(!common(&set("class.5.weight", json!(1)), &set("class.6.weight", json!(1))));
}

#[test]
fn net_change_drops_operations_that_cancel() {
    let config = fabric();
    let set_vni = |name: &str, vni: u32| {
        let (name, key) = (name.to_owned(), "vni".to_owned());
        Operation::SetVnet { name, key, value: Some(json!(vni)) }
    };
    let delete = |name: &str| Operation::DeleteVnet { name: name.to_owned() };
    let moves = |moves: u32| set("moves_max", json!(moves));
    let net = |change: &[Operation]| config.net_change(change).unwrap();
    assert_eq!(net(&[vnet("green", 300), delete("green"), moves(9), moves(7)]), [moves(7)]);
    assert_eq!(net(&[moves(9), set("moves_max", Value::Null)]), []);
    // A network that is made again is the same one.
    assert_eq!(net(&[delete("red"), vnet("red", 201)]), [set_vni("red", 201)]);
    // What cannot be said in one step stays as it is.
    let exchange = [set_vni("red", 300), set_vni("blue", 200), set_vni("red", 100)];
    assert_eq!(net(&exchange), exchange);
    let with_member = [add("h3", 3), moves(9), moves(7)];
    assert_eq!(net(&with_member), with_member);
    assert!(config.net_change(&[delete("green")]).is_err());
}

fn placement(version: u64, text: &str) -> Stamped {
    let stamp = PolicyVersion { version, by: 1, at_ms: 7 };
    Stamped { stamp, policy: toml::from_str(text).unwrap() }
}

fn set_placement(placement: Option<&Stamped>) -> Operation {
    Operation::SetPlacement { placement: placement.cloned() }
}

#[test]
fn inverse_restores_placement_policy_and_stamp() {
    let mut config = fabric();
    let (first, second) = (placement(1, "mode = \"rss\""), placement(2, ""));
    let inverse = config.apply(&[set_placement(Some(&first))]).unwrap();
    assert_eq!(inverse, [set_placement(None)]);
    let before = config.clone();
    let inverse = config.apply(&[set_placement(Some(&second)), set("moves_max", json!(9))]);
    assert_eq!(config.placement, Some(second.clone()));
    // The net change keeps the stamp, which the text does not have.
    let net = config.net_change(&inverse.unwrap()).unwrap();
    assert_eq!(net, [set("moves_max", Value::Null), set_placement(Some(&first))]);
    config.apply(&net).unwrap();
    assert_eq!(config, before);
    assert_eq!(config.net_change(&[set_placement(Some(&second)), net[1].clone()]), Ok(vec![]));
    let (a, b) = (set_placement(None), set_placement(Some(&second)));
    assert_eq!(a.keys(), b.keys(), "two changes of it exclude each other");
    assert!(b.to_string().contains("each host's own configuration"), "{b}");
    assert!(set_placement(Some(&first)).to_string().contains("{\"mode\":\"rss\"}"));
}

#[test]
fn placement_policy_out_of_bounds_is_refused() {
    let config = fabric();
    let high: Vec<String> = (0..33).map(|vni| format!("\"vni={vni}\"")).collect();
    for (wrong, expected) in [
        (placement(1, "excluded_cpus = [4096]"), "4095 is the highest"),
        (placement(1, &format!("high = [{}]", high.join(", "))), "32 are the most"),
        (placement(VERSION_MAX + 1, ""), "a placement policy has a version up to"),
    ] {
        let error = config.clone().apply(&[set_placement(Some(&wrong))]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let bytes = br#"[{"set_placement":{"placement":{"stamp":{},"policy":{}}}}]"#;
    assert!(matches!(read_change(bytes), Err(Unreadable::NoChange(_))));
}

#[test]
fn text_with_placement_policy_makes_unstamped_operation() {
    let mut config = fabric();
    let text = "[placement]\nmode = \"adaptive\"\nexcluded_cpus = [0]\nhigh = [\"vni=7\"]\n\
                [placement.hosts.h1]\nexcluded_cpus = []\n";
    let wanted =
        Editable { placement: Editable::read(text).unwrap().placement, ..Editable::of(&config) };
    let change = Editable::of(&config).difference(&wanted);
    let [Operation::SetPlacement { placement: Some(stamped) }] = &change[..] else {
        panic!("{change:?}");
    };
    assert_eq!(stamped.stamp, PolicyVersion::default());
    config.apply(&change).unwrap();
    assert_eq!(Editable::of(&config), wanted);
    assert_eq!(Editable::read(&wanted.text()).unwrap(), wanted);
    // An empty table is a policy; without one, the configuration has none.
    let cleared = Editable { placement: Some(Policy::default()), ..wanted.clone() };
    assert_eq!(Editable::read(&cleared.text()).unwrap(), cleared);
    assert_eq!(wanted.difference(&cleared).len(), 1);
    let none = Editable { placement: None, ..wanted.clone() };
    assert_eq!(wanted.difference(&none), [set_placement(None)]);
    let error = Editable::read("[placement]\nmode = \"psychic\"\n").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
}

fn delete_vnet(name: &str) -> Operation {
    Operation::DeleteVnet { name: name.to_owned() }
}

fn set_vport(vport: &str, key: &str, value: Value) -> Operation {
    let (vnet, port) = vport.split_once('/').unwrap();
    let (vnet, port, key) = (vnet.to_owned(), port.to_owned(), key.to_owned());
    Operation::SetVport { vnet, port, key, value: Some(value).filter(|value| !value.is_null()) }
}

#[test]
fn inverse_restores_policy_of_vport() {
    let mut config = fabric();
    let none = config.clone();
    let first = [
        set_vport("blue/web", "service_mbps", json!(50)),
        set_vport("blue/web", "allow_ip", json!([])),
    ];
    let to_none = config.apply(&first).unwrap();
    let before = config.clone();
    let inverse = config
        .apply(&[
            set_vport("blue/web", "service_mbps", json!(70)),
            set_vport("blue/web", "allow_ip", json!(["10.0.0.7"])),
            set_vport("blue/db", "priority", json!(5)),
        ])
        .unwrap();
    assert_eq!(config.vports["blue"]["web"].service_mbps, Some(70));
    config.apply(&config.net_change(&inverse).unwrap()).unwrap();
    assert_eq!(config, before);
    config.apply(&to_none).unwrap();
    assert_eq!(config, none, "a policy that says nothing is none");
}

#[test]
fn wrong_policy_of_vport_is_refused() {
    let mut config = fabric();
    for (wrong, expected) in [
        (set_vport("pink/web", "priority", json!(1)), "there is no network `pink`"),
        (set_vport("blue/web", "priority", json!(8)), "blue/web, 8, is above 7"),
        (set_vport("blue/web", "service_mbps", json!(0)), "not within 1 to"),
        (set_vport("blue/web", "service_mbps", json!(2_000_000)), "not within 1 to"),
        (set_vport("blue/a b", "priority", json!(1)), "cannot be the name of a port"),
        (set_vport("blue/web", "rate", json!(1)), "rate"),
        (set_vport("blue/web", "allow_ip", json!(["10.0.0.1/24"])), "10.0.0.0/24"),
    ] {
        let error = config.clone().apply(&[wrong]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    config.apply(&[set_vport("blue/web", "priority", json!(1))]).unwrap();
    let error = config.clone().apply(&[delete_vnet("blue")]).unwrap_err();
    assert!(
        error.to_string().contains("vports with a policy: web; take these out first"),
        "{error}"
    );
    config.apply(&[set_vport("blue/web", "priority", Value::Null), delete_vnet("blue")]).unwrap();
    let (web, db) = ("blue/web", "blue/db");
    let keys = |vport| set_vport(vport, "priority", json!(1)).keys();
    assert_eq!((keys(web), keys(web) == keys(db)), (vec!["vport blue/web".to_owned()], false));
}

#[test]
fn text_with_policies_of_vports_makes_operations() {
    let mut config = fabric();
    let text = "[vnet.blue]\nvni = 100\n[vport.blue.web]\nservice_mbps = 50\npriority = 5\n\
                allow_ip = [\"10.0.0.7\"]\n[vport.blue.\"a.b\"]\npriority = 2\n";
    let wanted = Editable::read(text).unwrap();
    config.apply(&Editable::of(&config).difference(&wanted)).unwrap();
    assert_eq!(Editable::of(&config), wanted);
    assert_eq!(Editable::read(&wanted.text()).unwrap(), wanted);
    let other = "[vnet.red]\nvni = 100\n[vport.red.web]\npriority = 5\n";
    let other = Editable::read(other).unwrap();
    let change = wanted.difference(&other);
    config.apply(&change).unwrap_or_else(|error| panic!("{error}: {change:?}"));
    assert_eq!(Editable::of(&config), other, "policies go before their network, and come after it");
    let error = Editable::read("[vport.blue.web]\nrate = 5\n").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let shown = set_vport("blue/web", "service_mbps", json!(50)).to_string();
    assert_eq!(shown, "vport blue/web: service_mbps = 50");
}

fn set_vlan(trunk: &str, number: u16, vnet: Option<(&str, bool)>) -> Operation {
    let vlan = vnet.map(|(vnet, native)| Vlan { vnet: vnet.to_owned(), native });
    Operation::SetVlan { trunk: trunk.to_owned(), number, vlan }
}

#[test]
fn inverse_restores_vlans_of_trunks() {
    let mut config = fabric();
    let none = config.clone();
    let change =
        [set_vlan("rack", 10, Some(("blue", false))), set_vlan("rack", 20, Some(("red", true)))];
    let to_none = config.apply(&change).unwrap();
    let before = config.clone();
    // Two networks change places: each VLAN is freed before.
    let swap = [
        set_vlan("rack", 10, None),
        set_vlan("rack", 20, None),
        set_vlan("rack", 10, Some(("red", true))),
        set_vlan("rack", 20, Some(("blue", false))),
    ];
    let inverse = config.apply(&swap).unwrap();
    assert_eq!(config.vlans["rack"][&20].vnet, "blue");
    config.apply(&config.net_change(&inverse).unwrap()).unwrap();
    assert_eq!(config, before);
    config.apply(&to_none).unwrap();
    assert_eq!(config, none, "a trunk without a VLAN is none");
}

#[test]
fn clash_of_vlans_is_refused() {
    let mut config = fabric();
    config
        .apply(&[
            set_vlan("rack", 10, Some(("blue", true))),
            set_vlan("desk", 10, Some(("red", false))),
        ])
        .unwrap();
    for (wrong, expected) in [
        (set_vlan("rack", 10, Some(("red", false))), "VLAN 10 of trunk `rack` is network `blue`"),
        (set_vlan("rack", 11, Some(("blue", false))), "is VLAN 10 of trunk `rack` already"),
        (set_vlan("desk", 11, Some(("red", false))), "is VLAN 10 of trunk `desk` already"),
        (set_vlan("rack", 20, Some(("red", true))), "VLAN 10 of trunk `rack` has its untagged"),
        (set_vlan("rack", 20, Some(("pink", false))), "there is no network `pink`"),
        (set_vlan("rack", 0, Some(("red", false))), "VLAN 0 is not within 1 to 4094"),
        (set_vlan("rack", 4_095, Some(("red", false))), "VLAN 4095 is not within"),
        (set_vlan("a b", 20, Some(("red", false))), "cannot be the name of a trunk"),
        (set_vlan("rack", 20, None), "VLAN 20 of trunk `rack` is no network"),
        (delete_vnet("blue"), "network `blue` is VLAN 10 of trunk `rack`; take that out first"),
    ] {
        let before = config.clone();
        let error = config.apply(std::slice::from_ref(&wrong)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(config, before, "{wrong:?}");
    }
    // The same network at another trunk, and the same VLAN with its untagged frames or without.
    config.apply(&[set_vlan("desk", 20, Some(("blue", false)))]).unwrap();
    config.apply(&[set_vlan("rack", 10, Some(("blue", false)))]).unwrap();
    let (rack, desk) = (set_vlan("rack", 1, None), set_vlan("desk", 1, None));
    assert_eq!(
        rack.keys(),
        set_vlan("rack", 9, None).keys(),
        "those of a trunk exclude each other"
    );
    assert_ne!(rack.keys(), desk.keys());
}

#[test]
fn text_with_vlans_makes_operations() {
    let mut config = fabric();
    let text = "[vnet.blue]\nvni = 100\n[vnet.red]\nvni = 200\n[vlan.rack.10]\nvnet = \"blue\"\n\
                [vlan.rack.20]\nvnet = \"red\"\nnative = true\n";
    let wanted = Editable::read(text).unwrap();
    config.apply(&Editable::of(&config).difference(&wanted)).unwrap();
    assert_eq!(Editable::of(&config), wanted);
    assert_eq!(Editable::read(&wanted.text()).unwrap(), wanted);
    // The networks change places, and another one comes with its VLAN.
    let other = "[vnet.green]\nvni = 100\n[vnet.red]\nvni = 200\n[vlan.rack.20]\nvnet = \"green\"\n\
                 [vlan.rack.10]\nvnet = \"red\"\n";
    let other = Editable::read(other).unwrap();
    config.apply(&wanted.difference(&other)).unwrap();
    assert_eq!(Editable::of(&config), other);
    let shown = set_vlan("rack", 20, Some(("red", true))).to_string();
    assert_eq!(shown, "VLAN 20 of trunk rack is network red, and has its untagged frames");
}

/// A configuration and a change as format 1 has them. A value that is there never changes; a new
/// operation is added.
const FORMAT_1: &str = include_str!("tests/format-1.json");

#[test]
fn format_changes_only_with_its_version() {
    let golden: Value = serde_json::from_str(FORMAT_1).unwrap();
    let mut config: FabricConfig = serde_json::from_value(golden["config"].clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&config).unwrap(),
        golden["config"],
        "raise FORMAT, go on reading the old one, and add a file"
    );
    let change = read_change(golden["change"].to_string().as_bytes()).unwrap();
    let written: Value = serde_json::from_slice(&write_change(&change)).unwrap();
    assert_eq!(written, golden["change"], "an operation that is there keeps its form");
    config.apply(&change).unwrap();
    let mut names: Vec<&str> = golden["change"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| operation.as_object().unwrap().keys().next().unwrap().as_str())
        .collect();
    let mut known = operation::NAMES.to_vec();
    names.sort_unstable();
    known.sort_unstable();
    assert_eq!(names, known, "the file has every operation");
}

#[test]
fn text_names_network_of_placement_policy() {
    let text = |high: &str| {
        format!(
            "[settings]\n\n[vnet.blue]\nvni = 100\n\n[vnet.red]\nvni = 7\n\n[placement]\n\
             high = [{high}]\n"
        )
    };
    let read = |high: &str| Editable::read(&text(high)).map_err(|error| error.to_string());
    let named = read("\"vnet=blue\", \"ip=10.0.0.1,vnet=red\"").unwrap();
    assert_eq!(named, read("\"vni=100\", \"ip=10.0.0.1,vni=7\"").unwrap());
    // What is shown has numbers, and reads the same.
    assert!(!named.text().contains("vnet="), "{}", named.text());
    assert_eq!(Editable::read(&named.text()).unwrap(), named);
    let why = read("\"vnet=green\"").unwrap_err();
    assert!(why.contains("`vnet=green`") && why.contains("add `[vnet.green]`"), "{why}");
    // An error of form keeps its line.
    let why = read("\"vni=blue\"").unwrap_err();
    assert!(why.contains("line 10"), "{why}");
    // A network that the same text makes is known.
    let before = Editable::read("[settings]\n").unwrap();
    let change = before.difference(&named);
    assert!(change.iter().any(|one| matches!(one, Operation::SetPlacement { .. })), "{change:?}");
}

#[test]
fn key_or_value_of_later_program_told_apart() {
    let other = |operation: Operation| {
        let error = fabric().apply(&[operation]).unwrap_err();
        error.of_other_version().map(str::to_owned)
    };
    let vnet = |key: &str, value: Value| Operation::SetVnet {
        name: "blue".to_owned(),
        key: key.to_owned(),
        value: Some(value),
    };
    assert_eq!(other(set("paint", json!("red"))).as_deref(), Some("paint"));
    assert_eq!(other(set("policy", json!("CR"))).as_deref(), Some("policy"));
    assert_eq!(other(set("class.5.colour", json!(1))).as_deref(), Some("class.5.colour"));
    assert_eq!(other(vnet("colour", json!(1))).as_deref(), Some("colour"));
    for wrong in [
        set("learn_max", json!("many")),
        set("class.9.weight", json!(1)),
        vnet("vni", json!("many")),
    ] {
        assert_eq!(other(wrong.clone()), None, "{wrong}");
    }
}
