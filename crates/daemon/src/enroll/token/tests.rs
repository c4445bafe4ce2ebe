use super::*;

const HOUR: u64 = 3_600_000;

fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint::of_key(&[n])
}

fn token() -> (Token, TokenRecord) {
    Token::new(fingerprint(1), 1_000, HOUR).unwrap()
}

#[test]
fn token_text_read_in_any_case_and_grouping() {
    let (token, _) = token();
    let text = token.text();
    assert_eq!(text.len(), PREFIX.len() + DIGITS + DIGITS / GROUP - 1);
    let bare = text.replacen('-', "_", 1).replace('-', "").replace('_', "-");
    for text in [
        text.clone(),
        text.to_uppercase(),
        format!("  {bare}\n"),
        text.replace('0', "o").replace('1', "l").replacen("sluicel", "sluice1", 1),
    ] {
        assert_eq!(text.parse(), Ok(token.clone()), "{text}");
    }
    assert!(token.is_of(&fingerprint(1)) && !token.is_of(&fingerprint(2)));
}

#[test]
fn token_mistyped_told_from_wrong_one() {
    let (token, _) = token();
    let text = token.text();
    for at in PREFIX.len()..text.len() {
        let old = text.as_bytes()[at];
        if old == b'-' {
            continue;
        }
        let new = if old == b'7' { "8" } else { "7" };
        let mut mistyped = text.clone();
        mistyped.replace_range(at..=at, new);
        assert_eq!(mistyped.parse::<Token>(), Err(TokenFormatError::Check), "digit {at}");
    }
    let (prefix, all) = (TokenFormatError::Prefix, text.as_str());
    for (text, error) in [
        ("", prefix),
        ("sluice", prefix),
        ("sluice2-", prefix),
        ("ä", prefix),
        ("sluice1-", TokenFormatError::Length(0)),
        (&all[..all.len() - 1], TokenFormatError::Length(DIGITS - 1)),
        (&format!("{all}0"), TokenFormatError::Length(DIGITS + 1)),
        (&all.replacen("e1-", "e1-u", 1), TokenFormatError::Character('u')),
        (&format!("{all}ß"), TokenFormatError::Character('ß')),
        (&"sluice1-".repeat(100), prefix),
    ] {
        assert_eq!(text.parse::<Token>(), Err(error), "{text}");
    }
}

#[test]
fn token_record_hides_secret_survives_json() {
    let (token, record) = token();
    let text = serde_json::to_string(&record).unwrap();
    assert!(!text.contains(&token.secret.digits()), "{text}");
    assert_eq!(serde_json::from_str::<TokenRecord>(&text).unwrap(), record);
    assert!(!format!("{token:?} {record:?}").contains(&token.secret.digits()));
    assert_eq!(TokenSecret::from_digits(&token.secret.digits()), Some(token.secret));
    for text in ["", "0", "zz", &"0".repeat(33), &"+1".repeat(16)] {
        assert_eq!(TokenSecret::from_digits(text), None, "{text}");
    }
}

#[test]
fn token_redeemed_once_again_by_same_host_alone() {
    let (token, mut record) = token();
    let (other, _) = self::token();
    let secret = token.secret();
    let h2 = ("h2", fingerprint(2));
    assert_eq!(record.redeem(secret, h2, 1_000), Ok(Redemption::First));
    assert_eq!(record.redeem(other.secret(), h2, 1_000), Err(TokenError::Wrong));
    assert_eq!(record.redeem(secret, h2, 1_000 + HOUR - 1), Ok(Redemption::First));
    assert_eq!(record.redeem(secret, h2, 1_000 + HOUR), Err(TokenError::Expired));
    record.used = Some(TokenUse { host: "h2".to_owned(), key: fingerprint(2) });
    assert_eq!(record.redeem(secret, h2, 1_000), Ok(Redemption::Again));
    assert_eq!(record.redeem(secret, h2, 1_000 + HOUR), Ok(Redemption::Again));
    for other in [("h3", fingerprint(2)), ("h2", fingerprint(3))] {
        assert_eq!(record.redeem(secret, other, 1_000), Err(TokenError::Used));
    }
    let records = [self::token().1, record];
    assert_eq!(redeem(&records, secret, h2, 1_000), Ok((secret.id(), Redemption::Again)));
    assert_eq!(redeem(&records, other.secret(), h2, 1_000), Err(TokenError::Wrong));
}

#[test]
fn token_valid_for_a_week_at_most() {
    let (_, record) = Token::new(fingerprint(1), 5, u64::MAX).unwrap();
    assert_eq!(record.expires_ms, 5 + VALID_MS_MAX);
    assert!(!record.is_over(4 + VALID_MS_MAX) && record.is_over(5 + VALID_MS_MAX));
}
