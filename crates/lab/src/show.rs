//! Queries a daemon: one line of JSON over `RUN_DIR/show.sock`, one line back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use sluice_api::fabric::{self, Flows, VportRow};
use sluice_api::show::{
    Answer, Audit, Body, DropRow, MacRow, PauseRow, PortRow, Question, VERSION,
};

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
#[serde(untagged)]
enum Reply {
    Answer(Box<Answer>),
    Error { error: String },
}

/// State of a daemon at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The node.
    pub(crate) node: String,
    /// Its ports.
    pub(crate) ports: Vec<PortRow>,
    /// Its drops.
    pub(crate) drops: Vec<DropRow>,
    /// Its audit.
    pub(crate) audit: Audit,
    /// Its pauses.
    pub(crate) pauses: Vec<PauseRow>,
}

fn exchange(socket: &Path, request: &str) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

/// Sends a question about the fabric.
fn ask_fabric(socket: &Path, question: fabric::Question) -> anyhow::Result<fabric::Answer> {
    let request = serde_json::to_string(&BTreeMap::from([("fabric", &question)]))?;
    let what = || format!("asking {request} at {}", socket.display());
    let line = exchange(socket, &request).with_context(what)?;
    serde_json::from_str(&line).with_context(|| format!("{}: {}", what(), line.trim()))
}

/// Returns the endpoints that a host knows.
pub(crate) fn vports(socket: &Path) -> anyhow::Result<Vec<VportRow>> {
    match ask_fabric(socket, fabric::Question::Vports { vnet: None })? {
        fabric::Answer::Vports(rows) => Ok(rows),
        _ => bail!("the answer is not about endpoints"),
    }
}

/// Returns the tunnels and flows of a host.
pub(crate) fn flows(socket: &Path) -> anyhow::Result<Flows> {
    match ask_fabric(socket, fabric::Question::Flows)? {
        fabric::Answer::Flows(flows) => Ok(flows),
        _ => bail!("the answer is not about flows"),
    }
}

/// Returns the MAC table of a host.
pub(crate) fn macs(socket: &Path) -> anyhow::Result<Vec<MacRow>> {
    match ask(socket, Question::Mac)? {
        Body::Mac(rows) => Ok(rows),
        _ => bail!("the answer is not about MACs"),
    }
}

/// Sends one question.
pub(crate) fn ask(socket: &Path, question: Question) -> anyhow::Result<Body> {
    let what = || format!("asking {} at {}", name(question), socket.display());
    let request = format!("{{\"show\":\"{}\"}}", name(question));
    let line = exchange(socket, &request).with_context(what)?;
    match serde_json::from_str(&line).with_context(what)? {
        Reply::Answer(answer) => {
            ensure!(answer.version == VERSION, "version {} is not {VERSION}", answer.version);
            Ok(answer.body)
        }
        Reply::Error { error } => bail!("{}: {error}", what()),
    }
}

/// Returns the ports.
pub(crate) fn ports(socket: &Path) -> anyhow::Result<Vec<PortRow>> {
    match ask(socket, Question::Ports)? {
        Body::Ports(rows) => Ok(rows),
        _ => bail!("the answer is not about ports"),
    }
}

/// Returns the audit.
pub(crate) fn audit(socket: &Path) -> anyhow::Result<Audit> {
    match ask(socket, Question::Audit)? {
        Body::Audit(audit) => Ok(audit),
        _ => bail!("the answer is no audit"),
    }
}

/// Takes a snapshot: ports, drops, audit and pauses.
pub(crate) fn snapshot(node: &str, socket: &Path) -> anyhow::Result<Snapshot> {
    let Body::Drops(drops) = ask(socket, Question::Drops)? else {
        bail!("the answer is not about drops")
    };
    let Body::Pauses(pauses) = ask(socket, Question::Pauses)? else {
        bail!("the answer is not about pauses")
    };
    let ports = ports(socket)?;
    Ok(Snapshot { node: node.to_owned(), ports, drops, audit: audit(socket)?, pauses })
}

const fn name(question: Question) -> &'static str {
    match question {
        Question::Ports => "ports",
        Question::Queues => "queues",
        Question::Drops => "drops",
        Question::Audit => "audit",
        Question::Pauses => "pauses",
        Question::Tunnels => "tunnels",
        Question::Mac => "mac",
        Question::Worker => "worker",
        Question::Placement => "placement",
        Question::Chip => "chip",
    }
}
