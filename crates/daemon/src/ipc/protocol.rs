//! The protocol on the sockets of a host: one line of JSON each way.
//!
//! | request | reply | by |
//! |---|---|---|
//! | `"hello"` | `{"pid":7,"fingerprint":"…","version":"0.1.0"}` | data |
//! | `"who"` | `{"host":"h1","program":"0.1.0"}` | control |
//! | `"status"` | a `sluice_api::doctor::Report` | control, which asks data |
//! | `{"show":"ports"}` | an answer of `sluice_api::show` | control, which asks data |
//! | `{"look":{"vnet":0,…}}` | a `sluice_api::trace::Looked` | data |
//! | `{"fabric":"vnets"}` | an answer of `sluice_api::fabric` | control |
//! | `{"fabric":"watch"}` | such an answer for each event | control |
//! | `{"add":{…}}`, `{"del":"web"}` | an answer of `sluice_api::port` | control, which asks data |
//! | `"ports"` | the ports that were added: a `sluice_api::port::AddedPorts` | control |
//! | `{"card":"web"}` | the device of one: a `sluice_api::port::Card` | control, which asks data |
//! | `{"placement":"show"}` | an answer of `sluice_api::placement` | control |
//! | `{"follow":{…}}` | a `sluice_api::placement::Followed` | data |
//! | `{"lend":["web"]}` | descriptors (`descriptors.rs`) of these ports, or of all | data |
//! | `{"tidy":["web"]}` | `{}`, when other added ports and stray devices are gone | data |
//! | `{"transaction":{…}}` | an answer of `sluice_api::transaction` | control |
//! | `"pulse"` | `{}`, when every worker has answered | data |
//! | `{"yield":1}` | messages of `handover.rs`, and descriptors; then one of these two: | data |
//! | `"leave"` | `{}`, and the process is gone: another one continues | data |
//! | `"goon"` | `{}`: the process continues, as it does when the connection ends | data |
//! | `"upgrade"` | an answer of `sluice_api::upgrade`, when another one has taken over | control |
//! | `"running"` | the configuration that it runs, with its numbers | data |
//! | `{"reconfigure":{…}}` | the same, and a `sluice_api::reload::Reloaded` | data |
//! | `"reload"` | a `sluice_api::reload::Reloaded` | control, which asks data |
//! | `{"capture":{…}}` | a `sluice_api::capture::Begun`, then records (`capture.rs`) | data |
//! | `"attach"` | as to `"hello"`; then records both ways (`channel.rs`) | data |
//!
//! A request that cannot be answered gets `{"error":"…"}`.

use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sluice_api::client::{self, UNANSWERED, read_line};
pub use sluice_api::client::{Failure, ask, write};
use sluice_api::reload::Reloaded;
pub use sluice_api::request::{Request, Wanted};

use crate::sys::run_dir;

/// The longest request: the configuration of a host with a hundred peers, each of which has a
/// thousand networks, escaped.
const REQUEST_SIZE_MAX: u64 = 8 << 20;

/// Time between two tries for a place in a listener's queue.
const QUEUE_BEAT: Duration = Duration::from_millis(5);

/// The request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Done {}

/// Identity of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Process id.
    pub pid: u32,
    /// Fingerprint of the configuration that it runs.
    pub fingerprint: String,
    /// Version of the program.
    pub version: String,
}

/// The configuration that a data process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its text.
    pub text: String,
    /// Base directory of its relative paths.
    pub dir: Option<PathBuf>,
    /// Numbers of its networks and peers, as in the file beside a configuration.
    pub numbers: String,
    /// Its fingerprint.
    pub fingerprint: String,
    /// Fingerprint of the configuration that it was asked for last, of which a part may take effect
    /// at a restart.
    pub wanted: String,
}

/// A data process has a new configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconfigured {
    /// What has changed, and what has not.
    pub reloaded: Reloaded,
    /// The configuration that it runs.
    pub running: Running,
    /// Places of its switches, if it has looked at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
}

/// Places of a switch for networks and peers, free or not. They are fixed at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// For networks.
    pub vnets: usize,
    /// For peers.
    pub tunnels: usize,
}

