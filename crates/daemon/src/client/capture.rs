//! `sluice capture`: asks the data process for frames, and writes them as pcapng.
//!
//! It asks `data.sock` itself, which only the owner of the host may: so captures work while control
//! is away, and no frame passes another process. It ends when there are enough frames, when the
//! time is over, on SIGINT and SIGTERM, when nobody reads its output, or with the data process.

pub mod extcap;
mod pcapng;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Read as _, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use sluice_api::capture::{Begun, PortName, PortSummary, Question, Summary};
use sluice_base::DropReason;

use self::pcapng::Writer;
use crate::client::show::{HostSelector, enveloped, socket};
use crate::ipc::capture::{HEAD_SIZE, Head, Kind, NO_PORT, RECORD_SIZE_MAX, Record, Way, first};
use crate::ipc::protocol::{self, Request};
use crate::sys::clock;
use crate::sys::run_dir::DATA_SOCKET;

/// Longest wait for the first answer, and for the end.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at limits and signals.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes that are read at a time.
const READ_SIZE: usize = 256 << 10;

/// When to end, and where to write.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// Frames to capture.
    pub count: Option<u64>,
    /// Time to capture.
    pub seconds: Option<u64>,
    /// The file; absent: the standard output.
    pub out: Option<PathBuf>,
    /// Print the result as JSON.
    pub json: bool,
}

/// Captures until it is enough.
///
/// # Errors
/// If no host answers, it refuses, or the output cannot be written.
pub fn capture(whom: &HostSelector, question: Question, style: &Style) -> anyhow::Result<()> {
    let is_piped = style.out.is_none();
    if is_piped && io::stdout().is_terminal() {
        bail!("the standard output is a terminal; name a file with `--out FILE`, or use a pipe");
    }
    if is_piped && style.json {
        bail!("the frames are the standard output; leave `--json` out, or name a file");
    }
    let asked = socket(whom)?;
    let snaplen = question.snaplen;
    let stream = begin(&asked, question)?;
    let out: Box<dyn Write> = match &style.out {
        None => Box::new(io::stdout().lock()),
        Some(path) => Box::new(create(path)?),
    };
    let ended = ended_by_signals()?;
    let limits = Limits::new(style, ended);
    let mut capture = Capture::new(Writer::new(BufWriter::new(out), snaplen));
    let done = capture.run(&stream, &limits);
    let summary = capture.summary();
    if !style.json {
        // Nobody may look.
        _ = io::stderr().write_all(words(&summary).as_bytes());
    } else if done.is_ok() {
        // Otherwise the error is the answer.
        let text = enveloped(&asked, &serde_json::to_string(&summary)?);
        io::stdout().write_all(text.as_bytes())?;
    }
    done
}

/// Asks the data process of the host at a socket.
fn begin(asked: &Path, question: Question) -> anyhow::Result<UnixStream> {
    let path = asked.parent().unwrap_or(Path::new(".")).join(DATA_SOCKET);
    let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!("only root, or the user of the host, may capture")
        }
        _ => anyhow::anyhow!("{}: {}", path.display(), protocol::silence(&error)),
    })?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    protocol::write(&stream, &Request::Capture(Box::new(question)))?;
    let line = read_line(&stream).with_context(|| format!("{} did not answer", path.display()))?;
    let _begun: Begun = protocol::expect(&line)?;
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    Ok(stream)
}

/// Reads a line, and nothing of what follows it.
fn read_line(mut stream: &UnixStream) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' || line.len() >= READ_SIZE {
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        line.push(byte[0]);
    }
}

/// Makes the file: frames are nobody else's.
fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a flag that SIGINT and SIGTERM set.
fn ended_by_signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    Ok(ended)
}

/// When it is enough.
struct Limits {
    count: u64,
    until: Option<Instant>,
    ended: Arc<AtomicBool>,
}

impl Limits {
    fn new(style: &Style, ended: Arc<AtomicBool>) -> Self {
        let until = style.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { count: style.count.unwrap_or(u64::MAX), until, ended }
    }

    fn are_reached(&self, captured: u64) -> bool {
        captured >= self.count
            || self.until.is_some_and(|until| Instant::now() >= until)
            || self.ended.load(Ordering::Relaxed)
    }
}

/// A port that the data process has named.
#[derive(Debug)]
struct Interface {
    number: u32,
    name: String,
    counts: Option<(u64, u64)>,
}

/// Frames on their way from the data process to the output.
struct Capture<W: Write> {
    writer: Writer<W>,
    /// By number, the interface that has it now.
    ports: BTreeMap<u16, usize>,
    interfaces: Vec<Interface>,
    captured: u64,
    /// Dropped frames that the switch did not keep.
    drops_missed: u64,
    began_ns: u64,
}

impl<W: Write> Capture<W> {
    fn new(writer: Writer<W>) -> Self {
        let (ports, interfaces) = (BTreeMap::new(), Vec::new());
        let began_ns = now_ns();
        Self { writer, ports, interfaces, captured: 0, drops_missed: 0, began_ns }
    }

