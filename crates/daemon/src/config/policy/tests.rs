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
