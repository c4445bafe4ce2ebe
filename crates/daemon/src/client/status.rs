//! `sluice status`: asks a host whether it is well, and prints its report.

use std::io::Write as _;
use std::time::Duration;

use sluice_api::doctor::Report;
use sluice_api::trace::Grade;

use crate::client::show::{HostSelector, connect, enveloped, socket};
use crate::ipc::protocol::{self, Request};

/// Longest time for the answer: that of each process and of each part of the host that may hang.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Asks and prints, as a table or as a line of JSON. Returns the gravest grade.
///
/// # Errors
/// If no host answers, with the remedy.
pub fn status(whom: &HostSelector, json: bool) -> anyhow::Result<Grade> {
    let socket = socket(whom)?;
    let stream = connect(&socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let line = protocol::ask(stream, &Request::Status)
        .map_err(|error| anyhow::anyhow!("{}: no answer ({error})", socket.display()))?;
    let report: Report = protocol::expect(&line)?;
    let text = if json { enveloped(&socket, &line) } else { format!("{report}\n") };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(report.grade)
}
