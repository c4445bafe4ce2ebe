use sluice_api::port::NewPort;

use super::*;

#[test]
fn number_without_fraction_is_integer() {
    let port = |mtu: &str| {
        let text = format!(r#"{{"place": {{"pid": 7.0}}, "vnet": "blue", "mtu": {mtu}}}"#);
        read::<NewPort>(text.as_bytes())
    };
    for mtu in ["1400", "1400.0", "14e2", "1.4E+3"] {
        assert_eq!(port(mtu).unwrap().mtu, Some(1_400), "{mtu}");
    }
    for wrong in ["1400.5", "-8.0", "65536.0", "1e300", "\"8.0\""] {
        assert!(port(wrong).is_err(), "{wrong}");
    }
    // Without such a number, the place of the mistake is told.
    let error = read::<NewPort>(br#"{"place": "host"}"#).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}
