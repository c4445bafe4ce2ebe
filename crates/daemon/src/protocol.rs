//! What is spoken on the sockets of a host: one line of JSON each way.
//!
//! | request | reply | by |
//! |---|---|---|
//! | `"hello"` | `{"pid":7,"fingerprint":"…","version":"0.1.0"}` | data |
//! | `"who"` | `{"host":"h1","program":"0.1.0"}` | control |
//! | `{"show":"ports"}` | an answer of `sluice_api::show` | control, who asks data |
//! | `{"look":{"vnet":0,…}}` | what `sluice_api::trace::Looked` says | data |
//! | `{"fabric":"vnets"}` | an answer of `sluice_api::fabric` | control |
//! | `{"fabric":"watch"}` | such an answer for each event | control |
//! | `{"add":{…}}`, `{"del":"web"}` | an answer of `sluice_api::port` | control, who asks data |
//! | `{"placement":"show"}` | an answer of `sluice_api::placement` | control |
//! | `{"follow":{…}}` | what `sluice_api::placement::Followed` says | data |
//! | `{"lend":["web"]}` | descriptors (`hand.rs`) of these ports, or of all | data |
//! | `{"tidy":["web"]}` | `{}`, when other added ports and stray devices are gone | data |
//! | `"pulse"` | `{}`, when every worker has answered | data |
//! | `{"yield":1}` | what `handover.rs` says, and descriptors; then one of these two: | data |
//! | `"leave"` | `{}`, and the process is gone: another one goes on | data |
//! | `"goon"` | `{}`: it goes on itself, as it does when the connection ends | data |
//! | `"upgrade"` | an answer of `sluice_api::upgrade`, when another one has taken over | control |
//! | `"attach"` | as to `"hello"`; then records both ways (`channel.rs`) | data |
//!
//! Whatever cannot be answered gets `{"error":"…"}`.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sluice_api::port::NewPort;
use sluice_api::show::Question;

/// The longest line; an answer of a large host is below it.
const LINE_SIZE_MAX: u64 = 64 << 20;
/// The longest request: the names of all ports that may be added, escaped.
const REQUEST_SIZE_MAX: u64 = 512 << 10;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Which process is there?
    Hello,
    /// Which host is there?
    Who,
    /// A question of `sluice show`.
    Show(Question),
    /// A question of `sluice trace` about entries of the switch.
    Look(sluice_api::trace::Look),
    /// A question about the fabric.
    Fabric(sluice_api::fabric::Question),
    /// A question about the placement policy.
    Placement(sluice_api::placement::Question),
    /// This placement policy holds.
    Follow(Box<sluice_api::placement::Stamped>),
    /// A port comes. To data: one that is there already as it should be is not opened again.
    Add(Box<NewPort>),
    /// A port goes.
    Del(String),
    /// Descriptors of these ports that control may keep; of all if none is named.
    Lend(Vec<String>),
    /// These are the added ports that control knows: others are deleted, and what an earlier
    /// process left.
    Tidy(Vec<String>),
    /// Does every worker still answer?
    Pulse,
    /// Hand everything over, in this format.
    Yield(u32),
    /// Another process goes on with it: end.
    Leave,
    /// Nobody does: go on.
    GoOn,
    /// Have another data process, of the program that is there now, take over.
    Upgrade,
    /// This connection is for punts and orders of one worker from now on.
    Attach(u16),
}

/// It is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Done {}

/// Who is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The process.
    pub pid: u32,
    /// Of the configuration that it runs.
    pub fingerprint: String,
    /// Of the program.
    pub version: String,
}

/// A question that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Why, and what to do.
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

/// Reads one request; `None` at the end of the stream, and after one that cannot be read. Whoever
/// sent that is told why.
pub(crate) fn next_request(
    stream: &UnixStream,
    reader: &mut BufReader<UnixStream>,
) -> Option<Request> {
    match read_request(reader) {
        Ok(request) => request,
        Err(error) => {
            // The text ends too early, or is another one. Otherwise it is silent, or gone.
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

/// Writes an answer, or why there is none.
///
/// # Errors
/// If the stream fails.
pub fn reply(stream: &UnixStream, answer: Result<impl Serialize, String>) -> io::Result<()> {
    match answer {
        Ok(answer) => write(stream, &answer),
        Err(error) => write(stream, &Failure { error }),
    }
}

/// Writes a line that says nothing.
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
/// The failure that came instead, or that it is neither.
pub fn expect<T: DeserializeOwned>(line: &str) -> anyhow::Result<T> {
    if let Ok(Failure { error }) = serde_json::from_str(line) {
        anyhow::bail!(error);
    }
    Ok(serde_json::from_str(line)?)
}

#[cfg(test)]
mod tests;
