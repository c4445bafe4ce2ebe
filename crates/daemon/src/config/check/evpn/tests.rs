use std::net::Ipv4Addr;

use sluice_base::{Mac, Nanos};

use crate::config::{DeviceFacts, Devices, FabricPlan, plan};

/// A machine with `eth0`.
struct Machine;

impl Devices for Machine {
    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        (device == "eth0").then_some(DeviceFacts { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: 1_500 })
    }
}

const FABRIC: &str = "[fabric]\nname = \"prod\"\nid = 1\ncertificates = \"/etc/sluice/tls/h1\"\n";
const NEIGHBOR: &str = "[[evpn.neighbor]]\naddress = \"10.0.0.254\"\nas = 65000\n";

fn host(fabric: &str, evpn: &str) -> String {
    format!(
        "[host]\nname = \"h1\"\npolicy = \"ZL\"\n[underlay]\nkind = \"l2\"\ndevice = \"eth0\"\n\
         address = \"10.0.0.1\"\n{fabric}[[vnet]]\nname = \"blue\"\nvni = 42\n[evpn]\n{evpn}"
    )
}

fn said(fabric: &str, evpn: &str) -> String {
    match plan("host.toml", &host(fabric, evpn), &Machine) {
        Ok(_) => "nothing".to_owned(),
        Err(report) => report.to_string(),
    }
}

#[test]
fn wrong_speaker_refused_with_remedy() {
    let twice = format!("as = 65000\n{NEIGHBOR}{NEIGHBOR}");
    let own = "as = 65000\n[[evpn.neighbor]]\naddress = \"10.0.0.1\"\nas = 65000\n";
    let of = |line: &str| format!("as = 65000\n{line}\n{NEIGHBOR}");
    for (evpn, part) in [
        (&*of(""), "nothing"),
        ("as = 65000\n", "there is nobody to speak to"),
        (&twice, "neighbor 10.0.0.254 is there twice"),
        (own, "10.0.0.1 is this host's own"),
        (&format!("as = 0\n{NEIGHBOR}"), "0 is no AS"),
        (&of("hold_s = 2"), "a neighbor refuses a hold time of 2 s"),
        (&of("hold_s = 0"), "nothing"),
        (&of("router_id = \"0.0.0.0\""), "is no BGP identifier"),
        (&of("port = 0"), "no neighbor could be reached"),
        (&of("targets = { green = \"65000:1\" }"), "there is no vnet `green`"),
        (&of("targets = { blue = \"65000\" }"), "a route target is AS:NUMBER"),
        (&of("targets = { blue = \"70000:70000\" }"), "a route target is AS:NUMBER"),
        (&of("targets = { blue = \"65000:7\" }"), "nothing"),
    ] {
        let said = said(FABRIC, evpn);
        assert!(said.contains(part), "{evpn}: {said}");
    }
    assert!(said("", &of("")).contains("this host is in none"));
    let text = host(FABRIC, &of("")).replace(
        "kind = \"l2\"\ndevice = \"eth0\"",
        "kind = \"vhost-user\"\nsocket = \"/run/up.sock\"\nmac = \"02:00:00:00:09:01\"",
    );
    let report = plan("host.toml", &text, &Machine).unwrap_err().to_string();
    assert!(report.contains("the VTEPs that EVPN names have none"), "{report}");
}

#[test]
fn defaults_are_those_of_the_vtep() {
    let text = host(FABRIC, &format!("as = 65000\n{NEIGHBOR}"));
    let FabricPlan { evpn, .. } = plan("host.toml", &text, &Machine).unwrap().fabric.unwrap();
    let evpn = evpn.unwrap();
    let vtep = Ipv4Addr::new(10, 0, 0, 1);
    assert_eq!((evpn.speaker.router_id, evpn.speaker.vtep), (vtep, vtep));
    assert_eq!(evpn.listen.to_string(), "10.0.0.1:179");
    assert_eq!(evpn.speaker.hold_s, 9);
    assert_eq!(evpn.speaker.stale_max, Nanos::from_millis(30_000));
    let networks: Vec<_> =
        evpn.networks.iter().map(|n| (n.vni.get(), n.target.to_string())).collect();
    assert_eq!(networks, [(42, "65000:42".to_owned())]);
}
