//! `sluice reload`: has the running host read its configuration file again.

use std::io::Write as _;

use anyhow::Context as _;
use sluice_api::envelope::Envelope;
use sluice_api::reload::{AtRestart, Reloaded};

use crate::client::show::{HostSelector, connect, socket, who};
use crate::ipc::protocol::{self, Request};

/// Requests the reload, and prints what changed.
///
/// # Errors
/// If no host answers, or the file is refused, with the reason.
pub fn reload(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let socket = socket(whom)?;
    let line = protocol::ask(connect(&socket)?, &Request::Reload)
        .with_context(|| format!("{} did not answer", socket.display()))?;
    let done: Reloaded = protocol::expect(&line)?;
    let text = match json {
        true => Envelope::now(who(&socket)).around(&serde_json::to_string(&done)?),
        false => words(&done),
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

fn words(done: &Reloaded) -> String {
    let mut lines: Vec<String> = done.changed.clone();
    if lines.is_empty() {
        lines.push("nothing has changed".to_owned());
    }
    if done.ended_frames > 0 {
        lines.push(format!(
            "{} frames for what is removed ended under `removed`",
            done.ended_frames
        ));
    }
    for AtRestart { key, why } in &done.at_restart {
        lines.push(format!("{key}: takes effect after `sluice upgrade`: {why}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_changes_and_what_waits() {
        assert_eq!(words(&Reloaded::default()), "nothing has changed");
        let why = "the data process reads it at its start".to_owned();
        let done = Reloaded {
            data: Some(7),
            changed: vec!["network `red` is added".to_owned()],
            at_restart: vec![AtRestart { key: "host.workers".to_owned(), why }],
            ended_frames: 3,
        };
        let expected = "network `red` is added\n\
                        3 frames for what is removed ended under `removed`\n\
                        host.workers: takes effect after `sluice upgrade`: the data process reads \
                        it at its start";
        assert_eq!(words(&done), expected);
    }
}
