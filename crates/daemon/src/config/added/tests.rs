//! Valid ports with their results, and wrong ports with their messages.

use super::*;
use crate::config::{plan as plan_file, tests::Fake};

const HOST: &str = include_str!("tests/host.toml");

fn file(text: &str) -> Plan {
    plan_file("h1.toml", text, &Fake).unwrap()
}

fn new(place: Place) -> NewPort {
    let vnet = "blue".to_owned();
    NewPort {
        kind: Kind::Tap,
        place,
        vnet,
        name: None,
        device: None,
        ips: Vec::new(),
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
    }
}

fn netns(name: &str) -> NewPort {
    new(Place::Netns(name.to_owned()))
}

fn with_ip(new: NewPort, ip: &str) -> NewPort {
    NewPort { ips: vec![ip.parse().unwrap()], ..new }
}

#[test]
fn added_port_name_device_netns_follow_attachment() {
    let host = file(HOST);
    let tap = |name: &str| new(Place::Tap(name.to_owned()));
    for (said, name, device, path, is_bound) in [
        (netns("web"), "web", "eth0", Some("/run/netns/web"), false),
        (netns("/var/ns/web"), "web", "eth0", Some("/var/ns/web"), false),
        (with_ip(netns("web"), "10.1.0.2/24"), "web", "eth0", Some("/run/netns/web"), true),
        (new(Place::Pid(77)), "pid-77", "eth0", Some("/proc/77/ns/net"), false),
        (tap("vm0"), "vm0", "vm0", None, false),
        (with_ip(new(Place::Host), "10.1.0.2/24"), "host-blue", "sl-blue", None, true),
    ] {
        let whole = complete(&host, &said).unwrap();
        assert_eq!((whole.name.as_deref(), whole.device.as_deref()), (Some(name), Some(device)));
        assert_eq!(complete(&host, &whole).unwrap(), whole, "nothing is left open");
        let port = plan(&host, &[], &whole).unwrap();
        let Attachment::Tap { device: opened, netns, addresses, mac, .. } = port.plan.attachment
        else {
            panic!("a TAP");
        };
        assert_eq!((opened.as_str(), netns), (device, path.map(PathBuf::from)));
        assert_eq!((port.local.is_bound, mac.is_some(), addresses.len()), {
            let some = !said.ips.is_empty();
            (is_bound, is_bound, usize::from(some))
        });
        assert_eq!(
            port.bound.map(|bound| bound.routes),
            match is_bound {
                true => Some(said.place == Place::Host),
                false => None,
            }
        );
    }
}

#[test]
fn a_bound_port_may_share_addresses() {
    let host = file(HOST);
    let vip = |new: NewPort| NewPort { allowed: vec!["10.1.0.40".parse().unwrap()], ..new };
    let whole = complete(&host, &vip(with_ip(netns("web"), "10.1.0.2/24"))).unwrap();
    let port = plan(&host, &[], &whole).unwrap();
    let expected = [IpPrefix::new(IpAddr::from([10, 1, 0, 40]), 32).unwrap()];
    assert_eq!(port.local.allowed, expected);
    assert_eq!(port.plan.allowed, whole.allowed);
    let bound = port.bound.unwrap();
    assert_eq!((bound.allowed(), bound.ips.len()), (&expected[..], 1), "it is no binding");
    // Another port may share the address as well.
    let other = complete(&host, &vip(with_ip(netns("db"), "10.1.0.3/24"))).unwrap();
    assert!(plan(&host, std::slice::from_ref(&whole), &other).is_ok());
    // A port whose frames may be from anywhere needs no list at the switch.
    let router = complete(&host, &vip(with_ip(new(Place::Host), "10.1.0.4/24"))).unwrap();
    assert_eq!(plan(&host, &[], &router).unwrap().bound.unwrap().allowed(), []);
    let learns = complete(&host, &vip(netns("web"))).unwrap();
    assert!(plan(&host, &[], &learns).unwrap_err().contains("leave `--allow-ip` out"));
    let many = vec!["10.1.0.40".parse().unwrap(); 17];
    let error = plan(&host, &[], &NewPort { allowed: many, ..whole }).unwrap_err();
    assert!(error.contains("use prefixes"), "{error}");
}

