use std::io::Write as _;

use sluice_api::client::LINE_SIZE_MAX;
use sluice_api::show::Question;

use super::*;

#[test]
fn requests_are_written_as_the_table_says() {
    for (request, text) in
        [(Request::Hello, r#""hello""#), (Request::Show(Question::Ports), r#"{"show":"ports"}"#)]
    {
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
    }
}

#[test]
fn request_truncated_or_malformed_is_error() {
    for text in ["\"hel", "\"bye\"\n", "\n", "{\"show\":\"weather\"}\n"] {
        let (client, server) = UnixStream::pair().unwrap();
        (&client).write_all(text.as_bytes()).unwrap();
        drop(client);
        assert!(read_request(&mut BufReader::new(server)).is_err(), "{text:?}");
    }
    let (client, server) = UnixStream::pair().unwrap();
    drop(client);
    assert_eq!(read_request(&mut BufReader::new(server)).unwrap(), None);
}

#[test]
fn request_failure_reported_in_its_own_words() {
    let error = expect::<Hello>(r#"{"error":"no"}"#).unwrap_err();
    assert_eq!(error.to_string(), "no");
    let hello = Hello { pid: 7, fingerprint: "f".into(), version: "v".into() };
    let line = serde_json::to_string(&hello).unwrap();
    assert_eq!(expect::<Hello>(&line).unwrap(), hello);
}

#[test]
fn unreadable_request_answered_with_reason() {
    let long = format!("{{\"del\":\"{}\"}}\n", "x".repeat(9_000_000));
    for (text, says) in
        [(long.as_str(), "does not end within 8388608 bytes"), ("\"bye\"\n", "unknown variant")]
    {
        let (client, server) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            // Nobody reads the end of the long one.
            scope.spawn(|| _ = (&client).write_all(text.as_bytes()));
            let mut reader = BufReader::new(server.try_clone().unwrap());
            assert_eq!(next_request(&server, &mut reader), None);
            server.shutdown(std::net::Shutdown::Both).unwrap();
        });
        drop(server);
        let line = read_line(&mut BufReader::new(client), LINE_SIZE_MAX).unwrap().unwrap();
        let error = expect::<Hello>(&line).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
