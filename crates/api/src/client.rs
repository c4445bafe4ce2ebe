//! The client's side of a host's socket: one line of JSON each way.
//!
//! Every program that asks a host does it here, so that there is one protocol: a socket is found
//! ([`HostSelector`]), connected ([`connect`]), asked ([`ask`]), and the line that comes back is
//! the expected answer or a [`Failure`] ([`expect`]).

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::request::Request;

/// Parent of the directories of hosts.
pub const ROOT: &str = "/run/sluice";
/// Socket of the data process, for control only.
pub const DATA_SOCKET: &str = "data.sock";
/// Socket that answers questions.
pub const SHOW_SOCKET: &str = "show.sock";
/// The longest line; an answer of a large host is below it.
pub const LINE_SIZE_MAX: u64 = 64 << 20;

/// End of the refusal of a host that answers as many others as it can.
const BUSY: &str = "others are asking; try again";
/// Time between two attempts at such a host.
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// A question that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Reason, and the remedy.
    pub error: String,
}

/// Reason why a host cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No host runs on this machine.
    #[error(
        "no host runs under {}; name one with `--run-dir DIR`, or start one with `sluice daemon \
         --config FILE`",
        root.display()
    )]
    None {
        /// Directory that was searched.
        root: PathBuf,
    },
    /// More than one host runs on this machine.
    #[error("several hosts run here: {names}; name one with `--host NAME`")]
    Several {
        /// Their names.
        names: String,
    },
    /// Nobody listens on a socket.
    #[error(
        "no host answers on {}; start it with `sluice daemon --config FILE`",
        socket.display()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Reason why a line is not the expected answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The host refused, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The line is no answer of this kind.
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
}

/// The host to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSelector {
    /// The host that listens on this socket.
    Socket(PathBuf),
    /// The host with this directory.
    RunDir(PathBuf),
    /// The host of this name.
    Host(String),
    /// The only host on this machine.
    TheOnlyOne,
}

impl HostSelector {
    /// Returns the path of the host's socket.
    ///
    /// # Errors
    /// If the only host is wanted, and there is none or more than one.
    pub fn socket(&self) -> Result<PathBuf, FindError> {
        match self {
            Self::Socket(path) => Ok(path.clone()),
            Self::RunDir(dir) => Ok(dir.join(SHOW_SOCKET)),
            Self::Host(name) => Ok(of_host(name).join(SHOW_SOCKET)),
            Self::TheOnlyOne => the_only_one(Path::new(ROOT)),
        }
    }

    /// Returns the path of the host's socket for what must reach the same host each time: a host
    /// that is stopped counts as well, until the machine starts anew.
    ///
    /// # Errors
    /// If the only host is wanted, and there is none, or there was more than one.
    pub fn lasting_socket(&self) -> Result<PathBuf, FindError> {
        match self {
            Self::TheOnlyOne => the_only_one_ever(Path::new(ROOT)),
            named => named.socket(),
        }
    }
}

/// Returns the directory of a host that does not name its own.
#[must_use]
pub fn of_host(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

fn the_only_one(root: &Path) -> Result<PathBuf, FindError> {
    one_of(root, |dir| dir.join(SHOW_SOCKET).exists())
}

fn the_only_one_ever(root: &Path) -> Result<PathBuf, FindError> {
    one_of(root, Path::is_dir)
}

fn one_of(root: &Path, is_host: impl Fn(&Path) -> bool) -> Result<PathBuf, FindError> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    dirs.retain(|dir| is_host(dir));
    dirs.sort();
    match &dirs[..] {
        [dir] => Ok(dir.join(SHOW_SOCKET)),
        [] => Err(FindError::None { root: root.to_owned() }),
        several => {
            let names = several.iter().filter_map(|dir| dir.file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
            Err(FindError::Several { names: names.join(", ") })
        }
    }
}

/// Connects to a socket.
///
/// # Errors
/// If nobody listens there.
pub fn connect(socket: &Path) -> Result<UnixStream, FindError> {
    let silent = |source| FindError::Silent { socket: socket.to_owned(), source };
    UnixStream::connect(socket).map_err(silent)
}

/// Sends a request and returns the line that answers it.
///
/// # Errors
/// If the stream fails or ends.
pub fn ask(stream: UnixStream, request: &Request) -> io::Result<String> {
    // A host that answers enough others refuses and closes without reading: its words are there
    // even if the request could not be written.
    let written = write(&stream, request);
    let reply = read_line(&mut BufReader::new(stream), LINE_SIZE_MAX);
    if let Ok(Some(line)) = reply {
        return Ok(line);
    }
    written?;
    reply?.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without an answer"))
}

/// Returns the refusal of a host that answers as many others as it can.
#[must_use]
pub fn busy(others: usize) -> String {
    format!("{others} {BUSY}")
}

/// Returns true for a refusal of [`busy`]: the same question may be asked again.
#[must_use]
pub fn is_busy(refusal: &str) -> bool {
    refusal.ends_with(BUSY)
}

/// Asks, and asks again while the error is a refusal of [`busy`], until a moment.
///
/// # Errors
/// The error of the last attempt.
pub fn while_busy<T, E>(
    until: Instant,
    is_busy: impl Fn(&E) -> bool,
    mut ask: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    loop {
        match ask() {
            Err(error) if is_busy(&error) && Instant::now() < until => {
                std::thread::sleep(BUSY_RETRY);
            }
            answer => return answer,
        }
    }
}

/// Beginnings of a refusal that says only that the data process could not be asked: it does not
/// answer, it runs no more, it ended meanwhile.
pub const UNANSWERED: [&str; 3] = [
    "the data process is there and does not answer",
    "no data process runs",
    "the data process broke off",
];

/// Returns true for a refusal that says only that the data process could not be asked: the same
/// question may be asked again, and what it is about may be as it was.
#[must_use]
pub fn is_unanswered(refusal: &str) -> bool {
    UNANSWERED.iter().any(|words| refusal.starts_with(words))
}

/// Reads a reply of the expected kind.
///
/// # Errors
/// The failure that came instead, or a reply that is neither.
pub fn expect<T: DeserializeOwned>(line: &str) -> Result<T, AnswerError> {
    if let Ok(Failure { error }) = serde_json::from_str(line) {
        return Err(AnswerError::Refused(error));
    }
    Ok(serde_json::from_str(line)?)
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

/// Reads one line without its end; `None` at the end of the stream.
///
/// # Errors
/// If the stream fails, or the line is longer than `size_max`.
pub fn read_line(stream: &mut impl BufRead, size_max: u64) -> io::Result<Option<String>> {
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

#[cfg(test)]
mod tests;
