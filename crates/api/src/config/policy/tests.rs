use super::*;

const HOST: &str = r#"
[host]
name = "h1"
[fabric]
name = "prod"
id = 1
certificates = "tls"
[[vnet]]
name = "blue"
vni = 100
service_mbps = 500
priority = 3
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "t0"
mac = "02:00:00:00:00:01"
allow_ip = ["10.0.0.9"]
service_mbps = 200
[[port]]
name = "learns"
kind = "tap"
vnet = "blue"
device = "t1"
[[port]]
name = "link"
kind = "l2"
vnet = "blue"
device = "eth1"
[vport_policy.blue.web]
service_mbps = 50
priority = 0
allow_ip = []
[vport_policy.blue.learns]
allow_ip = ["10.0.0.0/24"]
[vport_policy.blue.link]
service_mbps = 50
[vport_policy.red.web]
service_mbps = 1
"#;

fn completed(name: &str) -> Port {
    let config: HostConfig = toml::from_str(HOST).unwrap();
    let port = config.ports.iter().find(|port| port.name == name).unwrap();
    config.complete(port)
}

#[test]
fn policy_stands_above_port_and_network() {
    let web = completed("web");
    assert_eq!((web.service_mbps, web.priority), (Some(50), 0));
    assert!(web.allowed.is_empty(), "an empty list is one");
    let learns = completed("learns");
    assert_eq!((learns.service_mbps, learns.priority), (Some(500), 3));
    assert!(learns.allowed.is_empty(), "a port that learns has no list");
    assert_eq!(completed("link").service_mbps, Some(500), "a wire has its own rate");
}

#[test]
fn values_out_of_bounds_are_named() {
    let check = |text: &str| toml::from_str::<PortPolicy>(text).unwrap().check("blue", "web");
    for (text, expected) in [
        ("service_mbps = 0", "blue/web, 0 Mbit/s"),
        ("service_mbps = 1000001", "1 to 1000000"),
        ("priority = 8", "blue/web, 8, is above 7"),
    ] {
        let error = check(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let list: Vec<String> = (1..=17).map(|last| format!("\"10.0.0.{last}\"")).collect();
    let error = check(&format!("allow_ip = [{}]", list.join(", "))).unwrap_err();
    assert!(error.contains("17 entries"), "{error}");
    assert_eq!(check("service_mbps = 1000000\npriority = 7\nallow_ip = []"), Ok(()));
    for name in ["", "a b", "a\n"] {
        assert!(PortPolicy::default().check("blue", name).is_err(), "{name:?}");
    }
}
