//! `sluice vport`, `sluice vnet`, `sluice fabric`: asks a running host about its fabric.

mod status;
mod tables;

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;

use anyhow::Context as _;
use sluice_api::envelope::Envelope;
use sluice_api::fabric::{Answer, Question};
use sluice_api::trace::{self, Grade};

pub use self::status::status;
use crate::client::show::{ANSWER_MAX, HostSelector, connect, enveloped, socket, who};
use crate::ipc::protocol::{self, Failure, Request};

/// Asks and prints, as a table or as a line of JSON.
///
/// # Errors
/// If no host answers, or it has no answer, with the remedy.
pub fn show(whom: &HostSelector, question: Question, json: bool) -> anyhow::Result<()> {
    show_as(whom, question, json, &tables::render).map(|_| ())
}

/// Asks and prints like [`show`], for an endpoint: its moves alone.
///
/// # Errors
/// See [`show`].
pub fn history(whom: &HostSelector, question: Question, json: bool) -> anyhow::Result<()> {
    show_as(whom, question, json, &tables::history).map(|_| ())
}

/// Asks for the path of a frame, prints it, and returns its grade.
///
/// # Errors
/// See [`show`].
pub fn trace(whom: &HostSelector, question: trace::Question, json: bool) -> anyhow::Result<Grade> {
    match show_as(whom, Question::Trace(question), json, &tables::render)? {
        Answer::Trace(trace) => Ok(trace.grade),
        _ => anyhow::bail!("the host answered another question; compare `sluice --version` there"),
    }
}

fn show_as(
    whom: &HostSelector,
    question: Question,
    json: bool,
    render: &dyn Fn(&Answer) -> String,
) -> anyhow::Result<Answer> {
    let socket = socket(whom)?;
    let line = ask(&socket, question)?;
    let answer: Answer = protocol::expect(&line)?;
    print(&if json { enveloped(&socket, &line) } else { render(&answer) })?;
    Ok(answer)
}

/// Asks one question; returns the answer unchanged.
fn ask(socket: &Path, question: Question) -> anyhow::Result<String> {
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    protocol::ask(stream, &Request::Fabric(question))
        .with_context(|| format!("{} did not answer", socket.display()))
}

/// Prints events until interrupted, one line each.
///
/// # Errors
/// If no host answers, or it stops.
pub fn watch(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let socket = socket(whom)?;
    let stream = connect(&socket)?;
    let who = who(&socket);
    protocol::write(&stream, &Request::Fabric(Question::Watch))?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        let text = match serde_json::from_str::<Failure>(&line) {
            Ok(failure) => anyhow::bail!(failure.error),
            Err(_) if json => Envelope::now(who.clone()).around(&line) + "\n",
            Err(_) => tables::render(&serde_json::from_str(&line)?),
        };
        if !print(&text)? {
            return Ok(());
        }
    }
    anyhow::bail!("{} has stopped", socket.display())
}

/// Prints; returns false if the reader has seen enough.
fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}
