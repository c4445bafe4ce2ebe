use super::{AllowedIp, Cidr, Kind, NewPort, Place, Route};

#[test]
fn cidr_parsed_with_prefix_invalid_refused_with_reason() {
    for (text, shown) in [
        ("10.0.0.7/24", "10.0.0.7/24"),
        ("10.0.0.7/32", "10.0.0.7/32"),
        ("10.0.0.0/31", "10.0.0.0/31"),
        ("10.0.0.1/31", "10.0.0.1/31"),
        ("10.0.0.255/16", "10.0.0.255/16"),
        ("10.0.1.0/16", "10.0.1.0/16"),
        ("fd00::/127", "fd00::/127"),
        ("fd00::7/64", "fd00::7/64"),
        ("fd00::7/128", "fd00::7/128"),
        ("10.0.0.7/0", "10.0.0.7/0"),
    ] {
        assert_eq!(text.parse::<Cidr>().unwrap().to_string(), shown);
    }
    for (text, part) in [
        ("10.0.0/24", "no address"),
        ("10.0.0.7/", "no address"),
        ("10.0.0.7/-1", "no address"),
        ("10.0.0.7/33", "longer than the address"),
        ("fd00::7/129", "longer than the address"),
        ("0.0.0.0/0", "not the address of one"),
        ("224.0.0.1/4", "not the address of one"),
        ("255.255.255.255/32", "not the address of one"),
        ("127.0.0.1/8", "not the address of one"),
        ("::/64", "not the address of one"),
        ("ff02::1/64", "not the address of one"),
        ("10.0.0.7", "has no prefix; say the length of its network's, as in 10.0.0.7/24"),
        ("fd00::7", "or fd00::7/128 for an address without"),
        ("10.0.0.0/24", "the network itself"),
        ("10.0.0.0/30", "the network itself"),
        ("fd00::/64", "any router of it"),
        ("10.0.0.255/24", "the broadcast address"),
        ("10.0.255.255/16", "the broadcast address"),
        ("", "no address"),
    ] {
        let error = text.parse::<Cidr>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn route_with_or_without_gateway_round_trips() {
    for text in ["10.9.0.0/16", "10.9.0.0/16,10.0.0.1", "0.0.0.0/0,10.0.0.1", "fd01::/64,fd00::1"] {
        assert_eq!(text.parse::<Route>().unwrap().to_string(), text);
    }
    for (text, part) in [
        ("10.9.0.0", "no route"),
        ("10.9.0.0/33", "no route"),
        ("10.9.0.0/16,", "no route"),
        ("10.9.0.0/16,fd00::1", "no route"),
        ("10.9.0.7/16", "use 10.9.0.0/16"),
    ] {
        let error = text.parse::<Route>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn an_address_is_in_its_network_or_not() {
    let net: Cidr = "10.0.0.7/23".parse().unwrap();
    let inside = |text: &str| net.contains(text.parse().unwrap());
    assert!(inside("10.0.1.255") && inside("10.0.0.0"));
    assert!(!inside("10.0.2.0") && !inside("fd00::1"));
    let all: Cidr = "10.0.0.7/0".parse().unwrap();
    assert!(all.contains("192.0.2.1".parse().unwrap()));
}

#[test]
fn new_port_json_omits_unset_fields() {
    let new = NewPort {
        kind: Kind::Tap,
        place: Place::Netns("web".to_owned()),
        vnet: "blue".to_owned(),
        name: None,
        device: None,
        ips: vec!["10.0.0.7/24".parse().unwrap()],
        mac: None,
        allowed: Vec::new(),
        moves: false,
        standby: false,
        change: false,
        taken: 0,
        gateway: None,
        routes: Vec::new(),
        mtu: None,
        cni: None,
    };
    let line = serde_json::to_string(&new).unwrap();
    assert_eq!(line, r#"{"place":{"netns":"web"},"vnet":"blue","ips":["10.0.0.7/24"]}"#);
    assert_eq!(serde_json::from_str::<NewPort>(&line).unwrap(), new);
    assert!(serde_json::from_str::<NewPort>(&line.replace("/24", "/99")).is_err());
    let allowed = ["10.0.0.40", "fd00::/64"].map(|text| text.parse().unwrap()).to_vec();
    let shares = NewPort { allowed, ..new };
    let line = serde_json::to_string(&shares).unwrap();
    assert!(line.ends_with(r#""allow_ip":["10.0.0.40","fd00::/64"]}"#), "{line}");
    assert_eq!(serde_json::from_str::<NewPort>(&line).unwrap(), shares);
}

#[test]
fn allowed_is_an_address_or_a_prefix() {
    for (text, said) in [
        ("10.0.0.7", "10.0.0.7"),
        ("10.0.0.7/32", "10.0.0.7"),
        ("10.0.0.0/24", "10.0.0.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("fd00::7", "fd00::7"),
        ("fd00::/64", "fd00::/64"),
    ] {
        assert_eq!(text.parse::<AllowedIp>().unwrap().to_string(), said);
    }
    for (text, remedy) in [
        ("10.0.0.7/24", "use 10.0.0.0/24, or 10.0.0.7 alone"),
        ("10.0.0.0/33", "longer"),
        ("224.0.0.18", "use another"),
        ("127.0.0.1", "use another"),
        ("::", "use another"),
        ("vip", "such as 10.0.0.7"),
    ] {
        let error = text.parse::<AllowedIp>().unwrap_err();
        assert!(error.contains(remedy), "{error}");
    }
}

#[test]
fn attachment_of_container_is_kept() {
    let attachment = r#"{"network":"pods","container":"c7","interface":"eth0"}"#;
    let text = format!(r#"{{"place":{{"netns":"x"}},"vnet":"blue","cni":{attachment}}}"#);
    let new: NewPort = serde_json::from_str(&text).unwrap();
    assert_eq!(new.cni.as_ref().unwrap().network, "pods");
    assert_eq!(serde_json::to_string(&new).unwrap(), text);
    assert!(serde_json::from_str::<NewPort>(&text.replace("c7\"", "c7\",\"x\":1")).is_err());
}
