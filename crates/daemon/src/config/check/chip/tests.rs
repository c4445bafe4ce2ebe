use sluice_base::Mac;

use crate::config::{DeviceFacts, Devices, plan};

/// Two switches: `eth1` and `eth2` are ports of one, `eth3` is one of the other.
struct Switches;

impl Devices for Switches {
    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        device.starts_with("eth").then_some(DeviceFacts { mac, mtu: 1_500 })
    }

    fn switch_of(&self, device: &str) -> Option<Vec<u8>> {
        match device {
            "eth1" | "eth2" => Some(vec![1]),
            "eth3" => Some(vec![2]),
            _ => None,
        }
    }
}

/// Returns the file of a host with access ports of these devices.
fn host(kind: &str, ports: &[(&str, &str)]) -> String {
    let head = format!(
        "[host]\nname = \"h1\"\npolicy = \"LL\"\n[chip]\nkind = \"{kind}\"\n[underlay]\n\
         kind = \"l2\"\ndevice = \"eth0\"\naddress = \"10.0.0.1\"\n[[vnet]]\nname = \"blue\"\n\
         vni = 42\n"
    );
    let port = |(device, more): &(&str, &str)| {
        format!(
            "[[port]]\nname = \"{device}\"\nkind = \"l2\"\nvnet = \"blue\"\ndevice = \"{device}\"\n\
             {more}\n"
        )
    };
    head + &ports.iter().map(port).collect::<String>()
}

fn said(text: &str) -> String {
    match plan("host.toml", text, &Switches) {
        Ok(_) => "nothing".to_owned(),
        Err(report) => report.to_string(),
    }
}

#[test]
fn switchdev_ports_must_be_of_one_switch() {
    for (ports, part) in [
        (&[("eth1", ""), ("eth2", "")][..], "nothing"),
        (&[("eth1", ""), ("eth4", "")], "`eth4` is no port of a switch (no `phys_switch_id`)"),
        (&[("eth1", ""), ("eth3", "")], "`eth3` is a port of another switch"),
        (&[("eth1", "mac = \"02:00:00:00:00:09\"")], "nobody can be bound to its port"),
        // The VLANs of a trunk stay with the switch of the data process.
        (&[("eth1", ""), ("eth4", "vlan = 10")], "nothing"),
    ] {
        let said = said(&host("switchdev", ports));
        assert!(said.contains(part), "{ports:?}: {said}");
        assert!(part == "nothing" || said.contains("kind = \"kernel\""), "the remedy: {said}");
    }
    assert_eq!(said(&host("kernel", &[("eth1", ""), ("eth4", "")])), "nothing");
}

#[test]
fn device_forwards_between_access_ports_only() {
    let ports = [("eth1", ""), ("eth2", ""), ("eth4", "vlan = 10")];
    let plan = |kind| plan("host.toml", &host(kind, &ports), &Switches).unwrap();
    let of =
        |kind| plan(kind).switch.ports.iter().map(|port| port.is_offloaded).collect::<Vec<_>>();
    assert_eq!(of("switchdev")[..3], [true, true, false]);
    assert!(of("kernel").iter().all(|is_offloaded| !is_offloaded));
}
