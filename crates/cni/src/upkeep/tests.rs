use super::*;

#[test]
fn only_unused_attachments_of_network_go() {
    let of = |network: &str, container: &str, interface: &str| Attachment {
        network: network.to_owned(),
        container: container.to_owned(),
        interface: interface.to_owned(),
    };
    let all = [
        of("pods", "a", "eth0"),
        of("pods", "a", "eth1"),
        of("pods", "b", "eth0"),
        of("else", "b", "eth0"),
    ];
    let one = |container: &str, interface: &str| ValidAttachment {
        container: container.to_owned(),
        interface: interface.to_owned(),
    };
    let unused = |network: &str, valid: &[ValidAttachment]| unused(all.clone(), network, valid);
    assert_eq!(unused("pods", &[one("a", "eth0"), one("z", "eth0")]), all[1..3]);
    assert_eq!(unused("pods", &[]), all[..3]);
    assert_eq!(unused("nobody", &[]), []);
}
