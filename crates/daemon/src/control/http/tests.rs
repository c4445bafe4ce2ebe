use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::sampler::tests::large;
use super::*;
use crate::control::sample::tests::{silent, well};
use crate::control::tokens::ApiTokens;
use crate::metrics::Sample;

/// A server with small bounds on a socket of its own.
struct Server {
    path: PathBuf,
    samples: Arc<AtomicUsize>,
}

impl Server {
    fn start(name: &str, limits: Limits, take: fn() -> Sample) -> Self {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("sluice-http-{name}-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let samples = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&samples);
        let sampler = Sampler::with(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            take()
        });
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = |request| Err(format!("nobody answers {request:?}; ask nobody"));
        let tokens = Arc::new(ApiTokens::load(std::path::Path::new("/nonexistent")));
        let keys = Arc::new(Keys::new(tokens, Vec::new()));
        let router = router(sampler.unwrap(), Api::new("h1", Arc::new(answer)), keys);
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                accept::serve(listener, limits, (router, Arc::default())).await;
            });
        });
        Self { path, samples }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes, and returns all that is answered before the connection ends.
    fn say(&self, request: &str) -> String {
        let mut stream = self.connect();
        _ = stream.write_all(request.as_bytes());
        read(stream)
    }

    fn get(&self, path: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: h1\r\n\r\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

/// Reads until the other side ends the connection; a reset is an end.
fn read(mut stream: UnixStream) -> String {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(size) => all.extend_from_slice(&part[..size]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the connection does not end: {error}"),
        }
    }
    String::from_utf8(all).unwrap()
}

pub(super) fn problem_in(answer: &str) -> Problem {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

#[test]
fn paths_answered_with_status_type_and_problem() {
    let server = Server::start("paths", LIMITS, well);
    let metrics = server.get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains("\nsluice_data_up 1\n"), "{metrics}");
    let health = server.get("/healthz");
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n"), "{health}");
    assert!(health.contains(r#""healthy":true"#), "{health}");

    let other = server.get("/metric%22s?x=1");
    assert!(other.starts_with("HTTP/1.1 404 Not Found\r\n"), "{other}");
    let problem = problem_in(&other);
    assert_eq!(problem.code, "not_found");
    assert!(problem.message.contains("/metric%22s") && !problem.remedy.is_empty());
    let post = server.say("POST /metrics HTTP/1.1\r\nHost: h1\r\nContent-Length: 2\r\n\r\n{}");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    assert_eq!(problem_in(&post).code, "method_not_allowed");
    let head = server.say("HEAD /metrics HTTP/1.1\r\nHost: h1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn silent_data_process_makes_host_unhealthy() {
    let server = Server::start("silent", LIMITS, silent);
    let health = server.get("/healthz");
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    let problem = problem_in(&health);
    assert_eq!((problem.code.as_str(), problem.message.as_str()), ("data_silent", "it hangs"));
    // The metrics say so, too, and are there.
    assert!(server.get("/metrics").contains("\nsluice_data_up 0\n"));
}

#[test]
fn accept_header_chooses_format() {
    let format = |accept: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, value.parse().unwrap());
        }
        format_of(&headers)
    };
    let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                      version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for open in [
        &[prometheus][..],
        &["application/openmetrics-text"],
        &["text/plain;q=0.5", "application/openmetrics-text; version=\"1.0.0\"; q=0.5"],
    ] {
        assert_eq!(format(open), Format::OpenMetrics, "{open:?}");
    }
    for plain in [
        &[][..],
        &["*/*"],
        &["text/plain"],
        &["application/openmetrics-text;version=0.0.1"],
        &["application/openmetrics-text;q=0"],
        &["application/openmetrics-text;q=0.4,text/plain"],
        &["application/openmetrics-text;q=two"],
        &["application/openmetrics-text;q=0.00001"],
    ] {
        assert_eq!(format(plain), Format::Prometheus, "{plain:?}");
    }
}

#[test]
fn malformed_and_oversize_requests_refused() {
    let server = Server::start("malformed", LIMITS, well);
    let garbage = server.say("\u{0}\u{1}\u{2} nonsense\r\n\r\n");
    assert!(garbage.starts_with("HTTP/1.1 400 "), "{garbage}");
    let long = "x".repeat(2 * HEAD_SIZE_MAX);
    let large = server.say(&format!("GET /metrics HTTP/1.1\r\nHost: h1\r\nX: {long}\r\n\r\n"));
    assert!(large.starts_with("HTTP/1.1 431 ") || large.is_empty(), "{large}");
    let many: String = (0..=HEADERS_MAX).map(|at| format!("x{at}: 1\r\n")).collect();
    let many = server.say(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"));
    assert!(many.starts_with("HTTP/1.1 431 "), "{many}");
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
}

/// A client that sends nothing, or a byte at a time, is ended in time.
#[test]
fn slow_head_ends_connection() {
    let head_max = Duration::from_millis(300);
    let server = Server::start("slow", Limits { head_max, ..LIMITS }, well);
    let (silent, mut slow) = (server.connect(), server.connect());
    let began = Instant::now();
    std::thread::spawn(move || {
        for byte in b"GET /metrics HTTP/1.1\r\nHost: h1\r\n".iter().cycle() {
            if slow.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(read(silent), "");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Clients that only connect cannot keep one out that asks.
#[test]
fn idle_connections_do_not_keep_others_out() {
    let limits = Limits { connections_max: 4, ..LIMITS };
    let server = Server::start("idle", limits, well);
    let mut idle: Vec<UnixStream> = (0..50).map(|_| server.connect()).collect();
    for _ in 0..10 {
        assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
    }
    // The oldest have been ended, with nothing.
    assert_eq!(read(idle.remove(0)), "");
}

/// A client that asks and does not read its answer is ended in time, too, and delays nobody.
#[test]
fn unread_answer_ends_connection() {
    let limits = Limits { connection_max: Duration::from_secs(10), ..LIMITS };
    let server = Server::start("unread", limits, large);
    let mut unread = server.connect();
    unread.write_all(b"GET /metrics HTTP/1.1\r\nHost: h1\r\n\r\n").unwrap();
    let whole = server.get("/metrics").len();
    let began = Instant::now();
    while unread.write_all(b"x").is_ok() {
        assert!(began.elapsed() < Duration::from_secs(60), "the connection does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let part = read(unread).len();
    assert!(part > 0 && part < whole, "{part} of {whole} bytes: the rest found no room");
}

/// Many scrapes at once cost one sample.
#[test]
fn concurrent_scrapes_share_one_sample() {
    let server = Server::start("shared", LIMITS, well);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert!(server.get("/metrics").starts_with("HTTP/1.1 200 ")));
        }
    });
    let samples = u128::try_from(server.samples.load(Ordering::Relaxed)).unwrap();
    assert!(samples <= 1 + began.elapsed().as_millis() / 250, "{samples}");
}
