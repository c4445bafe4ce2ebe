use super::*;
use crate::config::tests::Fake;

const HOST: &str = r#"[host]
name = "h1"
policy = "ZZ"
hold = "2s"
broadcasts_per_second = 7
[[class]]
priority = 1
lossless = false
[[class]]
priority = 5
hold = "forever"
[underlay]
kind = "l2"
device = "eth9"
address = "10.0.0.1"
[fabric]
name = "test"
id = 7
certificates = "tls"
learn_max = 3
[[vnet]]
name = "blue"
vni = 42
[[port]]
name = "bound"
kind = "tap"
vnet = "blue"
device = "t0"
mac = "02:00:00:00:00:01"
service_mbps = 5
priority = 4
trust = false
[[port]]
name = "learns"
kind = "tap"
vnet = "blue"
device = "t1"
hold = "250ms"
"#;

/// The switch does as the file says.
#[test]
fn a_port_says_how_it_treats_its_endpoint() {
    let plan = crate::config::plan("h1.toml", HOST, &Fake).unwrap();
    let fabric = plan.fabric.as_ref().unwrap();
    let policies: Vec<_> = fabric.ports.values().map(|port| &port.policy).collect();
    let [bound, learns] = policies[..] else { panic!("{policies:?}") };
    assert_eq!(bound.lossless, [0, 2, 3, 4, 5, 6, 7]);
    assert_eq!(bound.hold["2s"], [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(bound.hold["forever"], [5]);
    assert_eq!((bound.priority, bound.trust, bound.service_mbps), (4, false, Some(5)));
    assert_eq!((bound.learn_max, learns.learn_max), (None, Some(3)));
    assert_eq!((&*bound.flow_control, bound.broadcasts_per_second), ("ZZ", 7));
    assert_eq!(learns.hold.keys().collect::<Vec<_>>(), ["250ms"], "the port's own comes first");
    for (policy, port) in policies.iter().zip(&plan.switch.ports) {
        let forever = |at: usize| port.hold[at] == sluice_switch::Hold::Forever;
        let said = policy.hold.get("forever").cloned().unwrap_or_default();
        assert!((0..8).all(|at| forever(usize::from(at)) == said.contains(&at)), "{said:?}");
        assert_eq!(port.default_priority.get(), policy.priority);
    }
}

const OF_FABRIC: &str = r#"
[vport_policy.blue.bound]
service_mbps = 9
priority = 6
allow_ip = ["10.0.0.7"]
[vport_policy.blue.learns]
priority = 2
"#;

fn config_of(text: &str) -> HostConfig {
    crate::config::plan("h1.toml", text, &Fake).unwrap_or_else(|report| panic!("{report}")).config
}

#[test]
fn policy_of_fabric_is_shown_and_named() {
    let config = config_of(&format!("{HOST}{OF_FABRIC}"));
    let named = |name: &str| config.ports.iter().find(|port| port.name == name).unwrap();
    let bound = of(&config, named("bound"), 3);
    assert_eq!((bound.service_mbps, bound.priority), (Some(9), 6));
    assert_eq!(bound.of_fabric, ["service_mbps", "priority", "allow_ip"]);
    assert_eq!(bound.allowed, ["10.0.0.7".parse().unwrap()]);
    let learns = of(&config, named("learns"), 3);
    assert_eq!((learns.service_mbps, learns.priority), (None, 2));
    assert_eq!(learns.of_fabric, ["priority"]);
    let said = notes(&config);
    assert_eq!(said.len(), 2, "the host says otherwise: {said:?}");
    let expected = "port bound: `service_mbps` is `9` by the policy of vport blue/bound, and not \
                    `5` as its host says";
    assert!(said.contains(&expected.to_owned()), "{said:?}");
    assert!(said[1].contains("`priority` is `6`") && said[1].contains("not `4`"), "{said:?}");
}

#[test]
fn policy_that_port_cannot_have_is_refused() {
    let now = config_of(HOST);
    let with = |text: &str| config_of(&format!("{HOST}{text}"));
    let learning = with("[vport_policy.blue.learns]\nallow_ip = [\"10.0.0.7\"]\n");
    let why = check(&now, &learning, &[]).unwrap_err();
    assert!(why.contains("blue/learns") && why.contains("leave `allow_ip` out"), "{why}");
    assert_eq!(check(&learning, &learning, &[]), Ok(()), "it is in force, and blocks nothing else");
    assert_eq!(notes(&learning).len(), 1, "{:?}", notes(&learning));
    assert_eq!(check(&now, &with(OF_FABRIC), &[]), Ok(()));
    let elsewhere = with("[vport_policy.blue.nobody]\nallow_ip = [\"10.0.0.7\"]\n");
    assert_eq!(check(&now, &elsewhere, &[]), Ok(()), "its port may come, or is at another host");

    let link = "[[port]]\nname = \"desk\"\nkind = \"l2\"\nvnet = \"blue\"\ndevice = \"eth1\"\n\
                link = { rate_mbps = 100 }\n";
    let rate =
        |mbps: u64| with(&format!("{link}[vport_policy.blue.desk]\nservice_mbps = {mbps}\n"));
    let why = check(&now, &rate(101), &[]).unwrap_err();
    assert!(why.contains("blue/desk") && why.contains("a link of 100 Mbit/s"), "{why}");
    assert_eq!(check(&now, &rate(100), &[]), Ok(()));
}

#[test]
fn added_port_that_learns_takes_no_list() {
    let config = config_of(&format!("{HOST}[vport_policy.blue.vm]\nallow_ip = [\"10.0.0.7\"]\n"));
    let new: NewPort = serde_json::from_value(serde_json::json!({
        "place": {"tap": "vm"}, "vnet": "blue", "name": "vm", "device": "vm",
    }))
    .unwrap();
    let why = check_added(&config, &new).unwrap_err();
    assert!(why.contains("blue/vm"), "{why}");
    assert!(check(&config_of(HOST), &config, std::slice::from_ref(&new)).is_err());
    let bound = NewPort { mac: Some("02:00:00:00:00:07".to_owned()), ..new };
    assert_eq!(check_added(&config, &bound), Ok(()));
}
