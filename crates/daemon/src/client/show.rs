//! `sluice show`: asks a running host and draws tables.

mod tables;

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_api::client;
pub use sluice_api::client::HostSelector;
use sluice_api::envelope::{Envelope, HostIdentity};
use sluice_api::show::{Answer, Question};

use crate::ipc::protocol::{self, Request};

/// Returns a table with a header. The first `names` columns are names, the others are numbers.
/// Without rows, returns `none`.
pub(crate) fn table(header: &[&str], names: usize, rows: Vec<Vec<String>>, none: &str) -> String {
    tables::table(header, names, rows, none)
}

/// Longest time for an answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time between two questions of `--watch`.
const WATCH: Duration = Duration::from_secs(1);

/// Style of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Print a line of JSON.
    pub json: bool,
    /// Repeat every second, until interrupted.
    pub watch: bool,
}

/// Asks and prints.
///
/// # Errors
/// If no host answers, with the remedy.
pub fn show(whom: &HostSelector, question: Question, style: Style) -> anyhow::Result<()> {
    let socket = socket(whom)?;
    for count in 0_u64.. {
        let line = ask(&socket, question)?;
        let text = match (style.json, style.watch) {
            (true, _) => enveloped(&socket, &line),
            (false, is_watched) => {
                let before = if is_watched { between_pictures(count == 0) } else { "" };
                before.to_owned() + &tables::render(&protocol::expect::<Answer>(&line)?)
            }
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        if !style.watch {
            return Ok(());
        }
        std::thread::sleep(WATCH);
    }
    Ok(())
}

/// Returns an answer in JSON, in its envelope.
pub(crate) fn enveloped(socket: &Path, object: &str) -> String {
    Envelope::now(who(socket)).around(object) + "\n"
}

/// Returns the host at a socket; `None` if it does not answer.
pub(crate) fn who(socket: &Path) -> Option<HostIdentity> {
    let stream = connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
    protocol::expect(&protocol::ask(stream, &Request::Who).ok()?).ok()
}

/// Returns the separator before a picture that replaces an earlier one: on a screen it clears the
/// screen, elsewhere it is an empty line between two pictures.
pub(crate) fn between_pictures(is_first: bool) -> &'static str {
    match (std::io::stdout().is_terminal(), is_first) {
        // Home, and clear to the end of the screen.
        (true, _) => "\x1b[H\x1b[J",
        (false, true) => "",
        (false, false) => "\n",
    }
}

/// Asks one question at one socket; returns the answer unchanged.
///
/// # Errors
/// If nobody answers.
pub fn ask(socket: &Path, question: Question) -> anyhow::Result<String> {
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let line = protocol::ask(stream, &Request::Show(question))
        .with_context(|| format!("{} did not answer", socket.display()))?;
    if let Ok(protocol::Failure { error }) = serde_json::from_str(&line) {
        bail!(error);
    }
    Ok(line)
}

pub(crate) fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    Ok(client::connect(socket)?)
}

pub(crate) fn socket(whom: &HostSelector) -> anyhow::Result<PathBuf> {
    Ok(whom.socket()?)
}

/// Asks a host for one thing, and waits for as long as that takes: control has a time limit itself.
pub(crate) fn answer<T: DeserializeOwned>(
    whom: &HostSelector,
    request: &Request,
) -> anyhow::Result<T> {
    let socket = socket(whom)?;
    let line = protocol::ask(connect(&socket)?, request)
        .with_context(|| format!("{} did not answer", socket.display()))?;
    protocol::expect(&line)
}

/// Prints an answer, as JSON in its envelope or in words.
pub(crate) fn print(
    whom: &HostSelector,
    answer: &impl Serialize,
    json: bool,
    words: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let line = match json {
        true => enveloped(&socket(whom)?, &serde_json::to_string(answer)?),
        false => words() + "\n",
    };
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests;
