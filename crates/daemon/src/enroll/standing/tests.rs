//! Tests of the messages of a member that asks how it stands.

use rustls::pki_types::pem::PemObject as _;

use super::super::credentials::Credentials;
use super::super::refusal::RefusedKind;
use super::*;

const NOW: i64 = 1_800_000_000;

fn certificate(name: &str) -> CertificateDer<'static> {
    let credentials = Credentials::create(name, NOW).unwrap();
    CertificateDer::from_pem_slice(credentials.certificate().as_bytes()).unwrap()
}

fn line(name: &str, id: u16) -> String {
    format!(r#"{{"format":1,"program":"0.1.0","name":"{name}","id":{id},"seat":9}}"#)
}

#[test]
fn asker_is_whom_its_certificate_names() {
    let shown = certificate("h3");
    let asker = Asker::parse(line("h3", 3).as_bytes(), Some(&shown)).unwrap();
    assert_eq!((asker.name.as_str(), asker.id, asker.seat), ("h3", 3, 9));
    assert_eq!(Some(asker.serial), serial(&shown));
}

#[test]
fn bad_questions_refused_by_name() {
    let shown = certificate("h3");
    let good = line("h3", 3);
    let long = line(&"x".repeat(64), 3);
    for (line, shown, reason) in [
        (good.as_str(), None, "has to show its certificate"),
        ("", Some(&shown), "does not ask how a host stands"),
        ("{}", Some(&shown), "does not ask how a host stands"),
        (r#"{"format":1,"name":"h3"}"#, Some(&shown), "does not ask how a host stands"),
        (&line("h2", 3), Some(&shown), "is that of another host"),
        (&line("h3", 0), Some(&shown), "the name or the number is none of a host"),
        (&line("h 3", 3), Some(&shown), "the name or the number is none of a host"),
        (&long, Some(&shown), "the name or the number is none of a host"),
    ] {
        let refused = Asker::parse(line.as_bytes(), shown).unwrap_err();
        assert_eq!(refused.kind, RefusedKind::Request, "{line}");
        assert!(refused.error.contains(reason), "{line}: {refused}");
    }
    let future = br#"{"format":9,"program":"7.7.7"}"#;
    let refused = Asker::parse(future, Some(&shown)).unwrap_err();
    assert_eq!(refused.kind, RefusedKind::Version);
}

/// Bytes that every later version has to read.
#[test]
fn answers_have_these_bytes() {
    let eviction =
        Eviction { revision: Some(18), by: Some("h1".to_owned()), at_ms: Some(1_767_225_600_000) };
    for (standing, text) in [
        (Standing::Member, r#""member""#),
        (
            Standing::Evicted(eviction),
            r#"{"evicted":{"revision":18,"by":"h1","at_ms":1767225600000}}"#,
        ),
        (Standing::Missing(Eviction::default()), r#"{"missing":{}}"#),
    ] {
        let answer = StandingAnswer { revision: 19, standing };
        let message = StandingMessage {
            format: FORMAT,
            program: "0.1.0".to_owned(),
            outcome: StandingOutcome::Standing(answer.clone()),
        };
        let line = serde_json::to_string(&message).unwrap();
        let head = r#"{"format":1,"program":"0.1.0","outcome":{"standing":{"revision":19,"#;
        let expected = format!(r#"{head}"standing":{text}}}}}}}"#);
        assert_eq!(line, expected);
        assert_eq!(StandingMessage::parse(line.as_bytes()), Ok(answer));
    }
}

#[test]
fn answer_with_control_characters_unreadable() {
    let line = br#"{"format":1,"program":"0.1.0","outcome":{"standing":{"revision":1,"standing":
        {"evicted":{"by":"\u001b[2J"}}}}}"#;
    assert_eq!(StandingMessage::parse(line), Err(AnswerError::Unreadable));
    let unknown = br#"{"format":1,"program":"0.1.0","outcome":{"later":{}}}"#;
    assert_eq!(StandingMessage::parse(unknown), Err(AnswerError::Unreadable));
}
