//! VLANs of a trunk in the configuration of a fabric: mapped at one host, ports at the host that
//! has the trunk.
//!
//! ```text
//!   rack ─ VLAN 10, 20, 30 ─ trk ┤ h1 ├─ br0 ─┤ h2 ├ c2     network blue: VLAN 10
//! ```

use std::time::Duration;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::ping::Pinger;
use crate::rig::tagger::Tagger;
use crate::rig::{Daemon, cable, skip, wait_for};
use sluice_base::Mac;

const TRUNK: &str = "\n[[trunk]]\nname = \"rack\"\ndevice = \"trk\"\n";
const MACS: [Mac; 3] =
    [Mac([2, 0x42, 0, 0, 1, 1]), Mac([2, 0x42, 0, 0, 1, 2]), Mac([2, 0x42, 0, 0, 1, 3])];

/// Returns the frames of no VLAN of the trunk that ended at its port.
fn strangers(daemon: &Daemon) -> u64 {
    let key = ("rack.10".to_owned(), "vlan_not_allowed".to_owned());
    daemon.drops().get(&key).copied().unwrap_or(0)
}

#[test]
#[ignore = "live: needs root"]
fn vlan_of_trunk_becomes_network_by_command() {
    if skip("vlan_of_trunk_becomes_network_by_command", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("trunk", 3);
    let rack = bridge.net.netns("rack");
    cable((&rack, "wire", ""), (&bridge.hosts[0], "trk", ""));
    let vlans = [(10, "v10", MACS[0]), (20, "v20", MACS[1]), (30, "v30", MACS[2])];
    let _tagger = Tagger::start(&rack, "wire", 1_450, &vlans);
    for (number, _, _) in vlans {
        rack.ip(&format!("addr add 10.42.0.{}/24 dev v{number}", 100 + number));
    }
    // Only one of them answers for the network.
    for number in [20, 30] {
        rack.ip(&format!("link set v{number} down"));
    }
    bridge.add(1);
    bridge.daemons[0].rewrite("host.toml", |text| format!("{text}{TRUNK}"));
    bridge.daemons[0].says(&["reload"]);
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    h2.says(&["vnet", "create", "red", "--vni", "200"]);
    bridge.all_have_caught_up();

    // Mapped at another host; at the host of the trunk it is opened by the next data process.
    let said = h2.says(&["vlan", "map", "rack", "10", "--vnet", "blue"]);
    assert!(said.contains("VLAN 10 of trunk rack is network blue\nrevision "), "{said}");
    bridge.all_have_caught_up();
    let rows = h3.ask(&["vlan", "list"]);
    assert_eq!(rows["vlans"]["rack"]["10"]["vnet"], "blue", "{rows}");
    wait_for("h1 says what waits for a restart", || {
        h1.progress()["at_restart"].to_string().contains("port `rack.10`")
    });
    h1.says(&["upgrade"]);
    let mut pinger = Pinger::with_patience(&rack, ip(1), Duration::from_millis(200));
    wait_for("a machine in VLAN 10 reaches a container", || pinger.ping(84));
    assert!(pinger.ping(1_450), "a tag is beside the MTU");

    // What is of no VLAN of the trunk ends under its reason.
    let before = strangers(h1);
    rack.ip("link set v10 down");
    rack.ip("link set v30 up");
    let mut stranger = Pinger::with_patience(&rack, ip(1), Duration::from_millis(200));
    wait_for("frames of VLAN 30 are counted", || {
        assert!(!stranger.ping(84), "it is no network");
        strangers(h1) > before
    });
    rack.ip("link set v30 down");

    // Clashes are refused.
    for (words, part) in [
        (&["vlan", "map", "rack", "10", "--vnet", "red"][..], "VLAN 10 of trunk `rack` is network"),
        (&["vlan", "map", "rack", "11", "--vnet", "blue"], "is VLAN 10 of trunk `rack` already"),
        (&["vlan", "map", "rack", "20", "--vnet", "pink"], "no network `pink`"),
        (&["vlan", "unmap", "rack", "20"], "VLAN 20 of trunk `rack` is no network"),
        (&["vnet", "delete", "blue"], "network `blue` is VLAN 10 of trunk `rack`"),
    ] {
        h3.refuses(words, &[part]);
    }
}
