//! An underlay of kind `vhost-user`: its plan, and the messages on wrong ones.

use super::*;

const WIRE: &str = r#"kind = "l2"
device = "eth0"
address = "10.0.0.1"
link = { rate_mbps = 1000 }
"#;

const MEMORY: &str = r#"kind = "vhost-user"
socket = "/run/sluice/up.sock"
address = "10.0.0.1"
mac = "02:00:00:00:00:ee"
"#;

/// Returns `HOST` with an underlay in memory.
fn in_memory() -> String {
    let next_hop = "vnets = [\"blue\"]\nnext_hop = \"02:00:00:00:00:ff\"";
    HOST.replace(WIRE, MEMORY).replace("vnets = [\"blue\"]", next_hop)
}

#[test]
fn memory_underlay_full_input_follows_policy() {
    for (policy, full, lacks) in [
        ("ZZ", InputFull::Wait, None),
        ("LZ", InputFull::Wait, None),
        ("ZL", InputFull::Drop, Some("policy LZ or ZZ")),
        ("LL", InputFull::Drop, Some("policy LZ or ZZ")),
    ] {
        let plan = planned(&in_memory().replace("\"ZZ\"", &format!("\"{policy}\"")));
        let underlay = &plan.switch.ports[1];
        assert_eq!((underlay.input_full, underlay.rx_pause), (full, false), "{policy}");
        assert_eq!(plan.ports[1].policy_lacks, lacks, "{policy}");
    }
    let plan = planned(&in_memory());
    let role = PortRole::Underlay { local: [10, 0, 0, 1].into(), mac: Mac([2, 0, 0, 0, 0, 0xee]) };
    assert_eq!((plan.switch.ports[1].role, plan.switch.ports[1].mtu), (role, 1500));
    assert_eq!(plan.switch.tunnels[0].next_hop, Some(Mac([2, 0, 0, 0, 0, 0xff])));
    let Attachment::VhostUser { socket, client, .. } = &plan.ports[1].attachment else { panic!() };
    assert_eq!((socket.to_str(), *client), (Some("/run/sluice/up.sock"), false));
    assert!(plan.notes.is_empty(), "it has no headroom: {:?}", plan.notes);
}

#[test]
fn a_wrong_one_is_explained() {
    let fabric = "[fabric]\nname = \"f\"\nid = 1\ncertificates = \"/tls\"\n[[vnet]]";
    let table: [(&str, &str, &str); 14] = [
        ("socket = \"/run/sluice/up.sock\"\n", "", "underlay.socket: an underlay of kind"),
        ("/run/sluice/up.sock", "up.sock", "underlay.socket: `up.sock` is not a path"),
        ("mac = \"02:00:00:00:00:ee\"\n", "", "underlay.mac: no kernel has an address"),
        ("00:ee", "00:xx", "underlay.mac: `02:00:00:00:00:xx` is not a MAC"),
        ("address = \"10.0.0.1\"", "address = \"0.0.0.0\"", "underlay.address: 0.0.0.0 is not"),
        (
            "mac = \"02:00:00:00:00:ee\"",
            "mac = \"02:00:00:00:00:ee\"\ndevice = \"eth0\"",
            "underlay.device: an underlay of kind `vhost-user` has a socket",
        ),
        (
            "mac = \"02:00:00:00:00:ee\"",
            "mac = \"02:00:00:00:00:ee\"\nlink = { stall_ms = 5 }",
            "underlay.link.stall_ms: an underlay of kind `vhost-user` is memory",
        ),
        (
            "mac = \"02:00:00:00:00:ee\"",
            "mac = \"02:00:00:00:00:ee\"\nlink = { rate_mbps = 0 }",
            "underlay.link.rate_mbps: a link of 0 Mbit/s",
        ),
        ("next_hop = \"02:00:00:00:00:ff\"", "", "peer[1].next_hop: no kernel finds the way"),
        ("00:ff", "00:f", "peer[1].next_hop: `02:00:00:00:00:f` is not a MAC"),
        ("[[vnet]]", fabric, "fabric.address: the kernel does not have the address"),
        ("next_hop =", "id = 2\nnext_hop =", "only a member of a fabric has this"),
        ("kind = \"vhost-user\"", "kind = \"l2\"", "underlay.device: is missing"),
        ("vni = 42", "vni = 42\nmtu = 1451", "or raise the underlay: `mtu = 1501` in `[underlay]`"),
    ];
    assert_eq!(said(&in_memory(), &[]), "nothing");
    for (from, to, expected) in table {
        let report = said(&in_memory(), &[(from, to)]);
        assert!(report.contains(expected), "{expected}, said:\n{report}");
    }
    let member = said(&in_memory(), &[("[[vnet]]", fabric), ("next_hop =", "id = 2\nnext_hop =")]);
    assert!(member.contains("peer[1].address: the kernel does not reach a member"), "{member}");
}

#[test]
fn what_belongs_to_it_is_refused_elsewhere() {
    for key in ["socket = \"/x\"", "client = true", "mac = \"02:00:00:00:00:ee\""] {
        let said = said(HOST, &[("device = \"eth0\"", &format!("device = \"eth0\"\n{key}"))]);
        assert!(said.contains("only an underlay of kind `vhost-user` has this"), "{said}");
    }
    let said = said(HOST, &[("vnets = [\"blue\"]", "vnets = [\"blue\"]\nnext_hop = \"x\"")]);
    assert!(said.contains("peer[1].next_hop: the kernel finds the way to the peers"), "{said}");
}
