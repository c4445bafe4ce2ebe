use std::os::unix::net::UnixListener;

use super::*;

/// A plugin asked about a container of a host that is stopped must not ask the other one.
#[test]
fn stopped_host_is_one_of_several() {
    let root = std::env::temp_dir().join(format!("sluice-lasting-{}", std::process::id()));
    for host in ["h1", "h2"] {
        std::fs::create_dir_all(root.join(host)).unwrap();
    }
    std::fs::write(root.join("h2").join(SHOW_SOCKET), "").unwrap();
    assert_eq!(the_only_one(&root).unwrap(), root.join("h2").join(SHOW_SOCKET));
    let error = the_only_one_ever(&root).unwrap_err().to_string();
    assert!(error.contains("h1, h2"), "{error}");
    std::fs::remove_dir_all(root.join("h1")).unwrap();
    assert_eq!(the_only_one_ever(&root).unwrap(), root.join("h2").join(SHOW_SOCKET));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn show_without_host_name_needs_single_host() {
    let root = std::env::temp_dir().join(format!("sluice-{}-show", std::process::id()));
    let error = the_only_one(&root).unwrap_err().to_string();
    assert!(error.starts_with("no host runs under "), "{error}");
    let mut listeners = Vec::new();
    for name in ["h1", "h2"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
        listeners.push(UnixListener::bind(root.join(name).join(SHOW_SOCKET)).unwrap());
        if name == "h1" {
            assert_eq!(the_only_one(&root).unwrap(), root.join("h1").join(SHOW_SOCKET));
        }
    }
    let error = the_only_one(&root).unwrap_err().to_string();
    assert_eq!(error, "several hosts run here: h1, h2; name one with `--host NAME`");
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn busy_host_is_told_from_refusal() {
    assert_eq!(busy(16), "16 others are asking; try again");
    assert!(is_busy(&busy(16)));
    assert!(!is_busy("frames of deleted ports still take all places; try again in a moment"));
}

#[test]
fn refusal_is_in_the_hosts_own_words() {
    let error = expect::<Vec<u8>>(r#"{"error":"no"}"#).unwrap_err();
    assert!(matches!(&error, AnswerError::Refused(text) if text == "no"), "{error}");
    assert!(matches!(expect::<Vec<u8>>("{}"), Err(AnswerError::Unreadable(_))));
    assert_eq!(expect::<Vec<u8>>("[7]").unwrap(), [7]);
}

#[test]
fn refusal_is_read_though_request_is_not() {
    let (client, host) = UnixStream::pair().unwrap();
    write(&host, &Failure { error: busy(16) }).unwrap();
    drop(host);
    let line = ask(client, &Request::Ports).unwrap();
    assert!(matches!(expect::<u8>(&line), Err(AnswerError::Refused(text)) if is_busy(&text)));
    let (client, host) = UnixStream::pair().unwrap();
    drop(host);
    let error = ask(client, &Request::Ports).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
