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

/// A process that hangs accepts nobody: who asks it must not hang with it.
#[test]
fn connection_to_full_queue_given_up() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let dir = std::env::temp_dir().join(format!("sluice-queue-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(run_dir::DATA_SOCKET);
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let first = connect_within(&dir, Duration::from_secs(5)).unwrap();
    let within = Duration::from_millis(30);
    let error = connect_within(&dir, within).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(silence(&error).contains("hangs"), "{}", silence(&error));
    // One that accepts meanwhile is asked.
    let waits = std::thread::spawn({
        let dir = dir.clone();
        move || connect_within(&dir, Duration::from_secs(60))
    });
    drop(rustix::net::accept(&listener).unwrap());
    assert!(waits.join().unwrap().is_ok());
    drop(first);
    std::fs::remove_dir_all(&dir).unwrap();
}
