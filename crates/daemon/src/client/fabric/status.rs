//! `sluice fabric status`: hosts, and receivers that do not take frames. It shows control's state
//! (hosts, holds) beside data's state (waiting frames here). It matters most when one process
//! hangs, so it then shows the state of the other.

use std::path::Path;

use sluice_api::fabric::{Answer, Holds, IsolatedRow, MemberRow, Question, ReceiverRow, Status};
use sluice_api::show::{self, Body};
use sluice_api::transaction;

use super::{ask, print, tables};
use crate::client;
use crate::client::show::{HostSelector, enveloped, socket};
use crate::ipc::protocol::{self, Request};

/// Exit code if a member is away or behind, or the configuration is not in force here.
const LAGS: u8 = 3;
/// Exit code if the configuration cannot be changed.
const NOT_WRITABLE: u8 = 4;
/// Exit code if this host was evicted.
const EVICTED: u8 = 5;

/// Asks both processes of a host and prints, as tables or as one line of JSON. Returns the exit
/// code.
///
/// # Errors
/// If no host answers, with the remedy.
pub fn status(whom: &HostSelector, json: bool) -> anyhow::Result<u8> {
    let socket = socket(whom)?;
    let Answer::Members(members) = protocol::expect(&ask(&socket, Question::Members)?)? else {
        anyhow::bail!("the host answered something else than was asked");
    };
    let Answer::Holds(holds) = protocol::expect(&ask(&socket, Question::Holds)?)? else {
        anyhow::bail!("the host answered something else than was asked");
    };
    // A host of an earlier version does not know the question.
    let certificates = ask(&socket, Question::Certificates).ok();
    let certificates = certificates.and_then(|line| match protocol::expect(&line) {
        Ok(Answer::Certificates(certificates)) => Some(certificates),
        _ => None,
    });
    let told = client::show::ask(&socket, show::Question::Pauses);
    let told = told.and_then(|line| protocol::expect::<show::Answer>(&line));
    // A host of an earlier release does not know the question.
    let rivals = ask(&socket, Question::Rivals).ok();
    let rivals = rivals.and_then(|line| protocol::expect(&line).ok());
    let mut status = composed(members, &holds, told.map_err(|error| error.to_string()));
    status.certificates = certificates;
    if let Some(Answer::Rivals(rows)) = rivals {
        status.bound_twice = rows;
    }
    status.configuration = configuration(&socket);
    let text = if json {
        enveloped(&socket, &serde_json::to_string(&status)?)
    } else {
        tables::status(&status)
    };
    print(&text)?;
    Ok(status.configuration.as_ref().map_or(0, |configuration| grade(configuration)))
}

/// Returns the state of the configuration, if the fabric was made by command.
fn configuration(socket: &Path) -> Option<Box<transaction::Status>> {
    let stream = client::show::connect(socket).ok()?;
    stream.set_read_timeout(Some(client::show::ANSWER_MAX)).ok()?;
    let question = Request::Transaction(Box::new(transaction::Question::Status));
    match protocol::expect(&protocol::ask(stream, &question).ok()?) {
        Ok(transaction::Answer::Status(status)) => Some(status),
        _ => None,
    }
}

fn grade(configuration: &transaction::Status) -> u8 {
    let is_well = |member: &transaction::Progress| member.connected && member.lag == Some(0);
    let all_well =
        configuration.members.iter().all(is_well) && configuration.not_in_force.is_none();
    if configuration.evicted.is_some() {
        return EVICTED;
    }
    match (configuration.writable, all_well) {
        (false, _) => NOT_WRITABLE,
        (true, false) => LAGS,
        (true, true) => 0,
    }
}

fn composed(members: Vec<MemberRow>, holds: &Holds, told: Result<show::Answer, String>) -> Status {
    let own = members.iter().find(|row| row.kind == "own");
    let host = own.map_or_else(String::new, |row| row.host.clone());
    let (mut receivers, data_silent) = match told {
        Ok(answer) => (of_data(&host, &answer), None),
        Err(error) => (of_control(&host, &holds.isolated), Some(error)),
    };
    for row in &holds.held {
        receivers.extend(row.held.iter().map(|&priority| ReceiverRow {
            host: row.host.clone(),
            port: None,
            endpoints: vec![format!("{} {}", row.vnet, row.mac)],
            priority,
            state: state(row.stuck.contains(&priority), true),
            since_ns: row.since_ns,
            waiting: vec![host.clone()],
        }));
    }
    let (certificates, bound_twice) = (None, Vec::new());
    let configuration = None;
    Status { host, data_silent, members, certificates, configuration, receivers, bound_twice }
}

/// Returns the receivers of this host from its data process.
fn of_data(host: &str, answer: &show::Answer) -> Vec<ReceiverRow> {
    let Body::Pauses(rows) = &answer.body else { return Vec::new() };
    let isolated = rows.iter().filter_map(|row| Some((row, row.isolated.as_ref()?)));
    let row_of = |(row, isolation): (&show::PauseRow, &show::Isolation)| ReceiverRow {
        host: host.to_owned(),
        port: Some(row.port.clone()),
        endpoints: isolation.endpoints.clone(),
        priority: row.priority,
        state: state(isolation.stuck, isolation.held_at_senders),
        since_ns: answer.at_ns.saturating_sub(isolation.since_ns),
        waiting: isolation.waiting.clone(),
    };
    isolated.map(row_of).collect()
}

/// Returns the receivers of this host from the last reports to control.
fn of_control(host: &str, rows: &[IsolatedRow]) -> Vec<ReceiverRow> {
    let row_of = |row: &IsolatedRow, priority: u8| ReceiverRow {
        host: host.to_owned(),
        port: Some(row.port.clone()),
        endpoints: row.endpoints.clone(),
        priority,
        state: state(row.stuck.contains(&priority), row.held.contains(&priority)),
        since_ns: row.since_ns,
        waiting: row.senders.clone(),
    };
    let all = rows.iter().flat_map(|row| row.isolated.iter().map(move |&priority| (row, priority)));
    all.map(|(row, priority)| row_of(row, priority)).collect()
}

fn state(stuck: bool, held: bool) -> String {
    match (stuck, held) {
        (true, _) => "stuck",
        (false, true) => "held",
        (false, false) => "probation",
    }
    .to_owned()
}

#[cfg(test)]
mod tests;
