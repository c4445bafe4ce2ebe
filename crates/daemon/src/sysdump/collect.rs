//! Getting what the plan names, each thing within its time. Several threads take items; a process
//! that does not end is killed, and a question that is not answered is left to itself.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use sluice_api::client::{UNANSWERED, is_busy, while_busy};
use sluice_api::envelope::{Envelope, HostIdentity};

use super::host::Found;
use super::plan::{Item, Source};
use crate::ipc::protocol::{self, Request};
use crate::sys::run_dir;

/// The largest file.
pub(super) const SIZE_MAX: u64 = 32 << 20;
/// Items that are got at a time.
const AT_ONCE: usize = 4;
/// Time in which a control process says who it is, if it answers at all.
const WHO_MAX: Duration = Duration::from_secs(2);
/// Time between two looks at a process.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const SILENT: &str = "the control process does not answer";

/// Bytes, an error, or both.
#[derive(Debug, Default)]
pub(super) struct Got {
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) error: Option<String>,
}

impl From<Result<String, String>> for Got {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(text) => Self { bytes: Some(text.into_bytes()), error: None },
            Err(error) => Self { bytes: None, error: Some(error) },
        }
    }
}

/// Gets all items, in their order. `told` hears how many are done.
pub(super) fn all(
    found: Found,
    items: Vec<Item>,
    told: &mut dyn FnMut(usize, &str),
) -> Vec<(Item, Got)> {
    let shared = Arc::new(Asker::new(found));
    let (items, next) = (Arc::new(items), Arc::new(AtomicUsize::new(0)));
    let (sender, receiver) = mpsc::sync_channel(items.len().max(1));
    for _ in 0..AT_ONCE.min(items.len()) {
        let (shared, items) = (Arc::clone(&shared), Arc::clone(&items));
        let (next, sender) = (Arc::clone(&next), sender.clone());
        std::thread::spawn(move || {
            while let Some((at, item)) = next_of(&next, &items) {
                // The receiver waits for all.
                _ = sender.send((at, shared.get(item)));
            }
        });
    }
    drop(sender);
    let mut all: Vec<Option<Got>> = items.iter().map(|_| None).collect();
    for (done, (at, got)) in receiver.into_iter().enumerate() {
        told(done + 1, &items[at].path);
        all[at] = Some(got);
    }
    items.iter().cloned().zip(all.into_iter().map(Option::unwrap_or_default)).collect()
}

fn next_of<'a>(next: &AtomicUsize, items: &'a [Item]) -> Option<(usize, &'a Item)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    items.get(at).map(|item| (at, item))
}

/// Whom to ask, and whether they have been silent.
struct Asker {
    found: Found,
    who: Option<HostIdentity>,
    control_silent: AtomicBool,
    data_silent: AtomicBool,
}

impl Asker {
    fn new(found: Found) -> Self {
        let who = found
            .socket()
            .and_then(|socket| protocol::expect(&ask(&socket, &Request::Who, WHO_MAX).ok()?).ok());
        let control_silent = AtomicBool::new(who.is_none());
        Self { found, who, control_silent, data_silent: AtomicBool::new(false) }
    }

    fn get(&self, item: &Item) -> Got {
        match &item.source {
            Source::Ask(request) => self.answer(request, item.limit).into(),
            Source::Metrics => self.metrics(item.limit).into(),
            Source::Run(words) => run(words, item.limit),
            Source::Read(path) => read(path, false),
            Source::Tail(path) => read(path, true),
            Source::Doctor(file) => {
                let file = file.clone();
                let report = within(item.limit, move || {
                    serde_json::to_string(&crate::doctor::report(file.as_deref()))
                });
                report.and_then(|text| text.map_err(|error| error.to_string())).into()
            }
            Source::Text(text) => Ok(text.clone()).into(),
        }
    }

    /// Asks control, or data what only data knows.
    fn answer(&self, request: &Request, limit: Duration) -> Result<String, String> {
        let (Some(socket), Some(run_dir)) = (self.found.socket(), &self.found.run_dir) else {
            return Err("there is no host".to_owned());
        };
        let of_data = matches!(request, Request::Show(_));
        if of_data && self.data_silent.load(Ordering::Relaxed) {
            return Err(UNANSWERED[0].to_owned());
        }
        if !self.control_silent.load(Ordering::Relaxed) {
            let answer = ask(&socket, request, limit);
            match answer {
                Err(error) if self.is_silent(&socket) && of_data => drop(error),
                Err(error) => return Err(self.note(of_data, error)),
                Ok(line) => return self.enveloped(&line),
            }
        }
        if !of_data {
            return Err(SILENT.to_owned());
        }
        let line = ask(&run_dir.join(run_dir::DATA_SOCKET), request, limit);
        line.map_err(|error| self.note(true, error)).and_then(|line| self.enveloped(&line))
    }

