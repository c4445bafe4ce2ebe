use super::{Cidr, NewPort, Place};

#[test]
fn an_address_is_read_with_and_without_a_prefix_and_refused_by_name() {
    for (text, shown) in [
        ("10.0.0.7/24", "10.0.0.7/24"),
        ("10.0.0.7", "10.0.0.7/32"),
        ("fd00::7/64", "fd00::7/64"),
        ("fd00::7", "fd00::7/128"),
        ("10.0.0.7/0", "10.0.0.7/0"),
    ] {
        assert_eq!(text.parse::<Cidr>().unwrap().to_string(), shown);
    }
    for (text, part) in [
        ("10.0.0/24", "no address"),
        ("10.0.0.7/", "no address"),
        ("10.0.0.7/-1", "no address"),
        ("10.0.0.7/33", "longer than the address"),
        ("fd00::7/129", "longer than the address"),
        ("0.0.0.0/0", "not the address of one"),
        ("224.0.0.1", "not the address of one"),
        ("255.255.255.255", "not the address of one"),
        ("", "no address"),
    ] {
        let error = text.parse::<Cidr>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_new_port_is_a_line_that_says_no_more_than_was_said() {
    let new = NewPort {
        place: Place::Netns("web".to_owned()),
        vnet: "blue".to_owned(),
        name: None,
        device: None,
        ips: vec!["10.0.0.7/24".parse().unwrap()],
        mac: None,
    };
    let line = serde_json::to_string(&new).unwrap();
    assert_eq!(line, r#"{"place":{"netns":"web"},"vnet":"blue","ips":["10.0.0.7/24"]}"#);
    assert_eq!(serde_json::from_str::<NewPort>(&line).unwrap(), new);
    assert!(serde_json::from_str::<NewPort>(&line.replace("/24", "/99")).is_err());
}
