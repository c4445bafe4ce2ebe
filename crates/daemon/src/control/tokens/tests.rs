use std::fs;

use sluice_api::access::Role;

use super::*;

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("sluice-tokens-{name}-{}", std::process::id()));
    _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn viewer(name: &str) -> Grant {
    Grant { name: name.to_owned(), role: Role::Viewer, vnets: Vec::new(), netns: Vec::new() }
}

fn new(name: &str, days: Option<u32>) -> NewToken {
    let (vnets, netns) = (Vec::new(), Vec::new());
    NewToken { name: name.to_owned(), role: Role::Viewer, vnets, netns, days }
}

#[test]
fn token_grants_until_revoked_and_after_restart() {
    let dir = dir("grants");
    let tokens = ApiTokens::load(&dir);
    let made = tokens.make(new("grafana", None)).unwrap();
    assert!(made.token.starts_with(PREFIX) && made.token.len() == PREFIX.len() + 64);
    let stored = fs::read_to_string(dir.join(FILE)).unwrap();
    assert!(!stored.contains(&made.token[PREFIX.len()..]), "its text is kept nowhere");

    let again = ApiTokens::load(&dir);
    for tokens in [&tokens, &again] {
        assert_eq!(tokens.grant(&made.token), Some(viewer("grafana")));
        for wrong in ["", PREFIX, &made.token[1..], &made.token.to_uppercase()] {
            assert_eq!(tokens.grant(wrong), None);
        }
    }
    let why = again.make(new("grafana", None)).unwrap_err();
    assert!(why.contains("sluice api revoke grafana"), "{why}");
    assert_eq!(again.list().unwrap().tokens, [made.entry]);
    assert!(again.revoke("other").unwrap_err().contains("no token `other`"));
    again.revoke("grafana").unwrap();
    assert_eq!(again.grant(&made.token), None);
    assert_eq!(ApiTokens::load(&dir).list().unwrap(), Tokens::default());
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn expired_token_grants_nothing_and_goes() {
    let dir = dir("expired");
    let tokens = ApiTokens::load(&dir);
    for days in [0, DAYS_MAX + 1] {
        assert!(tokens.make(new("short", Some(days))).unwrap_err().contains("1 to 3650 days"));
    }
    let made = tokens.make(new("short", Some(1))).unwrap();
    assert_eq!(made.entry.expires_ms, Some(made.entry.made_ms + DAY_MS));
    assert!(tokens.grant(&made.token).is_some());
    tokens.records().as_mut().unwrap()[0].entry.expires_ms = Some(made.entry.made_ms);
    assert_eq!(tokens.grant(&made.token), None);
    let next = tokens.make(new("short", None)).unwrap();
    assert_eq!(tokens.list().unwrap().tokens, [next.entry]);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn unreadable_file_is_neither_used_nor_replaced() {
    let dir = dir("unreadable");
    for text in ["{", r#"{"format":2,"tokens":[]}"#, r#"{"format":1,"tokens":[{"name":"x"}]}"#] {
        fs::write(dir.join(FILE), text).unwrap();
        let tokens = ApiTokens::load(&dir);
        assert_eq!(tokens.grant("sluice-api-"), None);
        for why in [
            tokens.make(new("x", None)).unwrap_err(),
            tokens.list().unwrap_err(),
            tokens.revoke("x").unwrap_err(),
        ] {
            assert!(why.contains(FILE) && why.contains("move it away"), "{why}");
        }
        assert_eq!(fs::read_to_string(dir.join(FILE)).unwrap(), text);
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn tokens_are_bounded_and_kept_only_when_written() {
    let dir = dir("bounded");
    let tokens = ApiTokens::load(&dir);
    tokens.make(new("t0", None)).unwrap();
    let one = tokens.records().as_ref().unwrap()[0].clone();
    tokens.records().as_mut().unwrap().resize(TOKENS_MAX, one);
    assert!(tokens.make(new("more", None)).unwrap_err().contains("at most 256"));
    fs::remove_dir_all(&dir).unwrap();
    let why = tokens.revoke("t0").unwrap_err();
    assert!(why.starts_with("nothing has changed"), "{why}");
    assert_eq!(tokens.list().unwrap().tokens.len(), TOKENS_MAX);
}
