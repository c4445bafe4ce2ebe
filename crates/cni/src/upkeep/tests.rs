use serde_json::json;
use sluice_api::port::AddedPorts;

use super::*;

#[test]
fn only_unused_attachments_of_network_go() {
    let port = |name: &str, cni: Option<[&str; 3]>| {
        let mut port = json!({"place": {"netns": "x"}, "vnet": "blue", "name": name});
        if let Some([network, container, interface]) = cni {
            port["cni"] =
                json!({"network": network, "container": container, "interface": interface});
        }
        json!({"port": port, "open": true})
    };
    let rows = json!({"ports": [
        port("used", Some(["pods", "a", "eth0"])),
        port("other-interface", Some(["pods", "a", "eth1"])),
        port("gone", Some(["pods", "b", "eth0"])),
        port("of-another-network", Some(["else", "b", "eth0"])),
        port("cni-by-hand", None),
    ]});
    let ports: AddedPorts = serde_json::from_value(rows).unwrap();
    let one = |container: &str, interface: &str| ValidAttachment {
        container: container.to_owned(),
        interface: interface.to_owned(),
    };
    let names = |network: &str, valid: &[ValidAttachment]| {
        let unused = unused(&ports.ports, network, valid);
        unused.iter().map(|state| state.port.name.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("pods", &[one("a", "eth0"), one("z", "eth0")]), ["other-interface", "gone"]);
    assert_eq!(names("pods", &[]), ["used", "other-interface", "gone"]);
    assert_eq!(names("nobody", &[]), [""; 0]);
}
