use super::*;
use crate::config::{self, DeviceFacts, Devices, plan};

struct Fake(u16);

impl Devices for Fake {
    fn facts(&self, _device: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: self.0 })
    }
}

/// Returns the plan of these networks, `name vni`, and peers, `name last-byte networks...`.
fn of(vnets: &[&str], peers: &[&str], mtu: u16) -> Plan {
    let mut text = "[host]\nname = \"h1\"\npolicy = \"ZL\"\n[underlay]\nkind = \"udp\"\n\
                    device = \"eth7\"\naddress = \"10.0.0.1\"\n"
        .to_owned();
    for vnet in vnets {
        let (name, vni) = vnet.split_once(' ').unwrap();
        text += &format!("[[vnet]]\nname = \"{name}\"\nvni = {vni}\n");
    }
    for peer in peers {
        let mut words = peer.split(' ');
        let (name, last) = (words.next().unwrap(), words.next().unwrap());
        let vnets: Vec<String> = words.map(|name| format!("\"{name}\"")).collect();
        text += &format!(
            "[[peer]]\nname = \"{name}\"\nvtep = \"10.0.1.{last}\"\nvnets = [{}]\n",
            vnets.join(", ")
        );
    }
    plan("h1.toml", &text, &Fake(mtu)).unwrap_or_else(|report| panic!("{report}"))
}

/// Returns the next plan with the numbers that follow those of `now`.
fn after(now: &Plan, next: Plan) -> Plan {
    let in_use = |at: usize, of: usize| at >= of;
    let free = (
        |id: VnetId| in_use(id.index(), now.config.vnets.len()),
        |id: TunnelId| in_use(id.index(), now.config.peers.len()),
    );
    let numbers = now.numbers.follow(&now.config, &next.config, free).unwrap();
    config::renumber(next, numbers, &Fake(1_500)).unwrap()
}

/// Returns changes in short words.
fn words(now: &Plan, next: &Plan) -> Vec<String> {
    let word = |change: &PlaceChange| match change {
        PlaceChange::AddTunnel(id, _) => format!("+tunnel {id}"),
        PlaceChange::RemoveTunnel(id) => format!("-tunnel {id}"),
        PlaceChange::AddVnet(id, _) => format!("+vnet {id}"),
        PlaceChange::RemoveVnet(id) => format!("-vnet {id}"),
        PlaceChange::SetVnet(id, vnet) => format!("vnet {id} {:?}", vnet.tunnels),
        PlaceChange::SetNextHop(id, _) => format!("next hop {id}"),
        PlaceChange::SetService(priority, _) => format!("class {priority}"),
        PlaceChange::SetPort(id, _) => format!("port {id}"),
    };
    changes(now, next, &[]).iter().map(|one| word(&one.change)).collect()
}

#[test]
fn same_plan_needs_no_change() {
    let now = of(&["blue 1"], &["h2 2 blue"], 1_500);
    assert_eq!(words(&now, &now), [""; 0]);
    // An MTU that comes from the device is followed elsewhere.
    let next = after(&now, of(&["blue 1"], &["h2 2 blue"], 1_500));
    assert_eq!(words(&of(&["blue 1"], &["h2 2 blue"], 9_000), &next), [""; 0]);
}

#[test]
fn additions_come_before_removals() {
    let now = of(&["blue 1", "red 2"], &["h2 2 blue red", "h3 3 red"], 1_500);
    let next = after(&now, of(&["green 3", "blue 1"], &["h4 4 green blue", "h2 2 blue"], 1_500));
    let expected =
        ["+tunnel 2", "+vnet 2", "vnet 0 [TunnelId(2), TunnelId(0)]", "-vnet 1", "-tunnel 1"];
    assert_eq!(words(&now, &next), expected);
}

