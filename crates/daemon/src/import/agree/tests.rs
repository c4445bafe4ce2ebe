//! Tests of the comparison: tables of files and what is said of them.

use sluice_api::fabric_config::Operation;

use super::*;
use crate::config::member::HostFile;

/// Returns the file of host number `id` of two, after a replacement in its text.
fn file(id: u8, replaced: (&str, &str)) -> Source {
    let other = 3 - id;
    let text = format!(
        r#"
[host]
name = "h{id}"
policy = "ZL"
pace_us = 70
[underlay]
kind = "udp"
device = "eth0"
address = "10.0.0.{id}"
link = {{ rate_mbps = 1000 }}
[fabric]
name = "prod"
id = {id}
certificates = "tls"
moves_max = 9
[[class]]
priority = 5
lossless = false
[[vnet]]
name = "blue"
vni = 100
mtu = 1400
hold = "2s"
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "web0"
mac = "02:00:00:00:00:0{id}"
[[peer]]
name = "h{other}"
id = {other}
vtep = "10.0.0.{other}"
vnets = ["blue"]
[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:0{id}"
ip = "10.1.0.{id}"
port = "web"
"#
    );
    assert!(text.contains(replaced.0), "{}", replaced.0);
    let text = text.replace(replaced.0, replaced.1);
    Source { path: PathBuf::from(format!("f{id}.toml")), text }
}

fn as_it_is(id: u8) -> Source {
    file(id, ("[host]", "[host]"))
}

#[test]
fn agreeing_files_make_settings_networks_and_hosts() {
    let agreed = agree(&[as_it_is(1), as_it_is(2)], None).unwrap();
    assert_eq!(agreed.fabric, "prod");
    let said: Vec<String> = agreed.change.iter().map(ToString::to_string).collect();
    let expected = [
        "class.5.lossless = false",
        "moves_max = 9",
        "policy = \"ZL\"",
        "network blue is made: VNI 100, MTU 1400",
    ];
    assert_eq!(said, expected);
    let Some(Operation::CreateVnet { vnet, .. }) = agreed.change.last() else { panic!() };
    assert!(vnet.hold.is_some(), "the hold contract goes along");
    let names: Vec<(&str, Ipv4Addr)> =
        agreed.hosts.iter().map(|host| (host.name.as_str(), host.vtep)).collect();
    assert_eq!(names, [("h1", [10, 0, 0, 1].into()), ("h2", [10, 0, 0, 2].into())]);
    assert!(agreed.notes.is_empty(), "{:?}", agreed.notes);
}

#[test]
fn short_file_keeps_own_part_alone() {
    let agreed = agree(&[as_it_is(1), as_it_is(2)], None).unwrap();
    let HostFile::Local(local) = HostFile::read(&agreed.hosts[0].local).unwrap() else {
        panic!("{}", agreed.hosts[0].local)
    };
    assert_eq!((local.host.name.as_str(), local.host.pace_us), ("h1", 70));
    let underlay = local.underlay.unwrap();
    assert_eq!((underlay.device.as_str(), underlay.link.rate_mbps), ("eth0", Some(1000)));
    assert_eq!((local.ports.len(), local.vports.len()), (1, 1));
    let foreign: Vec<(&str, Ipv4Addr)> =
        local.foreign.iter().map(|other| (other.name.as_str(), other.vtep)).collect();
    assert_eq!(foreign, [("h2", [10, 0, 0, 2].into())]);
}

#[test]
fn each_disagreement_names_both_files() {
    let table: [((&str, &str), &str); 14] = [
        (("name = \"prod\"", "name = \"test\""), "the name of the fabric is prod"),
        (("name = \"h2\"\npol", "name = \"h1\"\npol"), "are both of host `h1`"),
        (("id = 2\ncert", "id = 1\ncert"), "have the number 1"),
        (("address = \"10.0.0.2\"", "address = \"10.0.0.1\""), "have the VTEP 10.0.0.1"),
        (("vtep = \"10.0.0.1\"", "vtep = \"10.0.0.9\""), "the VTEP of h1 is 10.0.0.9"),
        (("id = 1\nvtep", "id = 7\nvtep"), "the number of h1 is 7"),
        (("name = \"h1\"\nid", "name = \"h9\"\nid"), "the name of the host with VTEP 10.0.0.1"),
        (("vni = 100", "vni = 101"), "`vni` of network `blue` is 100"),
        (("mtu = 1400\n", ""), "`mtu` of network `blue` is 1400"),
        (("hold = \"2s\"", "hold = \"3s\""), "`hold` of network `blue`"),
        (("policy = \"ZL\"", "policy = \"LL\""), "`policy` is \"ZL\""),
        (("moves_max = 9", ""), "`moves_max` is 9"),
        (("lossless = false", "weight = 3"), "`class.5.lossless` is false"),
        (("\"blue\"", "\"red\""), "the name of the network with VNI 100 is blue"),
    ];
    for (replaced, expected) in table {
        let problems = agree(&[as_it_is(1), file(2, replaced)], None).unwrap_err();
        let found = problems.iter().find(|problem| problem.contains(expected));
        let found = found.unwrap_or_else(|| panic!("{replaced:?}: {problems:?}"));
        assert!(found.contains("f1.toml") && found.contains("f2.toml"), "{found}");
    }
}

#[test]
fn files_that_are_no_members_are_refused() {
    let table: [((&str, &str), &str); 4] = [
        (("[host]\n", "[host]\nrole = \"switch\"\n"), "a switch is no member"),
        (("kind = \"udp\"", "kind = \"vhost-user\""), "not vhost-user"),
        (("vni = 100\n", ""), "network `blue` has no `vni`"),
        (("pace_us = 70", "pace = 70"), "pace"),
    ];
    for (replaced, expected) in table {
        let problems = agree(&[as_it_is(1), file(2, replaced)], None).unwrap_err();
        let is_said = |problem: &String| problem.contains(expected) && problem.contains("f2.toml");
        assert!(problems.iter().any(is_said), "{problems:?}");
    }
    let short = Source { path: "short.toml".into(), text: "[host]\nname = \"h3\"\n".to_owned() };
    let problems = agree(&[short], Some("prod")).unwrap_err();
    assert!(problems[0].contains("short.toml") && problems[0].contains("nothing to import"));
}

#[test]
fn peer_without_file_stays_foreign() {
    let agreed = agree(&[as_it_is(1)], None).unwrap();
    assert!(agreed.notes[0].contains("no file of peer `h2`"), "{:?}", agreed.notes);
    assert!(agreed.hosts[0].local.contains("[[foreign]]"), "{}", agreed.hosts[0].local);
}
