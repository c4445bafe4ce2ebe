//! `sluice config`, `sluice vnet create`, `sluice fabric create`: changes a fabric's configuration
//! at a running host.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use sluice_api::envelope::rfc3339;
use sluice_api::fabric_config::{Editable, FabricConfig, Operation};
use sluice_api::transaction::{Answer, Committed, How, LogRow, Question, Rotation, Status};

use crate::client::show::{HostSelector, connect, enveloped, socket, table};
use crate::ipc::protocol::{self, Request};

/// Longest time for an answer: a host that joins may have to fetch a large configuration, and
/// members that are away may be waited for.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Asks and prints.
///
/// # Errors
/// If no host answers, or it refuses, with the remedy.
pub fn ask(whom: &HostSelector, question: Question, json: bool) -> anyhow::Result<Answer> {
    let (answer, line) = ask_line(whom, question)?;
    let text = if json { enveloped(&socket(whom)?, &line) } else { render(&answer) };
    print(&text)?;
    Ok(answer)
}

/// Makes a change of the configuration.
///
/// # Errors
/// See [`ask`].
pub fn change(
    whom: &HostSelector,
    change: Vec<Operation>,
    how: How,
    json: bool,
) -> anyhow::Result<Answer> {
    ask(whom, Question::Change { change, how }, json)
}

/// Returns the operations that set values of a vport's policy; the vport by network and port.
#[must_use]
pub fn of_vport(
    (vnet, port): (&str, &str),
    values: Vec<(String, Option<Value>)>,
) -> Vec<Operation> {
    let set = |(key, value)| Operation::SetVport {
        vnet: vnet.to_owned(),
        port: port.to_owned(),
        key,
        value,
    };
    values.into_iter().map(set).collect()
}

/// Returns the operations that take the whole policy of a vport out.
///
/// # Errors
/// See [`ask`]; or it has none.
pub fn cleared(whom: &HostSelector, vport: (&str, &str)) -> anyhow::Result<Vec<Operation>> {
    let (answer, _) = ask_line(whom, Question::Show { at: None })?;
    let Answer::Config { config, .. } = answer else { bail!("{OTHER}") };
    let policy = config.vports.get(vport.0).and_then(|vports| vports.get(vport.1));
    let Some(Value::Object(values)) = policy.map(serde_json::to_value).transpose()? else {
        let (vnet, port) = vport;
        bail!("vport {vnet}/{port} has no policy; `sluice config show` has those that have one")
    };
    Ok(of_vport(vport, values.into_iter().map(|(key, _)| (key, None)).collect()))
}

/// Replaces the fabric's authority, and prints each step when it is taken. A replacement that was
/// begun before is continued.
///
/// # Errors
/// If a member does not take part in a step. The steps before it stay, and another call continues.
pub fn rotate_ca(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let mut begin = true;
    loop {
        match ask(whom, Question::RotateCa { begin }, json)? {
            Answer::Rotation(rotation) if rotation.step < rotation.steps => begin = false,
            _ => return Ok(()),
        }
    }
}

/// Gives the authority up that is to follow, and does not sign yet.
///
/// # Errors
/// If none is about to follow, or it signs already.
pub fn abandon_ca(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    ask(whom, Question::AbandonCa, json).map(|_| ())
}

/// Keeps the text of a file as the candidate; `-` is the standard input.
///
/// # Errors
/// If it cannot be read, or is no configuration.
pub fn load(whom: &HostSelector, file: &Path, json: bool) -> anyhow::Result<()> {
    let text = match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).context("cannot read the input"),
        _ => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
        }
    }?;
    Editable::read(&text).with_context(|| format!("{} is refused", file.display()))?;
    ask(whom, Question::Load { text, base: None }, json).map(|_| ())
}

/// Opens the candidate, or the configuration if there is none, in an editor, and keeps the result
/// as the candidate.
///
/// # Errors
/// If the editor fails, or its text is no configuration; the text stays in a file that is named.
pub fn edit(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let (answer, _) = ask_line(whom, Question::Candidate)?;
    let Answer::Candidate { base, text, .. } = answer else { bail!("{OTHER}") };
    let file = scratch();
    std::fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    let editor = std::env::var("VISUAL").or_else(|_| std::env::var("EDITOR"));
    let editor = editor.unwrap_or_else(|_| "vi".to_owned());
    // As git does: the variable may have arguments.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&file);
    let status = command.status().with_context(|| format!("cannot run the editor `{editor}`"))?;
    if !status.success() {
        _ = std::fs::remove_file(&file);
        bail!("the editor `{editor}` failed ({status}); nothing has changed");
    }
    let edited = std::fs::read_to_string(&file)?;
    if let Err(error) = Editable::read(&edited) {
        bail!(
            "the text is refused: {error}\nit is in {}; mend it, and `sluice config load {0}`",
            file.display()
        );
    }
    _ = std::fs::remove_file(&file);
    if edited == text {
        return print("nothing has changed\n");
    }
    ask(whom, Question::Load { text: edited, base: Some(base) }, json).map(|_| ())
}