#[test]
fn added_guest_tap_device_mac_and_address_unset() {
    let host = file(HOST);
    let said = with_ip(new(Place::Tap("vm0".to_owned())), "10.1.0.2/24");
    let whole = NewPort { mac: Some("02:00:00:00:00:09".to_owned()), ..said };
    let port = plan(&host, &[], &complete(&host, &whole).unwrap()).unwrap();
    let Attachment::Tap { mac, addresses, .. } = port.plan.attachment else { panic!("a TAP") };
    assert_eq!((mac, addresses), (None, Vec::new()));
    assert_eq!(port.bound.unwrap().ips, [IpAddr::from([10, 1, 0, 2])]);
}

fn vm(socket: &str, client: bool) -> NewPort {
    new(Place::Vm(VmSocket { socket: socket.to_owned(), client }))
}

#[test]
fn added_vm_has_socket_and_no_device() {
    let host = file(HOST);
    let said = with_ip(vm("/run/v/vm7.sock", true), "10.1.0.2/24");
    assert!(complete(&host, &said).unwrap_err().contains("say it with `--mac`"));
    let said = NewPort { mac: Some("02:00:00:00:00:09".to_owned()), mtu: Some(1300), ..said };
    let whole = complete(&host, &said).unwrap();
    assert_eq!((whole.name.as_deref(), whole.device.as_ref()), (Some("vm7"), None));
    assert_eq!(complete(&host, &whole).unwrap(), whole, "nothing is left open");
    let port = plan(&host, &[], &whole).unwrap();
    let Attachment::VhostUser { socket, client, in_order, mtu, .. } = &port.plan.attachment else {
        panic!("a machine's card");
    };
    assert_eq!((socket.to_str(), *client, *in_order), (Some("/run/v/vm7.sock"), true, true));
    assert_eq!((*mtu, port.switch.mtu, port.local.tap.is_none()), (1300, 1300, true));
    let answer = answer(&whole, &port, sluice_base::PortId(3));
    assert_eq!((answer.device.as_str(), answer.netns), ("/run/v/vm7.sock", None));
    let learns = complete(&host, &vm("/run/v/vm7.sock", false)).unwrap();
    assert!(!plan(&host, &[], &learns).unwrap().local.is_bound);
    let same = NewPort { name: Some("x".to_owned()), ..learns };
    let error = plan(&host, std::slice::from_ref(&whole), &same).unwrap_err();
    assert!(error.contains("port `vm7` has the socket"), "{error}");
    for (wrong, part) in [
        (vm("vm.sock", false), "no absolute path"),
        (vm(&format!("/{}/vm", "x".repeat(107)), false), "more than the 107"),
        (NewPort { kind: Kind::VhostUser, ..netns("web") }, "go together"),
        (NewPort { gateway: Some([10, 1, 0, 3].into()), ..vm("/x", false) }, "routes of its own"),
    ] {
        let error = plan(&host, &[], &complete(&host, &wrong).unwrap()).unwrap_err();
        assert!(error.contains(part), "{wrong:?}: {error}");
    }
}

#[test]
fn only_addresses_of_machine_change_in_place() {
    let mac = Some("02:00:00:00:00:09".to_owned());
    let old = NewPort { mac: mac.clone(), ..with_ip(vm("/x", false), "10.1.0.2/24") };
    let ips = vec!["10.1.0.3/24".parse().unwrap()];
    for (new, may) in [
        (NewPort { ips, standby: true, moves: true, taken: 7, ..old.clone() }, true),
        (NewPort { allowed: vec!["10.1.0.40".parse().unwrap()], ..old.clone() }, true),
        (NewPort { mtu: Some(1300), ..old.clone() }, false),
        (NewPort { vnet: "red".to_owned(), ..old.clone() }, false),
        (NewPort { mac: Some("02:00:00:00:00:0a".to_owned()), ..old.clone() }, false),
        (NewPort { place: Place::Tap("x".to_owned()), ..old.clone() }, false),
    ] {
        assert_eq!(is_rebinding(&old, &new), may, "{new:?}");
    }
    let learns = vm("/x", false);
    assert!(!is_rebinding(&learns, &learns), "it is bound to nothing");
    let container = NewPort { mac, ..with_ip(netns("web"), "10.1.0.2/24") };
    assert!(!is_rebinding(&container, &container), "its device has the addresses");
}

