//! QEMU's monitor (QMP): one line of JSON for each question and each answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wait_for;

/// A connection to the monitor of a machine.
pub(crate) struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects, as soon as the machine listens.
    pub(crate) fn connect(path: &Path) -> Self {
        let mut stream = None;
        wait_for("a machine has a monitor", || {
            stream = UnixStream::connect(path).ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut monitor = Self { lines: BufReader::new(stream) };
        monitor.ask(&json!({ "execute": "qmp_capabilities" }));
        monitor
    }

    /// Asks a question and returns the answer; events are skipped.
    fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.lines.get_mut(), "{question}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "{question}: it hung up");
            let mut answer: Value = serde_json::from_str(&line).unwrap();
            assert!(answer.get("error").is_none(), "{question}: {answer}");
            if answer.get("return").is_some() {
                return answer["return"].take();
            }
        }
    }

    /// Moves the machine to one that waits at a socket. Returns its final report: times in ms,
    /// sizes in bytes.
    pub(crate) fn migrate(&mut self, to: &Path, time: Duration) -> Value {
        let uri = format!("unix:{}", to.display());
        self.ask(&json!({ "execute": "migrate", "arguments": { "uri": uri } }));
        let until = Instant::now() + time;
        loop {
            let state = self.ask(&json!({ "execute": "query-migrate" }));
            match state["status"].as_str() {
                Some("completed") => return state,
                Some("failed" | "cancelled") => panic!("the machine cannot be moved: {state}"),
                _ => assert!(Instant::now() < until, "it is not moved within {time:?}: {state}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
