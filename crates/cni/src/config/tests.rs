use serde_json::json;

use super::*;

fn parse(more: Value) -> NetConfig {
    let mut all = json!({"cniVersion": "1.0.0", "name": "pods", "vnet": "blue"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut version = Version::NEWEST;
    let config = NetConfig::parse(all.to_string().as_bytes(), &mut version).unwrap();
    assert_eq!(version, Version::V1_0);
    config
}

#[test]
fn host_is_selected_by_name_or_socket() {
    assert_eq!(parse(json!({})).host, HostSelector::TheOnlyOne);
    assert_eq!(parse(json!({"host": "h1"})).host, HostSelector::Host("h1".to_owned()));
    assert_eq!(parse(json!({"socket": "/s"})).host, HostSelector::Socket("/s".into()));
}

#[test]
fn port_keys_are_read() {
    let plain = parse(json!({"mtu": 0, "isGateway": true, "capabilities": {"mac": true}}));
    let none = PortConfig { vnet: "blue".to_owned(), kind: Kind::Tap, mtu: None, mac: None };
    assert_eq!(plain.port().unwrap(), none);
    let mac = "02:00:00:00:00:01";
    let full = parse(json!({"kind": "veth", "mtu": 1400, "runtimeConfig": {"mac": mac}}));
    let port = full.port().unwrap();
    assert_eq!((port.kind, port.mtu, port.mac.as_deref()), (Kind::Veth, Some(1400), Some(mac)));
}

#[test]
fn runtimes_addresses_replace_those_of_file() {
    let file = json!({"addresses": ["10.0.0.7/24"], "gateway": "10.0.0.1",
        "routes": [{"dst": "10.9.0.0/16"}]});
    let given = parse(file.clone()).addressing().unwrap();
    let texts =
        |given: &Addressing| given.ips.iter().map(|ip| ip.address.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(&given), ["10.0.0.7/24"]);
    assert_eq!(given.ips[0].gateway, Some([10, 0, 0, 1].into()));
    let routes: Vec<String> = given.routes.iter().map(ToString::to_string).collect();
    assert_eq!(routes, ["0.0.0.0/0,10.0.0.1", "10.9.0.0/16"]);
    let mut both = file;
    both["runtimeConfig"] = json!({"ips": ["10.0.1.8/24", "fd00::8/64"]});
    let given = parse(both).addressing().unwrap();
    assert_eq!(texts(&given), ["10.0.1.8/24", "fd00::8/64"]);
    assert_eq!(given.ips[0].gateway, None);
    assert_eq!(parse(json!({})).addressing().unwrap(), Addressing::default());
}

#[test]
fn wrong_addresses_are_named() {
    for (more, words) in [
        (json!({"addresses": ["10.0.0.7"]}), "`addresses`: `10.0.0.7` has no prefix"),
        (json!({"addresses": [7]}), "`addresses`: a value is no text"),
        (json!({"addresses": "10.0.0.7/24"}), "is no list"),
        (json!({"runtimeConfig": {"ips": ["10.0.0.0/24"]}}), "`ips`"),
        (json!({"gateway": "x"}), "`gateway`: `x` is no IP address"),
        (json!({"routes": [{"gw": "10.0.0.1"}]}), "has no `dst`"),
        (json!({"routes": [{"dst": "10.9.0.1/16"}]}), "use 10.9.0.0/16"),
        (json!({"routes": [{"dst": "10.9.0.0/16", "table": 7}]}), "`table` of 10.9.0.0/16"),
    ] {
        let error = parse(more.clone()).addressing().unwrap_err();
        assert_eq!(error.code(), Code::Config, "{more}");
        let text = error.to_json(Version::V1_0).to_string();
        assert!(text.contains(words), "{more}: {text}");
    }
}

#[test]
fn ipam_beside_addresses_is_refused() {
    let text = json!({"cniVersion": "1.1.0", "name": "pods", "vnet": "blue",
        "ipam": {"type": "host-local"}, "addresses": ["10.0.0.7/24"]});
    let error = NetConfig::parse(text.to_string().as_bytes(), &mut Version::NEWEST.clone());
    assert_eq!(error.unwrap_err().code(), Code::Config);
    assert_eq!(parse(json!({"ipam": {}})).ipam, None);
    assert_eq!(parse(json!({"ipam": {"type": "static"}})).ipam.as_deref(), Some("static"));
}

#[test]
fn dns_that_is_empty_is_none() {
    assert_eq!(parse(json!({"dns": {}})).dns(), None);
    let dns = json!({"nameservers": ["10.0.0.53"]});
    assert_eq!(parse(json!({"dns": dns})).dns(), Some(&dns));
}
