use super::*;

#[test]
fn loopback_has_its_addresses() {
    let card = look(None, "lo").unwrap();
    assert_eq!((card.device.index, card.device.mtu), (1, 65536));
    assert!(card.addresses.contains(&([127, 0, 0, 1].into(), 8)), "{card:?}");
    // Its own routes are in the table of local ones.
    assert!(card.routes.iter().all(|(_, _, gateway)| gateway.is_none()), "{card:?}");
}

#[test]
fn device_that_is_missing_is_named() {
    let error = look(None, "sl-none").unwrap_err().to_string();
    assert!(error.starts_with("device sl-none: cannot look it up"), "{error}");
    let error = look(Some(Path::new("/run/netns/sl-none")), "lo").unwrap_err().to_string();
    assert!(error.starts_with("network namespace /run/netns/sl-none: cannot open it"), "{error}");
}