/// Reads one request; `None` at the end of the stream.
///
/// # Errors
/// If the stream fails, or the line is no request.
pub fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some(line) = read_line(stream, REQUEST_SIZE_MAX)? else { return Ok(None) };
    serde_json::from_str(&line).map(Some).map_err(io::Error::from)
}

/// Reads one request; `None` at the end of the stream, and after a request that cannot be read. The
/// sender of such a request is told the reason.
pub(crate) fn next_request(
    stream: &UnixStream,
    reader: &mut BufReader<UnixStream>,
) -> Option<Request> {
    match read_request(reader) {
        Ok(request) => request,
        Err(error) => {
            // The text is incomplete or wrong. Other errors mean that the sender is silent, or
            // gone.
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) {
                let error = format!("the request cannot be read: {error}");
                _ = write(stream, &Failure { error });
            }
            None
        }
    }
}

/// Writes an answer, or the reason why there is none.
///
/// # Errors
/// If the stream fails.
pub fn reply(stream: &UnixStream, answer: Result<impl Serialize, String>) -> io::Result<()> {
    match answer {
        Ok(answer) => write(stream, &answer),
        Err(error) => write(stream, &Failure { error }),
    }
}

/// Writes an answer that is a line already.
///
/// # Errors
/// If the stream fails.
pub(crate) fn write_line(mut stream: &UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(&[line.trim_end().as_bytes(), b"\n"].concat())
}

/// Returns the reason why a line is no answer, if it says one.
pub(crate) fn failure(line: &str) -> Option<Failure> {
    // An answer may be large, and is not read for this.
    if !line.starts_with(r#"{"error":"#) {
        return None;
    }
    serde_json::from_str(line).ok()
}

/// Writes an empty line.
///
/// # Errors
/// If the stream fails.
pub fn write_empty(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(b"\n")
}

/// Reads a reply of the expected kind.
///
/// # Errors
/// The failure that came instead, or a reply that is neither.
pub fn expect<T: DeserializeOwned>(line: &str) -> anyhow::Result<T> {
    Ok(client::expect(line)?)
}

/// Connects to the data process of a directory.
///
/// # Errors
/// The kernel's error; [`silence`] says what it means.
pub(crate) fn connect(run_dir: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(run_dir.join(run_dir::DATA_SOCKET))
}

/// Connects like [`connect`], but does not wait for a process that hangs to accept those before it.
///
/// # Errors
/// The kernel's error; [`silence`] says what it means.
pub(crate) fn connect_now(run_dir: &Path) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(run_dir.join(run_dir::DATA_SOCKET))?;
    rustix::net::connect(&socket, &address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects, and bounds the wait for a place in the queue of a process that hangs, for the request
/// to be taken and for each part of the answer.
///
/// # Errors
/// The kernel's error; [`silence`] says what it means.
pub(crate) fn connect_within(run_dir: &Path, most: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + most;
    let stream = loop {
        match connect_now(run_dir) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(QUEUE_BEAT);
            }
            connected => break connected?,
        }
    };
    stream.set_read_timeout(Some(most))?;
    stream.set_write_timeout(Some(most))?;
    Ok(stream)
}

/// Returns the reason why data did not answer, as far as that can be known here.
pub(crate) fn silence(error: &io::Error) -> String {
    use io::ErrorKind::{ConnectionRefused, NotFound, TimedOut, WouldBlock};
    match error.kind() {
        WouldBlock | TimedOut => format!(
            "{}: it hangs, is traced, or the machine is overloaded; what is not answered is not \
             known. See `data_hung_ms` of `[host]`",
            UNANSWERED[0]
        ),
        ConnectionRefused | NotFound => {
            format!("{}; control starts one, and its log says why if that fails", UNANSWERED[1])
        }
        _ => format!("{} ({error}); try again", UNANSWERED[2]),
    }
}

/// Returns the refusal of a data process that does not have an added port of this name.
pub(crate) fn not_added(name: &str) -> String {
    format!("no port `{name}` was added")
}

#[cfg(test)]
mod tests;