#[test]
fn name_or_address_taken_over_comes_last() {
    let now = of(&["blue 1", "red 2"], &["h2 2 blue", "h3 3 red"], 1_500);
    // Another network has the VNI, and another peer the address.
    let next = after(&now, of(&["blue 1", "rot 2"], &["h2 2 blue", "h9 3 blue rot"], 1_500));
    let words = words(&now, &next);
    let at = |word: &str| words.iter().position(|one| one.starts_with(word)).unwrap();
    assert!(at("-tunnel 1") < at("+tunnel 2") && at("-vnet 1") < at("+vnet 2"), "{words:?}");
    assert!(at("+tunnel 2") < at("vnet 0"), "{words:?}");
}

#[test]
fn every_change_can_be_undone() {
    let now = of(&["blue 1", "red 2"], &["h2 2 blue red", "h3 3 red"], 1_500);
    let next = after(&now, of(&["blue 1", "green 3"], &["h2 2 blue", "h4 4 green"], 1_500));
    for Undoable { change, undo } in changes(&now, &next, &[]) {
        match (change, undo) {
            (PlaceChange::AddTunnel(a, _), PlaceChange::RemoveTunnel(b))
            | (PlaceChange::RemoveTunnel(a), PlaceChange::AddTunnel(b, _)) => assert_eq!(a, b),
            (PlaceChange::AddVnet(a, _), PlaceChange::RemoveVnet(b))
            | (PlaceChange::RemoveVnet(a), PlaceChange::AddVnet(b, _)) => assert_eq!(a, b),
            (PlaceChange::SetVnet(a, new), PlaceChange::SetVnet(b, old)) => {
                assert_eq!((a, new.tunnels != old.tunnels), (b, true));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn policies_change_ports_of_file_and_added_ones() {
    let text = "[host]\nname = \"h1\"\npolicy = \"ZL\"\n[underlay]\nkind = \"udp\"\n\
                device = \"eth7\"\naddress = \"10.0.0.1\"\n[fabric]\nname = \"test\"\nid = 1\n\
                certificates = \"tls\"\n[[vnet]]\nname = \"blue\"\nvni = 1\n[[port]]\n\
                name = \"web\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
                mac = \"02:00:00:00:00:01\"\nallow_ip = [\"10.0.0.8\"]\n";
    let policy = "[vport_policy.blue.web]\nservice_mbps = 50\nallow_ip = [\"10.0.0.7\"]\n\
                  [vport_policy.blue.added]\npriority = 5\nallow_ip = [\"10.0.0.9\"]\n";
    let planned = |text: &str| {
        plan("h1.toml", text, &Fake(1_500)).unwrap_or_else(|report| panic!("{report}"))
    };
    let (now, next) = (planned(text), planned(&format!("{text}{policy}")));
    let new: NewPort = serde_json::from_value(serde_json::json!({
        "place": {"netns": "c1"}, "vnet": "blue", "name": "added", "device": "eth0",
        "ips": ["10.0.0.2/24"], "mac": "02:00:00:00:00:02",
    }))
    .unwrap();
    let added = [(PortId(3), new)];
    let mut all = changes(&now, &next, &added);
    let [second, first] = [all.pop().unwrap(), all.pop().unwrap()];
    assert!(all.is_empty(), "{all:?}");
    let of = |one: &PlaceChange| match one {
        PlaceChange::SetPort(id, values) => {
            let allowed = values.allowed.iter().map(|prefix| prefix.address().to_string());
            let mbps = values.rate.map(|limit| limit.rate.0 / 1_000_000);
            (id.0, mbps, values.default_priority.get(), allowed.collect::<Vec<_>>().join(" "))
        }
        other => panic!("{other:?}"),
    };
    let at = |id, mbps, priority, allowed: &str| (id, mbps, priority, allowed.to_owned());
    assert_eq!(of(&first.change), at(0, Some(50), 0, "10.0.0.7"));
    assert_eq!(of(&first.undo), at(0, None, 0, "10.0.0.8"));
    assert_eq!(of(&second.change), at(3, None, 5, "10.0.0.9"));
    assert_eq!(of(&second.undo), at(3, None, 0, ""));
    assert!(changes(&next, &next, &added).is_empty());
}