#[test]
fn tap_of_container_is_given_away() {
    let host = file(HOST);
    let key = sluice_api::port::Attachment {
        network: "docker:1".to_owned(),
        container: "c7".to_owned(),
        interface: "t0".to_owned(),
    };
    for (place, cni, given) in [
        (Place::Tap("t0".to_owned()), Some(key.clone()), true),
        (Place::Tap("t0".to_owned()), None, false),
        (Place::Netns("web".to_owned()), Some(key), false),
    ] {
        let said = NewPort { mac: Some("02:00:00:00:00:09".to_owned()), cni, ..new(place) };
        let port = plan(&host, &[], &complete(&host, &said).unwrap()).unwrap();
        let Attachment::Tap { is_given_away, .. } = port.plan.attachment else { panic!("a TAP") };
        // Neither set up here, nor looked at by its name.
        assert_eq!((is_given_away, port.local.tap.unwrap().is_given_away), (given, given));
    }
}

#[test]
fn generated_mac_stable_per_name_and_host() {
    let (host, other) = (file(HOST), file(&HOST.replace("id = 7", "id = 8")));
    let mac = |plan: &Plan, name: &str| {
        complete(plan, &with_ip(netns(name), "10.1.0.2/24")).unwrap().mac.unwrap()
    };
    assert_eq!(mac(&host, "web"), mac(&host, "web"));
    assert_ne!(mac(&host, "web"), mac(&host, "db"));
    assert_ne!(mac(&host, "web"), mac(&other, "web"));
    assert!(mac(&host, "web").starts_with("02:"), "one machine's own, and not a group's");
}

#[test]
fn added_port_invalid_refused_with_remedy() {
    let host = file(HOST);
    let there = complete(&host, &with_ip(netns("there"), "10.1.0.8/24")).unwrap();
    let named = |name: &str| NewPort { name: Some(name.to_owned()), ..netns("web") };
    let device = |name: &str| NewPort { device: Some(name.to_owned()), ..netns("web") };
    let mac = |mac: &str| NewPort { mac: Some(mac.to_owned()), ..netns("web") };
    for (said, part) in [
        (NewPort { vnet: "green".to_owned(), ..netns("web") }, "there is red, blue"),
        (named(""), "cannot be the name of a port"),
        (named("a b"), "cannot be the name of a port"),
        (named(&"x".repeat(65)), "cannot be the name of a port"),
        (named("pool"), "means something else"),
        (named("c1"), "in the configuration file"),
        (named("there"), "delete it first"),
        (device("a/b"), "network device"),
        (device(&"x".repeat(16)), "network device"),
        (NewPort { name: Some("x".to_owned()), ..netns("there") }, "use `--device`"),
        (mac("02:00:00:00:00:01"), "bound here at h1, to port `c1`"),
        (mac(there.mac.as_ref().unwrap()), "bound here at h1, to port `there`"),
        (mac("01:00:00:00:00:01"), "address of no endpoint"),
        (mac("00:00:00:00:00:00"), "address of no endpoint"),
        (mac("nonsense"), "is no MAC"),
        (with_ip(netns("web"), "10.1.0.1/24"), "to port `c1`"),
        (with_ip(netns("web"), "10.1.0.8/24"), "both ports `--allow-ip 10.1.0.8`"),
    ] {
        let whole = complete(&host, &said).unwrap();
        let error = plan(&host, std::slice::from_ref(&there), &whole).unwrap_err();
        assert!(error.contains(part), "{said:?}: {error}");
    }
    let five = (1..=5).map(|n| format!("10.9.0.{n}/24").parse().unwrap()).collect();
    let five = complete(&host, &NewPort { ips: five, ..netns("web") }).unwrap();
    assert!(plan(&host, &[], &five).unwrap_err().contains("more than the 4"));
    let twice = NewPort { device: Some("b".to_owned()), ..new(Place::Tap("a".to_owned())) };
    assert!(complete(&host, &twice).unwrap_err().contains("say it once"));
    let alone = HOST.replace("[fabric]\nname = \"test\"\nid = 7\ncertificates = \"tls\"\n", "");
    let whole = complete(&file(&alone), &netns("web")).unwrap();
    assert!(plan(&file(&alone), &[], &whole).unwrap_err().contains("add a `[fabric]`"));
}

