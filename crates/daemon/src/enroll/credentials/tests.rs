use super::*;

const NOW: i64 = 1_800_000_000;

fn created() -> Credentials {
    Credentials::create("h1", NOW).unwrap()
}

#[test]
fn credentials_renewal_due_from_thirty_days_on() {
    let made = created();
    let left = made.days_left(NOW);
    assert!((364..=365).contains(&left), "{left}");
    let at = |days_left: i64| NOW + (left - days_left) * DAY;
    for (days_left, due) in [(left, false), (31, false), (30, true), (0, true), (-9, true)] {
        assert_eq!(made.renewal_due(at(days_left)), due, "{days_left} days left");
    }
    // The host signs for itself, also when its certificate is over.
    let renewed = made.renewed(at(-9)).unwrap();
    assert_eq!((renewed.key(), renewed.days_left(at(-9))), (made.key(), left));
    assert!(!renewed.renewal_due(at(-9)));
    let rekeyed = made.rekeyed(NOW).unwrap();
    assert_ne!(rekeyed.key(), made.key());
    assert_eq!(rekeyed.authorities(), made.authorities());
}

#[test]
fn credentials_follow_new_authority_in_order_only() {
    let made = created();
    let next = Authority::create(NOW).unwrap();
    let [old, new] = [made.authorities()[0].clone(), next.pem().certificate.clone()];
    let error = made.reissued_by(next.pem(), NOW).unwrap_err();
    assert!(matches!(error, CredentialsError::Untrusted), "it is not trusted yet");
    let error = made.trusting(vec![new.clone()], NOW).unwrap_err();
    assert!(matches!(error, CredentialsError::Untrusted), "the certificate is of the old one");
    let both = made.trusting(vec![old.clone(), new.clone()], NOW).unwrap();
    let reissued = both.reissued_by(next.pem(), NOW).unwrap();
    assert_eq!(reissued.authority().unwrap().fingerprint(), next.fingerprint());
    let error = reissued.trusting(vec![old], NOW).unwrap_err();
    assert!(matches!(error, CredentialsError::Untrusted), "there is no way back");
    assert_eq!(reissued.trusting(vec![new.clone()], NOW).unwrap().authorities(), [new]);
}

#[test]
fn credentials_of_parts_that_differ_refused() {
    let (made, other) = (created(), created());
    let authority = made.authority_pem().cloned();
    let assemble = |name: &str, certificate: &str, key: &str, authorities: &[String]| {
        let pair = (certificate.to_owned(), key.to_owned());
        let made = Credentials::assemble(name, pair, authorities.to_vec(), authority.clone(), NOW);
        made.map_err(|error| error.to_string())
    };
    let (certificate, key, trusted) = (made.certificate(), made.key(), made.authorities());
    assert_eq!(assemble("h1", certificate, key, trusted).unwrap(), made);
    let many = vec![trusted[0].clone(); AUTHORITIES_MAX + 1];
    for (result, reason) in [
        (assemble("h2", certificate, key, trusted), "is not that of `h2`"),
        (assemble("h1", other.certificate(), key, trusted), "no authority that is trusted"),
        (assemble("h1", certificate, other.key(), trusted), "does not belong to its certificate"),
        (assemble("h1", certificate, key, other.authorities()), "no authority that is trusted"),
        (assemble("h1", certificate, key, &[]), "(`ca.pem`) are unusable"),
        (assemble("h1", certificate, key, &many), "(`ca.pem`) are unusable"),
        (assemble("h1", certificate, key, &[certificate.to_owned()]), "(`ca.pem`) are unusable"),
        (assemble("h1", "", key, trusted), "(`host.pem`) is unusable"),
        (assemble("h1", certificate, "", trusted), "(`host.key`) is unusable"),
    ] {
        let error = result.unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    assert!(!format!("{made:?}").contains("PRIVATE"));
}

#[test]
fn credentials_without_authority_sign_nothing() {
    let made = created();
    let pair = (made.certificate().to_owned(), made.key().to_owned());
    let guest = Credentials::assemble("h1", pair, made.authorities().to_vec(), None, NOW).unwrap();
    let error = guest.renewed(NOW).unwrap_err().to_string();
    assert!(error.contains("ask another member"), "{error}");
}

#[test]
fn certificates_of_one_text_split() {
    let (one, other) = (created(), created());
    let [one, other] = [one.certificate(), other.certificate()];
    assert_eq!(split(&format!("{one}\n{other}junk")), [one, other]);
    assert!(split("").is_empty() && split("-----BEGIN CERTIFICATE-----").is_empty());
    assert_eq!(common_name(one).as_deref(), Some("h1"));
}
