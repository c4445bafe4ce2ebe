use super::*;

fn card() -> Card {
    Card {
        device: "eth0".to_owned(),
        mac: "02:00:00:00:00:07".to_owned(),
        mtu: 1450,
        up: true,
        addresses: Vec::new(),
        routes: Vec::new(),
    }
}

#[test]
fn routes_without_router_take_that_of_their_family() {
    let result = json!({
        "ips": [{"address": "10.0.0.7/24", "gateway": "10.0.0.1"}, {"address": "fd00::7/64"}],
        "routes": [
            {"dst": "0.0.0.0/0"},
            {"dst": "10.9.0.0/16", "gw": "10.0.0.2"},
            {"dst": "fd01::/64"}
        ],
        "dns": {"nameservers": ["10.0.0.53"]}
    });
    let given = Addressing::of_ipam(&result).unwrap();
    let routes: Vec<String> = given.routes.iter().map(ToString::to_string).collect();
    assert_eq!(routes, ["0.0.0.0/0,10.0.0.1", "10.9.0.0/16,10.0.0.2", "fd01::/64"]);
    assert_eq!(given.dns, Some(json!({"nameservers": ["10.0.0.53"]})));
    assert_eq!(Addressing::of_ipam(&json!({"dns": {}})).unwrap(), Addressing::default());
}

#[test]
fn unusable_assignments_are_refused() {
    for result in [
        json!({"ips": [{}]}),
        json!({"ips": [{"address": "10.0.0.0/24"}]}),
        json!({"ips": [{"address": "10.0.0.7/24", "gateway": "x"}]}),
        json!({"routes": [{"dst": "0.0.0.0/0", "priority": 100}]}),
        json!({"routes": [{}]}),
    ] {
        assert_eq!(Addressing::of_ipam(&result).unwrap_err().code(), Code::Config, "{result}");
    }
}

#[test]
fn result_has_the_form_of_its_version() {
    let ips = vec![AssignedIp {
        address: "10.0.0.7/24".parse().unwrap(),
        gateway: Some([10, 0, 0, 1].into()),
    }];
    let routes = vec!["0.0.0.0/0,10.0.0.1".parse().unwrap(), "10.9.0.0/16".parse().unwrap()];
    let given = Addressing { ips, routes, dns: None };
    let result = |version| of_add(version, None, (&card(), "/run/netns/x"), &given);
    assert_eq!(
        result(Version::V1_1),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{
                "name": "eth0", "mac": "02:00:00:00:00:07", "sandbox": "/run/netns/x", "mtu": 1450
            }],
            "ips": [{"address": "10.0.0.7/24", "gateway": "10.0.0.1", "interface": 0}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}, {"dst": "10.9.0.0/16"}]
        })
    );
    assert!(result(Version::V1_0)["interfaces"][0].get("mtu").is_none());
    assert!(result(Version::V1_0)["ips"][0].get("version").is_none());
    assert_eq!(result(Version::V0_4)["ips"][0]["version"], "4");
}

#[test]
fn results_of_plugins_before_come_first() {
    let before = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "lo"}],
        "ips": [{"address": "127.0.0.1/8", "interface": 0}],
        "dns": {"domain": "a"}
    });
    let ips = vec![AssignedIp { address: "10.0.0.7/24".parse().unwrap(), gateway: None }];
    let given = Addressing { ips, ..Addressing::default() };
    let result = of_add(Version::V1_1, Some(&before), (&card(), "/x"), &given);
    assert_eq!(result["interfaces"][0]["name"], "lo");
    assert_eq!(result["interfaces"][1]["name"], "eth0");
    assert_eq!(result["ips"][1]["interface"], 1);
    assert_eq!(result["dns"], json!({"domain": "a"}));
}
