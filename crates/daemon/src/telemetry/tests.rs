use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;

fn trace() -> Trace {
    let part = Span::new("reserve".to_owned(), Nanos(1_000), Nanos(2_500));
    let failed = Span { failed: Some("no".to_owned()), ..part.clone() };
    let root = Span::new("transaction".to_owned(), Nanos(1_000), Nanos(3_000));
    Trace { root, attributes: vec![("sluice.revision", "7".to_owned())], spans: vec![part, failed] }
}

#[test]
fn spans_have_trace_parent_and_times() {
    let text: Value = serde_json::from_str(&encoded(&trace(), "h1", 5)).unwrap();
    let spans = text["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let [root, part, failed] = &**spans else { panic!("{text}") };
    assert_eq!(root["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(root["spanId"].as_str().unwrap().len(), 16);
    for span in [part, failed] {
        assert_eq!(span["traceId"], root["traceId"]);
        assert_eq!(span["parentSpanId"], root["spanId"]);
        assert_ne!(span["spanId"], root["spanId"]);
    }
    assert_eq!(
        (&part["startTimeUnixNano"], &part["endTimeUnixNano"]),
        (&"1005".into(), &"2505".into())
    );
    assert_eq!(failed["status"], json!({ "code": 2, "message": "no" }));
    assert_eq!(root["attributes"][0], attribute("sluice.revision", "7"));
}

/// A collector that takes no connection keeps nobody: what finds no room is dropped, and counted.
#[test]
fn collector_that_hangs_delays_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let exporter = Exporter::start(&HttpTraces { endpoint, ca: None }, "h1").unwrap();
    let before = counts();
    let began = Instant::now();
    let many = u64::try_from(QUEUE_MAX).unwrap() + 20;
    (0..many).for_each(|_| exporter.send(trace()));
    assert!(began.elapsed() < STEP_MAX, "it was waited for");
    // One is being sent, and the queue is full of others.
    assert!(counts().1 - before.1 >= 19, "{:?} {before:?}", counts());
}

#[test]
fn status_of_collector_decides() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let answers = ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 503 Busy\r\n\r\n", "nonsense\n", ""];
    let served = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = Vec::new();
            while !text.ends_with(b"{}") {
                let mut part = [0; 1024];
                let size = stream.read(&mut part).unwrap();
                text.extend_from_slice(&part[..size]);
            }
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{text}");
            assert!(text.contains("Content-Length: 2\r\n"), "{text}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let at = CollectorAddress { at, path: "/v1/traces".to_owned(), ca: None };
    let collector = Collector { at, host: "h1".to_owned() };
    assert!(collector.post("{}").is_ok());
    for part in ["503", "``", "``"] {
        let why = collector.post("{}").unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    }
    served.join().unwrap();
}

/// Makes a server for 127.0.0.1 with an authority of its own, which is returned in PEM.
fn certified() -> (Arc<ServerConfig>, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key)
        .unwrap();
    (Arc::new(config), pem)
}

#[test]
fn collector_of_known_authority_gets_traces_by_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (config, pem) = certified();
    let served = std::thread::spawn(move || {
        let mut taken = Vec::new();
        for _ in 0..3 {
            let (stream, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let (mut text, mut part) = (Vec::new(), [0; 1024]);
            while !text.ends_with(b"{}") {
                match stream.read(&mut part) {
                    Ok(size) if size > 0 => text.extend_from_slice(&part[..size]),
                    // The client does not trust the certificate.
                    _ => break,
                }
            }
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            _ = stream.flush();
            taken.push(text.len());
        }
        taken
    });
    let file = |name: &str, text: &str| -> PathBuf {
        let file = std::env::temp_dir().join(format!("sluice-{name}-{}.pem", std::process::id()));
        std::fs::write(&file, text).unwrap();
        file
    };
    let (ca, other) = (file("collector", &pem), file("collector-other", &certified().1));
    let post = |ca: &PathBuf| {
        let at = CollectorAddress { at, path: "/v1/traces".to_owned(), ca: Some(ca.clone()) };
        Collector { at, host: "h1".to_owned() }.post("{}")
    };
    post(&ca).unwrap();
    let why = post(&other).unwrap_err().to_string();
    assert!(why.contains("certificate"), "{why}");
    // The file is replaced, as a new authority replaces the old one.
    std::fs::copy(&ca, &other).unwrap();
    post(&other).unwrap();
    let taken = served.join().unwrap();
    assert_eq!(taken[1], 0, "nothing is sent to a stranger");
    assert!(taken[0] > 0 && taken[2] > 0, "{taken:?}");
    std::fs::write(&ca, "nothing").unwrap();
    let why = post(&ca).unwrap_err().to_string();
    assert!(why.contains("collector"), "the file is named: {why}");
    for file in [ca, other] {
        std::fs::remove_file(file).unwrap();
    }
}
