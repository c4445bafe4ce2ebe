//! A member of a fabric and the VXLAN device of a Linux kernel, which is no member: endpoints
//! behind it are learned from its frames, and only its VTEP is configured.
//!
//! ```text
//!   box ─ TAP ─┤ h1 up0 ═════════ up0 peer ├─ vx0
//! ```

use std::net::Ipv4Addr;

use crate::rig::{Net, cable, skip, wait_for};

const BOX: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const PEER_MAC: &str = "02:42:00:00:00:02";

#[test]
#[ignore = "live: needs root"]
fn endpoint_behind_kernel_vtep_learned_from_frames() {
    if skip("live::foreign", &[]) {
        return;
    }
    let mut net = Net::new("foreign");
    let [container, host, peer] = ["box", "h1", "peer"].map(|name| net.netns(name));
    cable((&host, "up0", "192.0.2.1/24"), (&peer, "up0", "192.0.2.2/24"));
    peer.ip(&format!(
        "link add vx0 address {PEER_MAC} type vxlan id 42 local 192.0.2.2 remote 192.0.2.1 dev up0 \
         dstport 4789"
    ));
    peer.ip(&format!("addr add {PEER}/24 dev vx0"));
    peer.ip("link set vx0 up");
    let certificates = net.certificates(&["h1"]);
    let text = format!(
        r#"
policy = "ZL"
[underlay]
kind = "l2"
device = "up0"
address = "192.0.2.1"
[fabric]
name = "test"
id = 1
certificates = "{}"
[[vnet]]
name = "blue"
vni = 42
[[port]]
name = "box"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
[[peer]]
name = "kernel"
vtep = "192.0.2.2"
vnets = ["blue"]
"#,
        certificates.join("h1").display(),
        container.name()
    );
    let daemon = net.daemon(&host, "h1", &text);
    container.ip(&format!("addr add {BOX}/24 dev t0"));
    container.ip("link set t0 up");

    // The first frame goes to an unknown address.
    container.ping(PEER, 5);
    peer.ping(BOX, 5);
    wait_for("the kernel's endpoint is known", || {
        let rows = daemon.ask(&["vport", "list"])["vports"].take();
        rows.as_array().unwrap().iter().any(|row| row["mac"] == PEER_MAC && row["host"] == "kernel")
    });
    let members = daemon.ask(&["fabric", "members"])["members"].take();
    let kernel = members.as_array().unwrap().iter().find(|row| row["host"] == "kernel").unwrap();
    assert_eq!((&kernel["kind"], &kernel["vports"]), (&"foreign".into(), &1.into()), "{kernel}");
    daemon.drained();
    daemon.assert_lossless();
}
