use serde_json::{Value, json};

use super::*;

#[test]
fn moments_are_written_as_rfc_3339() {
    for (millis, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (1_772_366_400_123, "2026-03-01T12:00:00.123Z"),
        (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(rfc3339(millis), text);
    }
}

fn around(object: &str, host: Option<&str>) -> Value {
    let who = host.map(|host| HostIdentity { host: host.to_owned(), program: "9.9".to_owned() });
    serde_json::from_str(&Envelope::now(who).around(object)).unwrap()
}

#[test]
fn envelope_around_answer_keeps_answer_keys() {
    let answer = around(r#"{"members":[{"host":"h2"}]}"#, Some("h1"));
    assert_eq!(answer["members"], json!([{"host": "h2"}]));
    assert_eq!((&answer["format"], &answer["program"]), (&json!(1), &json!("9.9")));
    assert_eq!(answer["host"], "h1");
    assert_eq!(answer["time"].as_str().map(str::len), Some("2026-03-01T12:00:00.123Z".len()));
}

#[test]
fn host_of_an_answer_stands_once() {
    let text = Envelope::now(None).around(r#"{"version":2,"host":"h1"}"#);
    assert_eq!(text.matches("\"host\"").count(), 1, "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["host"], "h1");
    let text = Envelope::now(None).around(r#"{"host":"h1","program":"9.9"}"#);
    assert_eq!(text.matches("\"program\"").count(), 1, "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["program"], "9.9");
}

#[test]
fn empty_answer_and_names_with_quotes_are_objects() {
    assert_eq!(around(" { } ", None)["host"], Value::Null);
    assert_eq!(around("{}", Some("a\"b"))["host"], "a\"b");
}

#[test]
fn failure_says_what_to_do() {
    let failed = Failed::new("no host answers; start it", "no host answers; start it: gone".into());
    assert_eq!((&*failed.error, &*failed.remedy), ("no host answers; start it: gone", "start it"));
    assert!(!Failed::new("odd", "odd".to_owned()).remedy.is_empty());
}
