//! `sluice show`: asks a running host and draws tables.

mod tables;

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use sluice_api::envelope::{Envelope, HostIdentity};
use sluice_api::show::{Answer, Question};

use crate::ipc::protocol::{self, Request};
use crate::sys::run_dir::{self, ROOT, SHOW_SOCKET};

/// Returns a table with a header. The first `names` columns are names, the others are numbers.
/// Without rows, returns `none`.
pub(crate) fn table(header: &[&str], names: usize, rows: Vec<Vec<String>>, none: &str) -> String {
    tables::table(header, names, rows, none)
}

/// Longest time for an answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time between two questions of `--watch`.
const WATCH: Duration = Duration::from_secs(1);

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
    UnixStream::connect(socket).with_context(|| {
        let socket = socket.display();
        format!("no host answers on {socket}; start it with `sluice daemon --config FILE`")
    })
}

pub(crate) fn socket(whom: &HostSelector) -> anyhow::Result<PathBuf> {
    match whom {
        HostSelector::Socket(path) => Ok(path.clone()),
        HostSelector::RunDir(dir) => Ok(dir.join(SHOW_SOCKET)),
        HostSelector::Host(name) => Ok(run_dir::of_host(name).join(SHOW_SOCKET)),
        HostSelector::TheOnlyOne => the_only_one(Path::new(ROOT)),
    }
}

fn the_only_one(root: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path().join(SHOW_SOCKET));
    let mut sockets: Vec<PathBuf> = sockets.filter(|socket| socket.exists()).collect();
    sockets.sort();
    match &sockets[..] {
        [socket] => Ok(socket.clone()),
        [] => bail!(
            "no host runs under {}; name one with `--run-dir DIR`, or start one with \
             `sluice daemon --config FILE`",
            root.display()
        ),
        several => {
            let names = several.iter().filter_map(|socket| socket.parent()?.file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
            bail!("several hosts run here: {}; name one with `--host NAME`", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
