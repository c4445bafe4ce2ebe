//! `sluice upgrade`: lets another data process take over from the running one.

use std::io::Write as _;

use anyhow::Context as _;
use sluice_api::envelope::Envelope;
use sluice_api::upgrade::Upgraded;

use crate::client::show::{HostSelector, connect, socket, who};
use crate::ipc::protocol::{self, Request};

/// Requests the upgrade, and prints the outcome.
///
/// # Errors
/// If no host answers, or nothing has changed, with the reason.
pub fn upgrade(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let socket = socket(whom)?;
    // Asked first: control may not listen for a moment afterwards.
    let host = who(&socket);
    let line = protocol::ask(connect(&socket)?, &Request::Upgrade)
        .with_context(|| format!("{} did not answer", socket.display()))?;
    let done: Upgraded = protocol::expect(&line)?;
    let line = match json {
        true => Envelope { program: done.version.clone(), ..Envelope::now(host) }
            .around(&serde_json::to_string(&done)?),
        false => words(&done),
    };
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

fn words(done: &Upgraded) -> String {
    let Some(handed) = done.handed_over else {
        let why = done.why_not.as_deref().unwrap_or_default();
        return format!("data process {} is drained, and one started anew: {why}", done.from);
    };
    let left = match handed.left {
        0 => String::new(),
        left => format!("; {left} frames did not leave in time, and ended"),
    };
    format!(
        "data process {} of version {} goes on where {} stopped: {} ports handed over, nothing \
         read for {}.{} ms{left}",
        handed.to,
        done.version,
        done.from,
        handed.ports,
        handed.gap_us / 1000,
        handed.gap_us / 100 % 10,
    )
}
