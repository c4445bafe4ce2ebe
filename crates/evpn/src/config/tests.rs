use super::*;

#[test]
fn targets_parsed_and_printed() {
    for text in ["65000:42", "65000:16777215", "4200000000:42", "192.0.2.1:42"] {
        let target: RouteTarget = text.parse().unwrap();
        assert_eq!(target.to_string(), text);
        assert_eq!(RouteTarget::of_community(target.octets()), Some(target));
    }
    for text in ["65000", "65000:", "x:1", "70000:65536", "192.0.2.1:65536", "4294967296:1"] {
        assert_eq!(text.parse::<RouteTarget>(), Err(ParseTargetError), "{text}");
    }
}

#[test]
fn target_of_as_in_octets() {
    assert_eq!(RouteTarget::of_as(65000, 100).octets(), [0, 2, 0xfd, 0xe8, 0, 0, 0, 100]);
    assert_eq!(RouteTarget::of_as(70000, 100).octets(), [2, 2, 0, 1, 0x11, 0x70, 0, 100]);
}

#[test]
fn other_communities_no_targets() {
    // Encapsulation (RFC 9012), MAC mobility (RFC 7432).
    for octets in [[3, 0x0c, 0, 0, 0, 0, 0, 8], [6, 0, 0, 0, 0, 0, 0, 1]] {
        assert_eq!(RouteTarget::of_community(octets), None);
    }
}
