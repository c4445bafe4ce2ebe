use super::*;
use crate::config::{DeviceFacts, Devices, plan};

struct Fake;

impl Devices for Fake {
    fn facts(&self, _device: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: sluice_base::Mac([2, 0, 0, 0, 0, 1]), mtu: 1500 })
    }
}

fn of(kind: &str, rest: &str) -> Plan {
    let text = format!(
        "[host]\nname = \"h1\"\npolicy = \"ZL\"\n\
         [underlay]\nkind = \"{kind}\"\ndevice = \"eth7\"\naddress = \"10.0.0.1\"\n\
         [[vnet]]\nname = \"blue\"\nvni = 42\n{rest}"
    );
    plan("h1.toml", &text, &Fake).unwrap()
}

const PEERS: &str = r#"
[fabric]
name = "test"
id = 1
certificates = "/etc/sluice/tls/h1"
[[peer]]
name = "h2"
id = 2
vtep = "10.0.0.2"
address = "10.9.0.2"
vnets = ["blue"]
[[peer]]
name = "leaf"
vtep = "10.0.0.3"
vnets = ["blue"]
"#;

/// VXLAN of every peer; for members also both transports of the fabric, at their own address.
#[test]
fn endpoints_are_those_of_all_peers() {
    let plan = of("l2", PEERS);
    let port = plan.fabric.as_ref().unwrap().listen.port();
    let at = |last: [u8; 2], port, transport| Endpoint {
        address: [10, last[0], 0, last[1]].into(),
        port,
        transport,
    };
    let expected = [
        at([0, 2], VXLAN_PORT, Transport::Udp),
        at([0, 3], VXLAN_PORT, Transport::Udp),
        at([9, 2], port, Transport::Tcp),
        at([9, 2], port, Transport::Udp),
    ];
    assert_eq!(endpoints(&plan), expected);
    assert_eq!(devices(&plan), ["eth7"]);
}

#[test]
fn nobody_to_guard_needs_no_guard() {
    let plan = of("udp", "");
    assert_eq!(endpoints(&plan), []);
    assert_eq!(Guard::install(&plan).rows(), []);
}
