//! `sluice-netavark` with Podman's network stack, netavark, as others wrote it.
//!
//! ```text
//!   c1 ─┐                      ┌─ c2      each container's eth0 is made by the plugin
//!       ├ h1 up0 ═════ up0 h2 ─┤
//!   h1 ─┘                      └─ c3
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::rig::cni::Done;
use crate::rig::netavark::{Netavark, skip_without_netavark};
use crate::rig::pair::{Pair, devices};
use crate::rig::{Daemon, say};
use serde_json::json;

/// Returns the number of ports of containers.
fn ports(daemon: &Daemon) -> usize {
    let rows = daemon.ask(&["port", "list"])["ports"].take();
    rows.as_array().unwrap().iter().filter(|row| !row["port"]["cni"].is_null()).count()
}

#[test]
#[ignore = "live: needs root"]
fn netavark_attaches_containers_that_reach_each_other() {
    if skip_without_netavark("live::netavark") {
        return;
    }
    let case = Pair::new("netavark", 8);
    let [c1, c2, c3] = &case.containers;
    let mut stacks = [0, 1].map(|own| Netavark::new(&case, own));
    for stack in &mut stacks {
        let network = Netavark::create(stack.network()).succeeds();
        assert_eq!(network["dns_enabled"], false, "no names are answered");
        stack.keep(network);
    }
    let places = [(0, c1, "10.42.0.10"), (0, c2, "10.42.0.11"), (1, c3, "10.42.0.20")];
    for round in 0..2 {
        for (own, netns, ip) in places {
            let status = stacks[own].run("setup", netns.name(), netns, ip, &json!({})).succeeds();
            say(&format!("{round}: {status}"));
            let card = &status["pods"]["interfaces"]["eth0"];
            assert_eq!(card["subnets"][0]["ipnet"], format!("{ip}/24"), "{status}");
            assert_eq!(card["subnets"][0]["gateway"], "10.42.0.1", "{status}");
            let link = netns.ip("-o link show dev eth0");
            assert!(link.contains(card["mac_address"].as_str().unwrap()), "{link}");
            assert!(netns.ip("route show").contains("default via 10.42.0.1 dev eth0"));
        }
        case.both_know(Ipv4Addr::new(10, 42, 0, 20), true);
        c1.ping(Ipv4Addr::new(10, 42, 0, 11), 3);
        c1.ping(Ipv4Addr::new(10, 42, 0, 20), 3);
        // The second time nothing is there, and that is no error.
        for _ in 0..2 {
            for (own, netns, ip) in places {
                stacks[own].run("teardown", netns.name(), netns, ip, &json!({})).succeeds();
                assert_eq!(devices(netns), ["lo"]);
            }
        }
        assert_eq!([ports(&case.daemons[0]), ports(&case.daemons[1])], [0, 0]);
    }
}

#[test]
#[ignore = "live: needs root"]
fn netavark_shows_what_was_refused() {
    if skip_without_netavark("live::netavark") {
        return;
    }
    let case = Pair::new("netavark-no", 8);
    let (stack, c1) = (Netavark::new(&case, 0), &case.containers[0]);
    let said = |done: &Done, words: &str| {
        assert_ne!(done.code(), Some(0), "{}", done.said());
        assert!(done.said().contains(words), "{}", done.said());
    };
    let published = json!({"port_mappings": [{
        "container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp", "range": 1
    }]});
    let nothing = json!({});
    let setup = |ip: &str, more| stack.run("setup", "c1", c1, ip, more);
    said(&setup("10.42.0.10", &published), "publishes no port on the host");
    said(&setup("10.43.0.10", &nothing), "in no subnet of network pods");
    setup("10.42.0.10", &nothing).succeeds();
    said(&setup("10.42.0.10", &nothing), "has its interface eth0 in netavark:pods already");
    let mut red = stack.network().clone();
    red["options"]["vnet"] = json!("red");
    said(&Netavark::create(&red), "sluice vnet create red --vni NUMBER");
    red["options"] = json!({"vlan": "7"});
    said(&Netavark::create(&red), "`vlan`: is no option of this driver");
    stack.run("teardown", "c1", c1, "10.42.0.10", &json!({})).succeeds();
    assert_eq!((devices(c1), ports(&case.daemons[0])), (vec!["lo".to_owned()], 0));
}

/// Podman sends a teardown after a setup that was killed: it finds what that has made.
#[test]
#[ignore = "live: needs root"]
fn teardown_finds_what_killed_setup_left() {
    if skip_without_netavark("live::netavark") {
        return;
    }
    let case = Pair::new("netavark-kill", 8);
    let (stack, c1) = (Netavark::new(&case, 0), &case.containers[0]);
    let path = crate::rig::cni::path_of(c1);
    let mut made = 0;
    for at in 0..30 {
        let mut child = stack.plugin(&["setup", &path], "c1", "10.42.0.10");
        std::thread::sleep(Duration::from_micros(1_000 * at));
        child.kill().unwrap();
        child.wait().unwrap();
        // A request that is on its way is the host's to finish.
        std::thread::sleep(Duration::from_millis(100));
        made += ports(&case.daemons[0]);
        Done::of(stack.plugin(&["teardown", &path], "c1", "10.42.0.10")).succeeds();
        assert_eq!(ports(&case.daemons[0]), 0, "killed after {at} ms");
        assert_eq!(devices(c1), ["lo"]);
    }
    say(&format!("{made} of 30 killed setups had made a port"));
}
