//! The protocol on the sockets of a host: one line of JSON each way.
//!
//! | request | reply | by |
//! |---|---|---|
//! | `"hello"` | `{"pid":7,"fingerprint":"…","version":"0.1.0"}` | data |
//! | `"who"` | `{"host":"h1","program":"0.1.0"}` | control |
//! | `{"show":"ports"}` | an answer of `sluice_api::show` | control, which asks data |
//! | `{"look":{"vnet":0,…}}` | a `sluice_api::trace::Looked` | data |
//! | `{"fabric":"vnets"}` | an answer of `sluice_api::fabric` | control |
//! | `{"fabric":"watch"}` | such an answer for each event | control |
//! | `{"add":{…}}`, `{"del":"web"}` | an answer of `sluice_api::port` | control, which asks data |
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
//! | `"attach"` | as to `"hello"`; then records both ways (`channel.rs`) | data |
//!
//! A request that cannot be answered gets `{"error":"…"}`.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sluice_api::port::NewPort;
use sluice_api::reload::Reloaded;
use sluice_api::show::Question;

use crate::sys::run_dir;

/// The longest line; an answer of a large host is below it.
const LINE_SIZE_MAX: u64 = 64 << 20;
/// The longest request: the configuration of a host with a hundred peers, each of which has a
/// thousand networks, escaped.
const REQUEST_SIZE_MAX: u64 = 8 << 20;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Identify this process.
    Hello,
    /// Identify this host.
    Who,
    /// A question of `sluice show`.
    Show(Question),
    /// A question of `sluice trace` about entries of the switch.
    Look(sluice_api::trace::Look),
    /// A question about the fabric.
    Fabric(sluice_api::fabric::Question),
    /// A question about the placement policy.
    Placement(sluice_api::placement::Question),
    /// A question about the fabric's configuration, or a change of it.
    Transaction(Box<sluice_api::transaction::Question>),
    /// Follow this placement policy.
    Follow(Box<sluice_api::placement::Stamped>),
    /// Add a port. To data: a port that is there already as requested is not opened again.
    Add(Box<NewPort>),
    /// Delete a port.
    Del(String),
    /// Send the descriptors of these ports for control to keep; of all if none is named.
    Lend(Vec<String>),
    /// Keep these added ports: delete other ones, and the remains of an earlier process.
    Tidy(Vec<String>),
    /// Does every worker still answer?
    Pulse,
    /// Hand everything over, in this format.
    Yield(u32),
    /// End: another process continues.
    Leave,
    /// Continue: no other process does.
    GoOn,
    /// Have another data process, of the program that is there now, take over.
    Upgrade,
    /// Report the configuration that it runs.
    Running,
    /// Take over a new configuration, as far as that is possible now.
    Reconfigure(Box<Wanted>),
    /// Read the configuration file again, and apply it.
    Reload,
    /// Use this connection for punts and commands of one worker from now on.
    Attach(u16),
}

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

/// A new configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its text.
    pub text: String,
    /// Base directory of its relative paths.
    pub dir: Option<PathBuf>,
    /// True if nothing is to be changed.
    pub only_check: bool,
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

/// A question that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Reason, and the remedy.
    pub error: String,
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

/// Reads one line without its end; `None` at the end of the stream.
///
/// # Errors
/// If the stream fails, or the line is longer than `size_max`.
fn read_line(stream: &mut impl BufRead, size_max: u64) -> io::Result<Option<String>> {
    let mut line = String::new();
    if stream.take(size_max).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() != Some('\n') {
        let error = format!("a line that does not end within {size_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(Some(line))
}

/// Writes one reply, or one request.
///
/// # Errors
/// If the stream fails.
pub fn write(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
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

/// Writes an empty line.
///
/// # Errors
/// If the stream fails.
pub fn write_empty(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(b"\n")
}

/// Sends a request and returns the line that answers it.
///
/// # Errors
/// If the stream fails or ends.
pub fn ask(stream: UnixStream, request: &Request) -> io::Result<String> {
    write(&stream, request)?;
    let reply = read_line(&mut BufReader::new(stream), LINE_SIZE_MAX)?;
    reply.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without an answer"))
}

/// Reads a reply of the expected kind.
///
/// # Errors
/// The failure that came instead, or a reply that is neither.
pub fn expect<T: DeserializeOwned>(line: &str) -> anyhow::Result<T> {
    if let Ok(Failure { error }) = serde_json::from_str(line) {
        anyhow::bail!(error);
    }
    Ok(serde_json::from_str(line)?)
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

/// Returns the reason why data did not answer, as far as that can be known here.
pub(crate) fn silence(error: &io::Error) -> String {
    use io::ErrorKind::{ConnectionRefused, NotFound, TimedOut, WouldBlock};
    match error.kind() {
        WouldBlock | TimedOut => {
            "the data process is there and does not answer: it hangs, is traced, or the machine is \
             overloaded; what is not answered is not known. See `data_hung_ms` of `[host]`"
                .to_owned()
        }
        ConnectionRefused | NotFound => {
            "no data process runs; control starts one, and its log says why if that fails"
                .to_owned()
        }
        _ => format!("the data process broke off ({error}); try again"),
    }
}

#[cfg(test)]
mod tests;