/// Prints the text that people edit.
///
/// # Errors
/// See [`ask`].
pub fn show(whom: &HostSelector, at: Option<u64>, json: bool) -> anyhow::Result<()> {
    if json {
        return ask(whom, Question::Show { at }, true).map(|_| ());
    }
    let (answer, _) = ask_line(whom, Question::Show { at })?;
    let Answer::Config { revision, config, not_in_force } = answer else { bail!("{OTHER}") };
    print(&text_of(revision, &config, not_in_force.as_deref()))
}

/// Prints the VLANs of all trunks.
///
/// # Errors
/// See [`ask`].
pub fn vlans(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let (answer, _) = ask_line(whom, Question::Show { at: None })?;
    let Answer::Config { config, .. } = answer else { bail!("{OTHER}") };
    if json {
        let line = serde_json::json!({ "vlans": config.vlans }).to_string();
        return print(&enveloped(&socket(whom)?, &line));
    }
    let rows = config.vlans.iter().flat_map(|(trunk, vlans)| {
        vlans.iter().map(|(number, vlan)| {
            let native = if vlan.native { "yes" } else { "-" };
            vec![trunk.clone(), number.to_string(), vlan.vnet.clone(), native.to_owned()]
        })
    });
    let header = ["trunk", "VLAN", "vnet", "native"];
    print(&table(&header, 1, rows.collect(), "no VLAN is a network\n"))
}

fn text_of(revision: u64, config: &FabricConfig, not_in_force: Option<&str>) -> String {
    let members: String = config
        .members
        .iter()
        .map(|(name, member)| format!("#   {name}: number {}, VTEP {}\n", member.id, member.vtep))
        .collect();
    let text = Editable::of(config).text();
    // Each line of a reason is a comment.
    let note = not_in_force.map_or_else(String::new, |why| {
        format!("# {NOT_IN_FORCE}: {}\n", why.replace('\n', "\n#   "))
    });
    format!("# fabric {}, revision {revision}; members:\n{members}{note}\n{text}", config.fabric)
}

/// Prints the difference of the candidate from the configuration, or of two revisions.
///
/// # Errors
/// See [`ask`].
pub fn difference(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let (answer, line) = ask_line(whom, Question::Candidate)?;
    let Answer::Candidate { changes, .. } = answer else { bail!("{OTHER}") };
    if json {
        return print(&enveloped(&socket(whom)?, &line));
    }
    match changes.is_empty() {
        true => print("the candidate does not differ from the configuration\n"),
        false => print(&lines("", &changes)),
    }
}

/// Asks, and prints nothing.
///
/// # Errors
/// See [`ask`].
pub(crate) fn quietly(whom: &HostSelector, question: Question) -> anyhow::Result<Answer> {
    ask_line(whom, question).map(|(answer, _)| answer)
}

/// Returns the state of the configuration at a member.
///
/// # Errors
/// If the host is none, or does not answer.
pub(crate) fn status_of(whom: &HostSelector) -> anyhow::Result<Status> {
    match quietly(whom, Question::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => bail!("{OTHER}"),
    }
}

/// Returns true if a host listens for commands.
pub(crate) fn is_there(whom: &HostSelector) -> bool {
    socket(whom).is_ok_and(|socket| connect(&socket).is_ok())
}

const OTHER: &str = "the host answered another question; compare `sluice --version` there";

const NOT_IN_FORCE: &str = "not in force at this host, which tries again until it is";

fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("sluice-config-{}.toml", std::process::id()))
}

