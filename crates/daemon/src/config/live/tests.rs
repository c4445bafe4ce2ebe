use super::*;
use crate::config::{DeviceFacts, Devices, Fingerprint, plan};

struct Fake;

impl Devices for Fake {
    fn facts(&self, _device: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: sluice_base::Mac([2, 0, 0, 0, 0, 1]), mtu: 1_500 })
    }
}

const BASE: &str = r#"
[host]
name = "h1"
policy = "ZL"
[underlay]
kind = "udp"
device = "eth7"
address = "10.0.0.1"
[[vnet]]
name = "blue"
vni = 42
[[vnet]]
name = "red"
vni = 43
[[peer]]
name = "h2"
vtep = "10.0.0.2"
vnets = ["blue", "red"]
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "t0"
[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:09"
peer = "h2"
"#;

fn config(text: &str) -> HostConfig {
    plan("h1.toml", text, &Fake).unwrap_or_else(|report| panic!("{report}")).config
}

/// Merges the file after some replacements in its text.
fn changed(replace: &[(&str, &str)], added: &[NewPort]) -> Result<Merged, String> {
    let mut text = BASE.to_owned();
    for (from, to) in replace {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    merge(&config(BASE), &config(&text), added)
}

fn keys(merged: &Merged) -> Vec<&str> {
    merged.at_restart.iter().map(|one| one.key.as_str()).collect()
}

#[test]
fn http_address_waits_for_control_to_start() {
    let api = [("[underlay]", "[api]\nlisten = \"127.0.0.1:9342\"\n[underlay]")];
    let merged = changed(&api, &[]).unwrap();
    assert_eq!(keys(&merged), ["api"]);
    assert_eq!(merged.at_restart[0].why, "the control process listens from its start on");
    assert!(merged.changed.is_empty(), "{:?}", merged.changed);
}

#[test]
fn same_file_changes_nothing() {
    let merged = changed(&[], &[]).unwrap();
    assert_eq!((merged.changed.len(), merged.at_restart.len()), (0, 0));
}

#[test]
fn networks_peers_and_endpoints_change_now() {
    let more = "[[vnet]]\nname = \"green\"\nvni = 44\n[[peer]]\nname = \"h3\"\n\
                vtep = \"10.0.0.3\"\nvnets = [\"green\"]\n[[vport]]\nvnet = \"green\"\n\
                mac = \"02:00:00:00:00:0a\"\npeer = \"h3\"\n[[peer]]\nname = \"h2\"";
    let replace = [
        ("[[vnet]]\nname = \"red\"\nvni = 43\n", ""),
        ("vnets = [\"blue\", \"red\"]", "vnets = [\"blue\"]"),
        ("[[peer]]\nname = \"h2\"", more),
    ];
    let merged = changed(&replace, &[]).unwrap();
    assert_eq!(keys(&merged), [""; 0]);
    assert_eq!(
        merged.changed,
        [
            "network `red` is removed",
            "network `green` is added",
            "peer `h2` is changed",
            "peer `h3` is added",
            "endpoints: 2, 1 before",
        ]
    );
}

#[test]
fn other_keys_wait_for_restart_by_name() {
    let replace = [
        ("policy = \"ZL\"", "policy = \"LL\"\npace_us = 77"),
        ("device = \"eth7\"", "device = \"eth8\""),
        ("device = \"t0\"", "device = \"t1\""),
        ("vni = 43", "vni = 43\nmtu = 1300"),
    ];
    let merged = changed(&replace, &[]).unwrap();
    let expected = ["host.pace_us", "host.policy", "port `web`", "underlay.device"];
    assert_eq!(keys(&merged), expected);
    assert_eq!(merged.changed, ["network `red`: mtu"]);
    let config = &merged.config;
    assert_eq!((config.host.pace_us, config.ports[0].device.as_str()), (100, "t0"));
    assert_eq!(config.vnets[1].mtu, Some(1_300), "what can is in force");
}

#[test]
fn network_of_file_port_stays_until_restart() {
    let port = "[[port]]\nname = \"web\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n";
    let vport = "[[vport]]\nvnet = \"blue\"\nmac = \"02:00:00:00:00:09\"\npeer = \"h2\"\n";
    let blue = "[[vnet]]\nname = \"blue\"\nvni = 42\n";
    let replace = [(port, ""), (vport, ""), (blue, ""), ("[\"blue\", \"red\"]", "[\"red\"]")];
    let merged = changed(&replace, &[]).unwrap();
    assert_eq!(keys(&merged), ["port `web`", "vnet `blue`"]);
    assert_eq!(merged.config.vnets.len(), 2);
    assert_ne!(Fingerprint::of(&merged.config), Fingerprint::of(&config(BASE)));
    // Its VNI is not free for another one until then.
    let other = [("name = \"red\"\nvni = 43", "name = \"red\"\nvni = 42")];
    let merged = changed(&[&replace[..], &other].concat(), &[]).unwrap();
    assert!(keys(&merged).contains(&"vnet `red`"), "{merged:?}");
}

#[test]
fn mtu_of_network_with_port_waits() {
    let merged = changed(&[("vni = 42", "vni = 42\nmtu = 1300")], &[]).unwrap();
    assert_eq!(keys(&merged), ["vnet `blue`.mtu"]);
    assert_eq!(merged.config.vnets[0].mtu, None);
}

#[test]
fn network_of_added_port_refuses_the_whole() {
    let text = r#"{"place":{"netns":"db"},"vnet":"red","name":"db"}"#;
    let added: NewPort = serde_json::from_str(text).unwrap();
    let replace = [
        ("[[vnet]]\nname = \"red\"\nvni = 43\n", ""),
        ("vnets = [\"blue\", \"red\"]", "vnets = [\"blue\"]"),
    ];
    let error = changed(&replace, &[added]).unwrap_err();
    assert!(error.contains("network `red`") && error.contains("sluice port del db"), "{error}");
}

#[test]
fn weight_changes_now_and_lossless_does_not() {
    let class = |text: &str| format!("[[class]]\npriority = 3\n{text}\n[[vnet]]\nname = \"blue\"");
    let change = |text: &str| changed(&[("[[vnet]]\nname = \"blue\"", &class(text))], &[]).unwrap();
    let merged = change("weight = 7");
    assert_eq!(
        (keys(&merged).len(), &merged.changed[..]),
        (0, &["class 3: weight 7".to_owned()][..])
    );
    let merged = change("strict = true\nlossless = false");
    assert_eq!(keys(&merged), ["class 3"]);
    assert_eq!(merged.changed, ["class 3: strict"]);
    let merged = merged.config.classes;
    assert_eq!((merged.len(), merged[0].strict, merged[0].lossless), (1, true, true));
}

#[test]
fn learn_max_beyond_table_waits_for_restart() {
    let merged = |from: u32, to: u32| {
        let text = |most| {
            let table = format!(
                "[fabric]\nname = \"f\"\nid = 1\ncertificates = \"tls\"\n\
                 learn_max = {most}\n[[vnet]]"
            );
            // The members of a fabric tell of their own endpoints.
            let base = BASE.split("[[vport]]").next().unwrap();
            base.replacen("[[vnet]]", &table, 1)
                .replace("name = \"h2\"\n", "name = \"h2\"\nid = 2\n")
        };
        merge(&config(&text(from)), &config(&text(to)), &[]).unwrap()
    };
    let learn_max = |merged: &Merged| merged.config.fabric.as_ref().unwrap().learn_max;
    let later = merged(1_024, 65_537);
    assert_eq!((keys(&later), learn_max(&later)), (vec!["fabric.learn_max"], 65_536));
    assert!(later.at_restart[0].why.contains("up to 65536"), "{:?}", later.at_restart);
    assert_eq!(later.changed, ["fabric.learn_max"]);
    let later = merged(100_000, 200_000);
    assert_eq!((keys(&later), learn_max(&later)), (vec!["fabric.learn_max"], 100_000));
    // Within the table that is there.
    for (from, to) in [(1_024, 65_536), (200_000, 100_000), (200_000, 70_000), (65_536, 1)] {
        let now = merged(from, to);
        assert_eq!((keys(&now), learn_max(&now)), (vec![], to));
        assert_eq!(now.changed, ["fabric.learn_max"]);
    }
}

#[test]
fn policies_of_vports_take_effect_now() {
    let with = |text: &str| format!("{BASE}{text}");
    let first = "[vport_policy.blue.web]\nservice_mbps = 50\npriority = 5\n\
                 [vport_policy.blue.later]\npriority = 1\n";
    let merged = merge(&config(BASE), &config(&with(first)), &[]).unwrap();
    assert_eq!(keys(&merged), Vec::<&str>::new());
    assert_eq!(
        merged.changed,
        ["port `web`: service_mbps, by its policy", "port `web`: priority, by its policy"]
    );
    assert_eq!(merged.config, config(&with(first)), "that of a port that may come is kept");
    let now = merged.config;
    let second = "[vport_policy.blue.web]\nservice_mbps = 50\n";
    let merged = merge(&now, &config(&with(second)), &[]).unwrap();
    assert_eq!(merged.changed, ["port `web`: priority, by its policy"]);
    let merged = merge(&now, &config(BASE), &[]).unwrap();
    assert_eq!((merged.changed.len(), merged.config), (2, config(BASE)));
    // Beside something that waits for a restart.
    let other = with(first).replacen("device = \"t0\"", "device = \"t9\"", 1);
    let merged = merge(&config(BASE), &config(&other), &[]).unwrap();
    assert_eq!(keys(&merged), ["port `web`"]);
    assert_eq!(merged.config.vport_policies, config(&other).vport_policies);
    assert_eq!(merged.config.ports, config(BASE).ports);
}
