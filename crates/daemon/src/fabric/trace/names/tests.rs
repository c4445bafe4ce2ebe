use super::*;

#[test]
fn texts_name_addresses_before_ports() {
    let ip = |text: &str| Name::Ip(text.parse().unwrap());
    for (text, name) in [
        ("02:00:00:00:00:01", Name::Mac),
        ("10.0.0.7", ip("10.0.0.7")),
        ("fd00::7", ip("fd00::7")),
        ("web", Name::Port(None, "web")),
        ("h2/web", Name::Port(Some("h2"), "web")),
        ("10.0.0.300", Name::Port(None, "10.0.0.300")),
    ] {
        assert_eq!(Name::read(text), name, "{text}");
    }
}

#[test]
fn port_stands_for_its_only_endpoint() {
    let macs = ["02:00:00:00:00:01".to_owned(), "02:00:00:00:00:02".to_owned()];
    assert_eq!(only(&macs[..1], "web", "h1").unwrap(), macs[0]);
    assert!(only(&[], "web", "h1").unwrap_err().contains("let the machine send a frame"));
    assert!(only(&macs, "web", "h1").unwrap_err().contains(&macs[1]));
    assert!(only(&["\u{1b}[2J".to_owned()], "web", "h1").is_err());
}
