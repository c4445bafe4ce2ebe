use rcgen::KeyPair;
use serde_json::{Value, json};

use super::super::refusal::RefusedKind;
use super::*;

fn good() -> Value {
    let request = SigningRequest::make("h2", &KeyPair::generate().unwrap()).unwrap();
    json!({
        "format": FORMAT,
        "program": "0.1.0",
        "name": "h2",
        "vtep": "10.0.0.2",
        "address": "10.0.0.2:7474",
        "token": "00112233445566778899aabbccddeeff",
        "request": request,
    })
}

fn parse(value: &Value) -> Result<Joiner, Refused> {
    Joiner::parse(&serde_json::to_vec(value).unwrap())
}

#[test]
fn join_request_checked_part_by_part() {
    let mut value = good();
    value["of_a_later_version"] = json!({ "a": 1 });
    let joiner = parse(&value).unwrap();
    assert_eq!((joiner.name.as_str(), joiner.program.as_str()), ("h2", "0.1.0"));
    for (key, wrong, reason) in [
        ("name", json!("h3"), "only one for `h3` is signed"),
        ("name", json!("h 2"), "the name is none of a host"),
        ("name", json!("h".repeat(64)), "the name is none of a host"),
        ("vtep", json!("0.0.0.0"), "no address of one host"),
        ("vtep", json!("255.255.255.255"), "no address of one host"),
        ("vtep", json!("ff02::1"), "no address of one host"),
        ("address", json!("224.0.0.1:7474"), "no address of one host"),
        ("address", json!("10.0.0.2:0"), "no address of one host"),
        ("program", json!("\u{1b}[2J"), "the version of the program"),
        ("program", json!(""), "the version of the program"),
        ("token", json!("0011"), "the token is unreadable"),
        ("request", json!("x"), "no request for a certificate"),
        ("vtep", json!(7), "no request to join"),
        ("token", Value::Null, "no request to join"),
    ] {
        let mut value = good();
        value[key] = wrong.clone();
        let refused = parse(&value).unwrap_err();
        assert_eq!(refused.kind, RefusedKind::Request, "{key} {wrong}");
        assert!(refused.error.contains(reason), "{key} {wrong}: {refused}");
    }
    let refused = Joiner::parse(b"{").unwrap_err();
    assert_eq!(refused.kind, RefusedKind::Request);
    let refused = Joiner::parse(br#"{"format":2,"program":"\u001b"}"#).unwrap_err();
    assert_eq!(refused.kind, RefusedKind::Version);
    assert!(!refused.error.contains('\u{1b}'), "{refused}");
}

#[test]
fn join_refusal_of_member_cleaned_for_terminal() {
    let refused = Refused::new(RefusedKind::NameTaken, "\u{1b}[2J", "x".repeat(5_000));
    let line = serde_json::to_vec(&JoinAnswer::new(Outcome::Refused(refused))).unwrap();
    let Err(AnswerError::Refused(refused)) = JoinAnswer::parse(&line) else { panic!() };
    assert_eq!((refused.kind, refused.error.as_str()), (RefusedKind::NameTaken, "\u{fffd}[2J"));
    assert!(refused.remedy.len() < 500);
    let unknown = br#"{"format":1,"program":"9","outcome":{"refused":{"kind":"not_today",
        "error":"a","remedy":"b"}}}"#;
    let Err(AnswerError::Refused(refused)) = JoinAnswer::parse(unknown) else { panic!() };
    assert_eq!(refused.kind, RefusedKind::Other);
}

#[test]
fn join_answer_unreadable_or_of_other_version_told() {
    let joined = |fabric: &str, name: &str| {
        let member = json!({ "name": name, "id": 1, "address": "10.0.0.1:7474",
            "vtep": "10.0.0.1" });
        let joined = json!({ "fabric": fabric, "number": "07", "id": 2, "certificate": "",
            "authorities": [], "members": [member] });
        let outcome = json!({ "joined": joined });
        let answer = json!({ "format": FORMAT, "program": "1", "outcome": outcome });
        JoinAnswer::parse(&serde_json::to_vec(&answer).unwrap())
    };
    assert!(joined("prod", "h1").is_ok());
    assert_eq!(joined("prod\n", "h1"), Err(AnswerError::Unreadable));
    assert_eq!(joined("prod", "h\u{1b}1"), Err(AnswerError::Unreadable));
    let version = JoinAnswer::parse(br#"{"format":2,"program":"2.0.0"}"#);
    assert_eq!(version, Err(AnswerError::Version("2.0.0".to_owned())));
    for line in [&b""[..], b"[]", b"{}", br#"{"format":1}"#] {
        assert_eq!(JoinAnswer::parse(line), Err(AnswerError::Unreadable));
    }
}