fn ask_line(whom: &HostSelector, question: Question) -> anyhow::Result<(Answer, String)> {
    let socket = socket(whom)?;
    let stream = connect(&socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let line = protocol::ask(stream, &Request::Transaction(Box::new(question)))
        .with_context(|| format!("{} did not answer", socket.display()))?;
    Ok((protocol::expect(&line)?, line))
}

fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Formats an answer for people.
pub(super) fn render(answer: &Answer) -> String {
    match answer {
        Answer::Member { fabric, host, id, vtep, members, notes } => format!(
            "{host} is member {id} of fabric {fabric}, with VTEP {vtep}; members: {}\n{}",
            members.join(", "),
            lines("", notes)
        ),
        Answer::Token { token, expires_ms, address } => {
            let mut text = format!("{token}\n");
            if std::io::stdout().is_terminal() {
                _ = write!(
                    text,
                    "one host may join with it until {}: `sluice fabric join {address} --token …`\n\
                     it is not shown again\n",
                    rfc3339(u128::from(*expires_ms))
                );
            }
            text
        }
        Answer::Committed(committed) => self::committed(committed),
        Answer::Accepted { changes, voted } => {
            format!("{}accepted by {}; nothing has changed\n", lines("", changes), voted.join(", "))
        }
        Answer::Log(rows) => rows.iter().map(transaction).collect(),
        Answer::Config { revision, config, not_in_force } => {
            text_of(*revision, config, not_in_force.as_deref())
        }
        Answer::Status(status) => self::status(status),
        Answer::Candidate { changes, .. } => match changes.is_empty() {
            true => "the candidate does not differ from the configuration\n".to_owned(),
            false => format!(
                "candidate:\n{}`sluice config check` asks all members, `sluice config commit` \
                 commits it\n",
                lines("  ", changes)
            ),
        },
        Answer::Rotation(rotation) => self::rotation(rotation),
        Answer::Done { said } => format!("{said}\n"),
    }
}

fn lines(before: &str, all: &[String]) -> String {
    all.iter().map(|line| format!("{before}{line}\n")).collect()
}

fn committed(committed: &Committed) -> String {
    let mut text = lines("", &committed.changes);
    _ = write!(text, "revision {}", committed.revision);
    _ = match committed.behind.is_empty() {
        true => writeln!(text, ": at all {} members", committed.applied.len()),
        false => writeln!(
            text,
            ": at {}; not yet at {}",
            committed.applied.join(", "),
            committed.behind.join(", ")
        ),
    };
    if let Some(seconds) = committed.confirm_within_s {
        _ = writeln!(
            text,
            "it is undone in {seconds} s unless `sluice config confirm` comes before"
        );
    }
    let failed: Vec<String> = committed.not_in_force.iter().cloned().collect();
    text += &lines(&format!("{NOT_IN_FORCE}: "), &failed);
    text + &lines("takes effect at this host's next restart: ", &committed.at_restart)
}

fn rotation(rotation: &Rotation) -> String {
    let Rotation { step, steps, said, committed, .. } = rotation;
    let mut text = format!("step {step} of {steps}: {said}; revision {}", committed.revision);
    if !committed.behind.is_empty() {
        _ = write!(text, ", not yet at {}", committed.behind.join(", "));
    }
    text + "\n"
}

fn transaction(row: &LogRow) -> String {
    let state = match row.state.as_str() {
        "committed" => String::new(),
        state => format!(", {state}"),
    };
    let remark = if row.comment.is_empty() { "" } else { "  # " };
    let mut text = format!(
        "{}  {}  by {}{state}{remark}{}\n",
        row.revision,
        rfc3339(u128::from(row.at_ms)),
        row.by,
        row.comment
    );
    text += &lines("    ", &row.changes);
    text += &lines("    undone by: ", &row.inverse);
    if !row.why.is_empty() {
        _ = writeln!(text, "    {}", row.why);
    }
    text
}

/// Formats the state of a configuration.
pub(crate) fn status(status: &Status) -> String {
    let mut text = format!(
        "fabric {}, revision {} here; {}\n",
        status.fabric,
        status.revision,
        match (&status.leader, status.writable) {
            (Some(leader), true) => format!("{leader} leads, changes can be committed"),
            _ => format!("no change can be committed: {}", status.why),
        }
    );
    let rows = status.members.iter().map(|member| {
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |n| n.to_string());
        vec![
            member.name.clone(),
            member.vtep.to_string(),
            member.part.clone(),
            if member.connected { "yes" } else { "no" }.to_owned(),
            number(member.revision),
            number(member.lag),
        ]
    });
    let header = ["member", "VTEP", "part", "connected", "revision", "lag"];
    text += &table(&header, 4, rows.collect(), "no member\n");
    if let Some(revision) = status.unconfirmed {
        _ = writeln!(text, "revision {revision} waits for `sluice config confirm`");
    }
    text += &lines("kept aside, as another history holds: ", &status.aside);
    let failed: Vec<String> = status.not_in_force.iter().cloned().collect();
    text += &lines(&format!("{NOT_IN_FORCE}: "), &failed);
    text + &lines("takes effect at this host's next restart: ", &status.at_restart)
}

#[cfg(test)]
mod tests;