    /// Notes that data is silent, so that the next question does not wait for it.
    fn note(&self, of_data: bool, error: String) -> String {
        let is_silent = error.starts_with(UNANSWERED[0]) || error.starts_with(NO_ANSWER);
        self.data_silent.fetch_or(of_data && is_silent, Ordering::Relaxed);
        error
    }

    /// Returns true if control does not even say who it is.
    fn is_silent(&self, socket: &Path) -> bool {
        let silent = ask(socket, &Request::Who, WHO_MAX).is_err();
        self.control_silent.fetch_or(silent, Ordering::Relaxed);
        silent
    }

    fn enveloped(&self, line: &str) -> Result<String, String> {
        if !line.starts_with('{') {
            return Ok(line.to_owned());
        }
        Ok(Envelope::now(self.who.clone()).around(line))
    }

    fn metrics(&self, limit: Duration) -> Result<String, String> {
        let run_dir = self.found.run_dir.as_ref().ok_or("there is no host")?;
        if self.control_silent.load(Ordering::Relaxed) {
            return Err(SILENT.to_owned());
        }
        let socket = run_dir.join(run_dir::HTTP_SOCKET);
        within(limit, move || -> io::Result<String> {
            let mut stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(limit))?;
            // Of version 1.0: the answer is in one piece, and the connection ends with it.
            let request = b"GET /metrics HTTP/1.0\r\nHost: sluice\r\n\r\n";
            io::Write::write_all(&mut stream, request)?;
            let mut text = String::new();
            stream.take(SIZE_MAX).read_to_string(&mut text)?;
            Ok(text.split_once("\r\n\r\n").map_or(text.clone(), |(_, body)| body.to_owned()))
        })?
        .map_err(|error| error.to_string())
    }
}

/// First words of an error of [`within`].
const NO_ANSWER: &str = "no answer within";

/// Does something in a thread, which is left to itself if it takes too long.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || _ = sender.send(work()));
    receiver.recv_timeout(limit).map_err(|_| format!("{NO_ANSWER} {} s", limit.as_secs()))
}

/// Asks one question at a socket.
///
/// # Errors
/// The reason why there is no answer.
pub(super) fn ask(socket: &Path, request: &Request, limit: Duration) -> Result<String, String> {
    let (path, request) = (socket.to_owned(), request.clone());
    within(limit, move || {
        while_busy(
            Instant::now() + limit,
            |error: &String| is_busy(error),
            || {
                let stream = UnixStream::connect(&path).map_err(|error| error.to_string())?;
                // Nobody waits for the thread any more then.
                _ = stream.set_read_timeout(Some(limit));
                let line = protocol::ask(stream, &request).map_err(|error| error.to_string())?;
                match protocol::failure(&line) {
                    Some(failure) => Err(failure.error),
                    None => Ok(line),
                }
            },
        )
    })?
}

/// Runs a program; what it wrote until its time was over is kept.
fn run(words: &[String], limit: Duration) -> Got {
    let Some((program, arguments)) = words.split_first() else { return Got::default() };
    let child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let error = format!("cannot run `{program}`: {error}");
            return Got { bytes: None, error: Some(error) };
        }
    };
    let (printed, said) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    if status.is_none() {
        // It may have ended just now.
        _ = child.kill();
        _ = child.wait();
    }
    // A grandchild may keep the pipe open.
    let bytes = printed.recv_timeout(WHO_MAX).unwrap_or_default();
    let said = said.recv_timeout(WHO_MAX).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).trim().replace('\n', "; ");
    let line = words.join(" ");
    let error = match status {
        None => Some(format!("`{line}` did not end within {} s", limit.as_secs())),
        Some(status) if !status.success() => Some(format!("`{line}`: {status}: {said}")),
        Some(_) if bytes.len() as u64 >= SIZE_MAX => Some(cut()),
        Some(_) => None,
    };
    Got { bytes: (error.is_none() || !bytes.is_empty()).then_some(bytes), error }
}

fn cut() -> String {
    format!("it is longer than {} MB, and cut", SIZE_MAX >> 20)
}

/// Reads a pipe in a thread.
fn reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What came before an error is kept.
            _ = pipe.take(SIZE_MAX).read_to_end(&mut bytes);
        }
        _ = sender.send(bytes);
    });
    receiver
}

/// Reads a file, or its end if it is too long for an archive.
fn read(path: &PathBuf, is_tail: bool) -> Got {
    let limit = if is_tail { super::plan::TAIL_SIZE } else { SIZE_MAX };
    let got = File::open(path).and_then(|mut file| {
        let size = file.metadata()?.len();
        if is_tail && size > limit {
            file.seek(SeekFrom::Start(size - limit))?;
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match got {
        Ok(bytes) => {
            let error = (!is_tail && bytes.len() as u64 >= limit).then(cut);
            Got { bytes: Some(bytes), error }
        }
        Err(error) => Got { bytes: None, error: Some(format!("{}: {error}", path.display())) },
    }
}

#[cfg(test)]
mod tests;
