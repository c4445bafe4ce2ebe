use super::*;

fn authority() -> String {
    "ab".repeat(32)
}

#[test]
fn beacon_of_member_and_waiting_host_read_back() {
    let waiting = Beacon::waiting("h2", 7474).unwrap();
    let member = Beacon::member("h1", 7474, ("prod", &authority())).unwrap();
    for beacon in [&waiting, &member] {
        assert_eq!(Beacon::parse(&beacon.datagram()).as_ref(), Ok(beacon));
    }
    assert_eq!(waiting.fabric(), None);
    assert_eq!(member.fabric().unwrap().name(), "prod");
    assert_eq!(member.fabric().unwrap().authority(), authority());
    assert_eq!((member.host(), member.port()), ("h1", 7474));
    assert_eq!(member.program(), env!("CARGO_PKG_VERSION"));
    let longest = "h".repeat(TEXT_SIZE_MAX);
    let longest = Beacon::member(&longest, 65535, (&longest, &authority())).unwrap();
    assert!(longest.datagram().len() <= BEACON_SIZE_MAX);
}

#[test]
fn beacon_unprintable_long_or_foreign_refused() {
    let (text, form) = (BeaconError::Text, BeaconError::Form);
    let with = |host: &str, fabric: &str| {
        format!(r#"{{"sluice":1,"host":{host},"program":"1","port":1{fabric}}}"#).into_bytes()
    };
    let a65 = format!("\"{}\"", "a".repeat(65));
    for (datagram, error) in [
        (with(r#""\u001b[2J""#, ""), text),
        (with(r#""""#, ""), text),
        (with(r#""a b""#, ""), text),
        (with("\"h\u{202e}1\"", ""), text),
        (with(&a65, ""), text),
        (with(r#""h1""#, r#","fabric":{"name":"p","authority":"00"}"#), text),
        (with(r#""h1""#, r#","fabric":{"name":"p"}"#), form),
        (with("7", ""), form),
        (br#"{"sluice":2}"#.to_vec(), BeaconError::Format),
        (b"{}".to_vec(), form),
        (b"".to_vec(), form),
        (vec![b'['; BEACON_SIZE_MAX], form),
        (vec![b' '; BEACON_SIZE_MAX + 1], BeaconError::Size),
    ] {
        let shown = String::from_utf8_lossy(&datagram).into_owned();
        assert_eq!(Beacon::parse(&datagram), Err(error), "{shown}");
    }
    assert_eq!(Beacon::waiting("", 1), Err(text));
    assert_eq!(Beacon::member("h1", 1, ("a\nb", &authority())), Err(text));
}
