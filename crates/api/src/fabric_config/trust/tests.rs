use super::super::{FabricConfig, Operation, read_change, write_change};
use super::*;

fn entry(digit: char) -> AuthorityEntry {
    let fingerprint = digit.to_string().repeat(FINGERPRINT_SIZE);
    AuthorityEntry { fingerprint, certificate: format!("certificate {digit}") }
}

fn config() -> FabricConfig {
    let mut config = FabricConfig::new("prod").unwrap();
    let authorities = vec![entry('a').certificate];
    config.apply(&[Operation::SetAuthorities { authorities }]).unwrap();
    config
}

fn add(digit: char) -> Operation {
    Operation::AddAuthority { authority: entry(digit) }
}

fn sign(digit: char) -> Operation {
    Operation::SignBy { fingerprint: entry(digit).fingerprint }
}

fn remove(digit: char) -> Operation {
    Operation::RemoveAuthority { authority: entry(digit) }
}

#[test]
fn authority_replaced_in_three_steps() {
    let mut config = config();
    let trusted = |config: &FabricConfig| config.trust.trusted().join(", ");
    for (step, expected) in [
        (add('b'), "certificate a, certificate b"),
        (sign('b'), "certificate b, certificate a"),
        (remove('a'), "certificate b"),
    ] {
        let bytes = write_change(&[step]);
        // A roll-back leaves it.
        assert_eq!(config.apply(&read_change(&bytes).unwrap()).unwrap(), []);
        assert_eq!(trusted(&config), expected);
    }
    // Without a replacement under way an older program can read the configuration.
    assert!(!serde_json::to_string(&config).unwrap().contains("next"));
}

#[test]
fn next_authority_abandoned_until_it_signs() {
    let mut config = config();
    let abandon = |digit| Operation::AbandonAuthority { fingerprint: entry(digit).fingerprint };
    config.apply(&[add('b')]).unwrap();
    let bytes = write_change(&[abandon('b')]);
    assert_eq!(config.apply(&read_change(&bytes).unwrap()).unwrap(), []);
    assert_eq!(config.trust.trusted(), [entry('a').certificate]);
    // Another one may follow.
    config.apply(&[add('c')]).unwrap();
    for (before, digit) in [(None, 'b'), (None, 'a'), (Some(sign('c')), 'c')] {
        config.apply(before.as_slice()).unwrap();
        let error = config.apply(&[abandon(digit)]).unwrap_err().to_string();
        assert!(error.contains("is not about to follow"), "{error}");
    }
}

#[test]
fn revoked_certificates_go_with_their_authority() {
    let mut config = config();
    let revoke = |serial: &str| Operation::Revoke { serial: serial.to_owned(), host: "h3".into() };
    let revoked =
        |config: &FabricConfig| config.trust.revoked.keys().cloned().collect::<Vec<_>>().join(" ");
    config.apply(&[revoke("4A")]).unwrap();
    config.apply(&[add('b'), revoke("4b")]).unwrap();
    // From now on one may be of either.
    config.apply(&[sign('b')]).unwrap();
    config.apply(&[revoke("4c")]).unwrap();
    assert_eq!(revoked(&config), "4a 4b 4c");
    config.apply(&[remove('a')]).unwrap();
    assert_eq!(revoked(&config), "4c");
    assert!(!serde_json::to_string(&config).unwrap().contains("outgoing"));
    for serial in ["", "h3", &"0".repeat(SERIAL_SIZE_MAX + 1)] {
        let error = config.apply(&[revoke(serial)]).unwrap_err().to_string();
        assert!(error.contains("serial number"), "{error}");
    }
}

#[test]
fn authority_steps_out_of_order_refused() {
    let long = "0".repeat(CERTIFICATE_SIZE_MAX + 1);
    let large = AuthorityEntry { certificate: long, ..entry('b') };
    let vague = AuthorityEntry { fingerprint: "b".to_owned(), ..entry('b') };
    for (before, step, reason) in [
        (vec![], sign('b'), "is not the next one"),
        (vec![], remove('b'), "is not trusted"),
        (vec![], remove('a'), "another one has to follow it first"),
        (vec![], add('a'), "is trusted already"),
        (vec![], Operation::AddAuthority { authority: large }, "is larger than"),
        (vec![], Operation::AddAuthority { authority: vague }, "fingerprint is none"),
        (vec![add('b')], add('c'), "`sluice fabric rotate-ca` continues"),
        (vec![add('b')], sign('c'), "is not the next one"),
        (vec![add('b')], remove('b'), "is not trusted"),
        (vec![add('b'), sign('b')], add('c'), "`sluice fabric rotate-ca` continues"),
        (vec![add('b'), sign('b')], remove('b'), "signs"),
        (vec![add('b'), sign('b')], sign('b'), "is not the next one"),
    ] {
        let mut config = config();
        config.apply(&before).unwrap();
        let unchanged = config.clone();
        let error = config.apply(&[step]).unwrap_err().to_string();
        assert!(error.contains(reason), "`{reason}` is not in: {error}");
        assert_eq!(config, unchanged);
    }
}
