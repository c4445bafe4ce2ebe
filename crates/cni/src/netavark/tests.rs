use super::*;

/// Executes a subcommand; returns what is printed and true if it is an error.
fn ask(arguments: &[&str], input: &Value) -> (Value, bool) {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let answer = run(&arguments, &mut input.to_string().as_bytes());
    (serde_json::from_str(&answer.text).unwrap_or_default(), answer.is_error)
}

/// Returns the text of the error that comes.
fn refused(arguments: &[&str], input: &Value) -> String {
    let (error, is_error) = ask(arguments, input);
    assert!(is_error, "{arguments:?} {input}: {error}");
    assert_eq!(error.as_object().unwrap().len(), 1, "netavark reads `error` alone: {error}");
    error["error"].as_str().unwrap().to_owned()
}

fn network() -> Value {
    json!({
        "name": "pods", "id": "2f", "driver": "sluice", "internal": false, "dns_enabled": true,
        "subnets": [
            {"subnet": "10.42.0.0/16", "gateway": "10.42.0.1", "lease_range": null},
            {"subnet": "fd42::/64"}
        ],
        "ipam_options": {"driver": "host-local"}, "network_dns_servers": null,
        "options": {"vnet": "blue", "socket": "/nowhere/show.sock"}
    })
}

fn exec() -> Value {
    json!({
        "container_id": "c7", "container_name": "web", "port_mappings": [], "network": network(),
        "network_options": {
            "aliases": ["web"], "interface_name": "eth0", "static_ips": ["10.42.0.50", "fd42::50"],
            "static_mac": ""
        }
    })
}

#[test]
fn info_says_version_of_interface() {
    let (info, is_error) = ask(&["info"], &Value::Null);
    assert!(!is_error);
    assert_eq!(info["api_version"], "1.0.0");
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn options_and_addresses_are_read() {
    let read = Exec::parse(exec().to_string().as_bytes()).unwrap();
    let options = read.network.options().unwrap();
    assert_eq!((options.vnet.as_str(), options.mtu), ("blue", None));
    let addresses = read.addresses().unwrap();
    let subnets: Vec<Value> = addresses.iter().map(|own| own.to_json()).collect();
    let expected = [
        json!({"ipnet": "10.42.0.50/16", "gateway": "10.42.0.1"}),
        json!({"ipnet": "fd42::50/64"}),
    ];
    assert_eq!(subnets, expected);
    let lines: Vec<String> =
        routes(&read, &options, &addresses).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["0.0.0.0/0,10.42.0.1"]);
    assert_eq!(attachment(&read).network, "netavark:pods");
    assert_eq!(read.mac(), None);
}

#[test]
fn internal_network_has_no_default_route() {
    let lines = |key: &str, value: Value| {
        let mut input = exec();
        input["network"][key] = value;
        let read = Exec::parse(input.to_string().as_bytes()).unwrap();
        let options = read.network.options().unwrap();
        let routes = routes(&read, &options, &read.addresses().unwrap()).unwrap();
        routes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(lines("internal", json!(true)).is_empty());
    assert!(lines("options", json!({"no_default_route": "true"})).is_empty());
    let route = json!([{"destination": "10.9.0.0/16", "gateway": "10.42.0.9"}]);
    assert_eq!(lines("routes", route), ["0.0.0.0/0,10.42.0.1", "10.9.0.0/16,10.42.0.9"]);
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    for (change, words) in [
        (json!({"options": {"vlan": "7"}}), "`vlan`: is no option"),
        (json!({"options": {"kind": "bridge"}}), "bridge"),
        (json!({"options": {"mtu": "large"}}), "`mtu`: `large`"),
        (json!({"options": {"no_default_route": "1"}}), "`no_default_route`"),
        (json!({"options": {"host": "a/b"}}), "`host`"),
        (json!({"options": {"host": "h1", "socket": "/s"}}), "`socket`: stands beside"),
        (json!({"ipam_options": {"driver": "dhcp"}}), "dhcp"),
        (json!({"name": 7}), "cannot be read"),
        (json!({}), "/nowhere/show.sock"),
    ] {
        let mut input = network();
        input.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let text = refused(&["create"], &input);
        assert!(text.contains(words), "{change}: {text}");
    }
    for (at, value, words) in [
        ("/port_mappings", json!([{"container_port": 80}]), "`publish`"),
        ("/network_options/static_ips", json!(["10.43.0.1"]), "10.43.0.1 is in no subnet"),
        ("/network_options/interface_name", json!("eth0/1"), "`interface_name`"),
        ("/network_options/interface_name", json!("a-name-too-long-for-it"), "`interface_name`"),
        ("/network/subnets", json!([{"subnet": "10.42.0.0"}]), "10.42.0.0"),
        ("/network/options", json!({"vnet": "blue", "socket": "/nowhere/s"}), "/nowhere/s"),
    ] {
        let mut input = exec();
        *input.pointer_mut(at).unwrap() = value;
        let text = refused(&["setup", "/run/netns/none"], &input);
        assert!(text.contains(words), "{at}: {text}");
    }
    for words in [&["setup"][..], &["remove", "/run/netns/none"], &[]] {
        assert!(refused(words, &exec()).contains("no subcommand"), "{words:?}");
    }
    assert!(refused(&["teardown", ""], &json!({})).contains("container_id"));
}