    /// Reads records until it is enough, and then the rest of them.
    fn run(&mut self, mut stream: &UnixStream, limits: &Limits) -> anyhow::Result<()> {
        if let Err(error) = self.writer.begin() {
            return gone_is_fine(error);
        }
        let mut bytes: Vec<u8> = Vec::with_capacity(2 * RECORD_SIZE_MAX);
        let mut chunk = vec![0; READ_SIZE];
        let mut last = None;
        loop {
            if last.is_none() && limits.are_reached(self.captured) {
                stream.shutdown(Shutdown::Write)?;
                last = Some(Instant::now() + ANSWER_MAX);
            }
            let size = match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(size) => size,
                Err(error)
                    if is_silence(&error) && last.is_none_or(|last| Instant::now() < last) =>
                {
                    continue;
                }
                Err(error) => return Err(error).context("the data process"),
            };
            bytes.extend_from_slice(&chunk[..size]);
            match self.take_all(&mut bytes, limits.count).and_then(|()| self.writer.flush()) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => bail!(error),
                Err(error) => return gone_is_fine(error),
                Ok(()) => {}
            }
        }
        let has_counts = self.interfaces.iter().all(|interface| interface.counts.is_some());
        if let Err(error) = self.write_counts() {
            return gone_is_fine(error);
        }
        if last.is_none() || !has_counts {
            bail!("the data process ended, or another one took over; what came before is written");
        }
        Ok(())
    }

    /// Takes all whole records out.
    fn take_all(&mut self, bytes: &mut Vec<u8>, count_max: u64) -> io::Result<()> {
        // Both clocks are this machine's.
        let offset_ns = now_ns().wrapping_sub(clock::now().0);
        let (mut at, broken) = (0, |error| io::Error::new(io::ErrorKind::InvalidData, error));
        while let Some(Record { head, body, size }) = first(&bytes[at..]).map_err(broken)? {
            at += size;
            match head.kind {
                Kind::Port => self.name(head.port, body)?,
                Kind::Counts => self.count(head.port, body),
                Kind::Frame if self.captured < count_max => self.write(&head, body, offset_ns)?,
                Kind::Frame => {}
            }
        }
        bytes.drain(..at);
        Ok(())
    }

    fn name(&mut self, port: u16, body: &[u8]) -> io::Result<()> {
        let named: PortName = serde_json::from_slice(body)?;
        let number = u32::try_from(self.interfaces.len()).expect("fewer than 2^32");
        let about = match &named.vnet[..] {
            "underlay" | "" => "to other hosts".to_owned(),
            vnet => format!("network {vnet}"),
        };
        self.ports.insert(port, self.interfaces.len());
        self.interfaces.push(Interface { number, name: named.name.clone(), counts: None });
        self.writer.interface(&named.name, &about)
    }

    fn count(&mut self, port: u16, body: &[u8]) {
        let word = |at: usize| body.get(at..at + 8).and_then(|word| word.try_into().ok());
        let counts = [0, 8].map(|at| word(at).map_or(0, u64::from_le_bytes));
        if port == NO_PORT {
            self.drops_missed = counts[1];
        } else if let Some(at) = self.ports.get(&port) {
            self.interfaces[*at].counts = Some((counts[0], counts[1]));
        }
    }

    fn write(&mut self, head: &Head, body: &[u8], offset_ns: u64) -> io::Result<()> {
        let Some(at) = self.ports.get(&head.port) else { return Ok(()) };
        let reason = DropReason::ALL.get(usize::from(head.reason));
        let comment = match (head.way, reason) {
            (Way::Dropped, Some(reason)) => format!(
                "dropped: {} ({}), priority {}",
                reason.name(),
                reason.class().name(),
                head.priority
            ),
            _ => String::new(),
        };
        self.captured += 1;
        let at_ns = offset_ns.wrapping_add(head.at_ns);
        self.writer.frame(self.interfaces[*at].number, head, at_ns, body, &comment)
    }

    fn write_counts(&mut self) -> io::Result<()> {
        let (from_ns, to_ns) = (self.began_ns, now_ns());
        for interface in &self.interfaces {
            let counts = interface.counts.unwrap_or_default();
            self.writer.counts(interface.number, (from_ns, to_ns), counts)?;
        }
        self.writer.flush()
    }

    fn summary(&self) -> Summary {
        let of = |interface: &Interface| {
            let (seen, missed) = interface.counts.unwrap_or_default();
            PortSummary { port: interface.name.clone(), seen, missed }
        };
        let ports: Vec<PortSummary> = self.interfaces.iter().map(of).collect();
        let missed: u64 = ports.iter().map(|port| port.missed).sum();
        Summary { captured: self.captured, missed: missed + self.drops_missed, ports }
    }
}

fn words(summary: &Summary) -> String {
    let Summary { captured, missed, .. } = summary;
    format!(
        "{captured} frames captured; {missed} more found no room, and were forwarded all the same\n"
    )
}

/// A reader that has seen enough is no error.
fn gone_is_fine(error: io::Error) -> anyhow::Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error).context("cannot write frames"),
    }
}

fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

const _: () = assert!(HEAD_SIZE < RECORD_SIZE_MAX);

#[cfg(test)]
mod tests;
