//! Members that are killed within moments of a commit, or whose file is ahead of the configuration
//! that they know, start with what was committed, and forward.

use crate::rig::bridge::{Bridge, ip};
use crate::rig::ping::Pings;
use crate::rig::{skip, wait_for};

/// Commits after each of which all hosts are killed at once.
const ROUNDS: usize = 6;

/// The other host stays down, so that a host knows no more than it has kept itself.
#[test]
#[ignore = "live: needs root"]
fn killed_host_starts_with_committed_networks_and_ports() {
    if skip("killed_host_starts_with_committed_networks_and_ports", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("killed", 2);
    let netns = bridge.containers[0].name().to_owned();
    for round in 0..ROUNDS {
        let (vnet, port, device) =
            (format!("net{round}"), format!("p{round}"), format!("eth{}", round + 1));
        let vni = (200 + round).to_string();
        let data = bridge.daemons[0].data_pid();
        bridge.daemons[0].says(&["vnet", "create", &vnet, "--vni", &vni]);
        let is_with_port = round % 2 == 0;
        if is_with_port {
            let new = ["port", "add", "--netns", &netns, "--vnet", &vnet, "--name", &port];
            bridge.daemons[0].says(&[&new[..], &["--device", &device]].concat());
        }
        for host in &mut bridge.daemons {
            host.kill_control();
        }
        let h1 = &mut bridge.daemons[0];
        h1.restart_control();
        let known = h1.vnets();
        assert!(known.contains(&vnet), "{vnet} was committed, and {known:?} are known");
        assert_eq!(h1.data_pid(), data, "data goes on with its tables");
        if is_with_port {
            let port = h1.row("ports", "port", &port);
            assert_eq!(port["vnet"], vnet.as_str(), "{port}");
        }
        bridge.daemons[1].restart_control();
        bridge.all_have_caught_up();
    }
}

#[test]
#[ignore = "live: needs root"]
fn file_ahead_of_configuration_applied_once_it_fits() {
    if skip("file_ahead_of_configuration_applied_once_it_fits", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("ahead", 2);
    (0..2).for_each(|own| _ = bridge.add(own));
    bridge.containers[0].ping(ip(1), 3);
    for is_forwarding in [true, false] {
        let (vnet, port, vni) = match is_forwarding {
            true => ("green", "g2", "300"),
            false => ("grey", "y2", "301"),
        };
        let table = format!("\n[[port]]\nname = \"{port}\"\nkind = \"tap\"\nvnet = \"{vnet}\"\n");
        let pings = is_forwarding.then(|| Pings::start(&bridge.containers[0], ip(1)));
        let h2 = &mut bridge.daemons[1];
        h2.rewrite("host.toml", |text| format!("{text}{table}device = \"{port}\"\n"));
        match is_forwarding {
            true => h2.kill_control(),
            false => h2.kill_both(),
        }
        h2.restart_control();
        let why = || bridge.daemons[1].progress()["not_in_force"].to_string();
        wait_for("what does not fit is said", || why().contains(vnet));
        wait_for("the rest works", || bridge.daemons[1].is_connected());
        bridge.daemons[0].says(&["vnet", "create", vnet, "--vni", vni]);
        let has_port = || {
            let ports = bridge.daemons[1].attempt(&["show", "ports"]);
            String::from_utf8_lossy(&ports.stdout).contains(&format!("\"{port}\""))
        };
        wait_for("the port of the file is there", has_port);
        wait_for("nothing is missing", || why() == "null");
        if let Some((sent, answered)) = pings.map(Pings::stop) {
            assert_eq!(sent, answered, "data forwards with its last tables, and is handed over");
        }
        bridge.containers[0].ping(ip(1), 3);
    }
}
