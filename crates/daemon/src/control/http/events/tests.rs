use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};

use sluice_api::fabric::EventRow;

use super::super::api::Api;
use super::super::tests::problem_in;
use super::super::{LIMITS, Limits, accept};
use super::*;
use crate::control::answering::Answering;

/// A host whose events come from the test.
struct Host {
    path: PathBuf,
    told: Receiver<SyncSender<Answer>>,
    answering: Arc<Answering>,
}

impl Host {
    fn start(name: &str, limits: Limits) -> Self {
        let path =
            std::env::temp_dir().join(format!("sluice-events-{name}-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let (tell, told) = sync_channel(16);
        let tell = Mutex::new(tell);
        let watch = move || {
            let (sender, events) = sync_channel(1024);
            tell.lock().unwrap().send(sender).map_err(|_| "nobody".to_owned())?;
            Ok(events)
        };
        let api = Api::new("h1", Arc::new(|_| Err("nobody".to_owned()))).watching(Arc::new(watch));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let answering = Arc::<Answering>::default();
        let counted = Arc::clone(&answering);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                accept::serve(listener, limits, (api.router(), counted)).await;
            });
        });
        Self { path, told, answering }
    }

    fn watch(&self, query: &str) -> BufReader<UnixStream> {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("GET /v1/events{query} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        BufReader::new(stream)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

fn event(what: &str) -> Answer {
    Answer::Event(EventRow { at_ns: 7, event: "host-up".to_owned(), what: what.to_owned() })
}

/// Reads lines up to one that has these words.
fn read_to(stream: &mut BufReader<UnixStream>, words: &str) -> String {
    let mut all = String::new();
    while !all.contains(words) {
        assert!(stream.read_line(&mut all).unwrap() > 0, "it ends before `{words}`: {all}");
    }
    all
}

#[test]
fn watcher_lasts_and_is_not_waited_for() {
    let limits = Limits { connection_max: Duration::from_millis(100), ..LIMITS };
    let host = Host::start("lasts", limits);
    let mut stream = host.watch("");
    let events = host.told.recv().unwrap();
    let head = read_to(&mut stream, ": from now on");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    std::thread::sleep(Duration::from_millis(300));
    events.send(event("h2\nh3")).unwrap();
    let text = read_to(&mut stream, "data: ");
    assert!(text.contains("event: host-up\ndata: {\"at_ns\":7,"), "{text}");
    assert!(text.contains("h2\\nh3"), "an event is one line: {text}");
    // The process may become another one.
    assert!(host.answering.finish());
    drop(events);
    assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "it ends with its source");
}

#[test]
fn watchers_are_bounded_in_time_and_number() {
    let host = Host::start("bounded", LIMITS);
    let mut text = String::new();
    host.watch("?seconds=0").read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 200 ") && text.ends_with(": from now on\n\n"), "{text}");
    let _first = host.told.recv().unwrap();
    // One that has ended gives its place back a moment later.
    let watch = || loop {
        let mut stream = host.watch("");
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.contains(" 200 ") {
            read_to(&mut stream, ": from now on");
            return (stream, host.told.recv().unwrap());
        }
    };
    let mut all: Vec<_> = (0..WATCHERS_MAX).map(|_| watch()).collect();
    let mut text = String::new();
    host.watch("").read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 503 "), "{text}");
    assert_eq!(problem_in(&text).code, "busy");
    // A client that goes gives its place back with the next event.
    let (stream, events) = all.pop().unwrap();
    drop(stream);
    while events.send(event("h2")).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    all.push(watch());
    let mut text = String::new();
    host.watch("?minutes=1").read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 400 "), "{text}");
}