#[test]
fn added_veth_pair_planned_like_tap() {
    let host = file(HOST);
    let said = NewPort { kind: Kind::Veth, ..with_ip(netns("web"), "10.1.0.2/24") };
    let whole = complete(&host, &said).unwrap();
    let port = plan(&host, &[], &whole).unwrap();
    let Attachment::Veth { device, netns, mac, addresses, .. } = port.plan.attachment else {
        panic!("a veth pair");
    };
    assert_eq!((device.as_str(), netns), ("eth0", Some(PathBuf::from("/run/netns/web"))));
    assert_eq!((mac.is_some(), addresses.len()), (true, 1));
    assert_eq!(port.local.tap.map(|place| place.device).as_deref(), Some("eth0"));
    let tap = NewPort { kind: Kind::Veth, ..new(Place::Tap("vm0".to_owned())) };
    let error = plan(&host, &[], &complete(&host, &tap).unwrap()).unwrap_err();
    assert!(error.contains("leave `--kind veth` out"), "{error}");
}

#[test]
fn added_port_same_ip_other_vnet_accepted() {
    let host = file(HOST);
    let red = NewPort { vnet: "red".to_owned(), ..with_ip(netns("web"), "10.1.0.1/24") };
    assert!(plan(&host, &[], &complete(&host, &red).unwrap()).is_ok());
}

#[test]
fn added_port_routes_mtu_planned_invalid_refused() {
    let host = file(HOST);
    let with = |change: &dyn Fn(&mut NewPort)| {
        let mut new = with_ip(netns("web"), "10.1.0.2/24");
        change(&mut new);
        plan(&host, &[], &complete(&host, &new).unwrap())
    };
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let route = |text: &str| text.parse().unwrap();
    let port = with(&|new| {
        new.gateway = Some(ip("10.1.0.1"));
        new.routes = vec![route("10.9.0.0/16,10.1.0.3"), route("10.8.0.0/16")];
        new.mtu = Some(1300);
    })
    .unwrap();
    let Attachment::Tap { routes, mtu, .. } = port.plan.attachment else { panic!("a TAP") };
    let shown: Vec<_> = routes.iter().map(|r| (r.ip, r.prefix, r.gateway)).collect();
    assert_eq!(
        shown,
        [
            (ip("0.0.0.0"), 0, Some(ip("10.1.0.1"))),
            (ip("10.9.0.0"), 16, Some(ip("10.1.0.3"))),
            (ip("10.8.0.0"), 16, None),
        ]
    );
    assert_eq!((mtu, port.switch.mtu), (1300, 1300));
    type Change<'a> = &'a dyn Fn(&mut NewPort);
    let cases: [(Change<'_>, &str); 8] = [
        (&|new| new.gateway = Some(ip("10.2.0.1")), "in no network of the port"),
        (&|new| new.gateway = Some(ip("fd00::1")), "in no network of the port"),
        (&|new| new.gateway = Some(ip("10.1.0.2")), "own address"),
        (&|new| new.routes = vec![route("10.9.0.0/16,10.2.0.1")], "in no network of the port"),
        (&|new| new.mtu = Some(1451), "larger than 1450, that of `blue`; use 1450 or less"),
        (&|new| new.mtu = Some(575), "use 576 or more"),
        (
            &|new| {
                new.ips.push("fd00::2/64".parse().unwrap());
                new.mtu = Some(1279);
            },
            "use 1280 or more",
        ),
        (
            &|new| {
                new.place = Place::Host;
                new.gateway = Some(ip("10.1.0.1"));
            },
            "the host's own default route",
        ),
    ];
    for (change, part) in cases {
        let error = with(change).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
}
