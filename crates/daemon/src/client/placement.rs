//! `sluice placement`: the policy for all hosts, and its state on each.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use sluice_api::fabric;
use sluice_api::fabric_config::Operation;
use sluice_api::placement::{
    Answer, CpuStatus, Match, Mode, PlaceStatus, Policy, PolicyVersion, Question, Stamped, Status,
};
use sluice_cpus::cpu_list;
use toml::Value;

use crate::client::show::{ANSWER_MAX, HostSelector, connect, enveloped, socket, table};
use crate::client::transaction::{self, ANSWER_MAX as CHANGE_MAX};
use crate::ipc::protocol::{self, Request};

/// Asks, or sets, and prints the policy's state on each host.
///
/// # Errors
/// If no host answers, or the policy is refused, with the remedy.
pub fn ask(whom: &HostSelector, question: Question, json: bool) -> anyhow::Result<()> {
    if let Question::Set(policy) = &question {
        // A policy that is far too large could not even be sent.
        policy.check().map_err(anyhow::Error::msg)?;
    }
    let limit = if matches!(question, Question::Show) { ANSWER_MAX } else { CHANGE_MAX };
    let line = send_within(whom, &Request::Placement(question), limit)?;
    let text = match protocol::expect(&line)? {
        Outcome::Committed(answer) => transaction::render(&answer),
        Outcome::Held(answer) => render(&answer)?,
    };
    let text = if json { enveloped(&socket(whom)?, &line) } else { text };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Answer of a host: to a question, or to a policy that was set.
#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    /// The policy is part of the fabric's configuration.
    Committed(Box<sluice_api::transaction::Answer>),
    /// The policy that members hold among themselves.
    Held(Answer),
}

/// Returns the change of a fabric's configuration that sets a policy.
///
/// # Errors
/// If the policy is out of bounds.
pub fn operation(policy: Policy) -> anyhow::Result<Operation> {
    policy.check().map_err(anyhow::Error::msg)?;
    let placement = Some(Stamped { stamp: PolicyVersion::default(), policy });
    Ok(Operation::SetPlacement { placement })
}

/// Makes a policy from the command line's options.
///
/// # Errors
/// If an option cannot be parsed.
pub fn policy(
    whom: &HostSelector,
    mode: Option<Mode>,
    excluded: Option<&str>,
    high: &[String],
) -> anyhow::Result<Policy> {
    let excluded = excluded.map(cpu_list::parse).transpose().context("--exclude-cpus")?;
    let one = |text: &String| -> anyhow::Result<Match> {
        let of = numbered(whom, text)?.parse().with_context(|| format!("--high {text}"))?;
        Ok(Match(of))
    };
    Ok(Policy {
        mode,
        excluded_cpus: excluded.into_iter().flatten().collect(),
        high: high.iter().map(one).collect::<Result<_, _>>()?,
        hosts: BTreeMap::new(),
    })
}

/// Reads the policy of a file, in which a match may name a network (`vnet=blue`) that the host
/// knows.
///
/// # Errors
/// If the file cannot be read, or its contents are wrong.
pub fn read(whom: &HostSelector, file: &Path) -> anyhow::Result<Policy> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("{name}"))?;
    let mut tree: toml::Table = toml::from_str(&text).with_context(|| format!("{name}"))?;
    for one in tree.get_mut("high").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::String(text) = one {
            *text = numbered(whom, text)?;
        }
    }
    // Parsed anew, so that an error names the right line.
    let is_changed = tree.get("high") != toml::from_str::<toml::Table>(&text)?.get("high");
    let text = if is_changed { toml::to_string(&tree)? } else { text };
    toml::from_str(&text).with_context(|| format!("{name}"))
}

/// Returns a match with the number of the network that it names.
///
/// # Errors
/// If the host does not know the network.
pub fn numbered(whom: &HostSelector, text: &str) -> anyhow::Result<String> {
    let mut parts = Vec::new();
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("vnet", name)) => parts.push(format!("vni={}", number(whom, name)?)),
            _ => parts.push(part.to_owned()),
        }
    }
    Ok(parts.join(","))
}

fn number(whom: &HostSelector, vnet: &str) -> anyhow::Result<u32> {
    let line = send(whom, &Request::Fabric(fabric::Question::Vnets))?;
    let answer =
        protocol::expect(&line).context("only a member of a fabric knows `vnet=`: name the VNI");
    let fabric::Answer::Vnets(rows) = answer? else { bail!("the host answers something else") };
    match rows.iter().find(|row| row.vnet == vnet) {
        Some(row) => Ok(row.vni),
        None => {
            let names: Vec<&str> = rows.iter().map(|row| row.vnet.as_str()).collect();
            bail!("the host knows no network `{vnet}`; there are {}", names.join(", "))
        }
    }
}

fn send(whom: &HostSelector, request: &Request) -> anyhow::Result<String> {
    send_within(whom, request, ANSWER_MAX)
}

fn send_within(whom: &HostSelector, request: &Request, limit: Duration) -> anyhow::Result<String> {
    let socket = socket(whom)?;
    let stream = connect(&socket)?;
    stream.set_read_timeout(Some(limit))?;
    protocol::ask(stream, request).with_context(|| format!("{} did not answer", socket.display()))
}

fn render(answer: &Answer) -> anyhow::Result<String> {
    let stamp = answer.stamped.stamp;
    let mut text = match stamp.version {
        0 => "no policy is set: each host's configuration holds\n".to_owned(),
        version => {
            let policy = toml::to_string(&answer.stamped.policy)?;
            let policy =
                if policy.is_empty() { "# each host's configuration holds\n" } else { &policy };
            let of = if answer.committed { ", in the fabric's configuration" } else { "" };
            format!("# version {version}, set at host {}{of}\n{policy}", stamp.by)
        }
    };
    text.push('\n');
    let named = Stamps::of(answer);
    let header = ["host", "version", "place", "rule", "CPU", "buckets", "high", "load %", ""];
    let rows = answer.hosts.iter().flat_map(|host| host_rows(host, &named)).collect();
    for line in table(&header, 4, rows, "no hosts").lines() {
        text += line.trim_end();
        text.push('\n');
    }
    for host in &answer.hosts {
        if let Some(why) = behind(host, stamp, &named) {
            text += &format!("{} does not follow yet: {why}\n", host.host);
        }
        for note in &host.notes {
            text += &format!("{}: {note}\n", host.host);
        }
    }
    Ok(text)
}

/// Stamps of all policies in an answer.
struct Stamps(BTreeSet<PolicyVersion>);

impl Stamps {
    fn of(answer: &Answer) -> Self {
        let mut all = BTreeSet::from([answer.stamped.stamp]);
        for host in &answer.hosts {
            all.extend(host.stamp);
            all.extend(host.places.iter().map(|place| place.stamp));
        }
        Self(all)
    }

    /// Returns the version, with as much more as is needed to tell it from the other policies.
    fn name(&self, stamp: PolicyVersion) -> String {
        let PolicyVersion { version, by, at_ms } = stamp;
        let others = self.0.iter().filter(|other| other.version == version && **other != stamp);
        let others: Vec<&PolicyVersion> = others.collect();
        if others.is_empty() {
            version.to_string()
        } else if others.iter().all(|other| other.by != by) {
            format!("{version} by {by}")
        } else {
            format!("{version} by {by} at {at_ms} ms")
        }
    }
}

/// Returns the reason why a host does not follow; `None` if it does, or if there is nothing to
/// follow.
fn behind(host: &Status, holds: PolicyVersion, named: &Stamps) -> Option<String> {
    if host.follows || holds.version == 0 {
        return None;
    }
    let Some(stamp) = host.stamp else { return Some("it could not be asked".to_owned()) };
    if stamp != holds {
        return Some(format!("it holds version {}", named.name(stamp)));
    }
    let places = host.places.iter().filter(|place| place.stamp != holds);
    let places: Vec<String> = places
        .map(|place| {
            format!("{} ({}) is at version {}", place.name, place.kind, named.name(place.stamp))
        })
        .collect();
    Some(if places.is_empty() {
        "nobody knows what its workers do".to_owned()
    } else {
        places.join(", ")
    })
}

fn host_rows(host: &Status, named: &Stamps) -> Vec<Vec<String>> {
    let version = host.stamp.map_or_else(|| "?".to_owned(), |stamp| named.name(stamp));
    if host.places.is_empty() {
        let empty = vec![String::new(); 7];
        return vec![[vec![host.host.clone(), version], empty].concat()];
    }
    let of_place = |place: &PlaceStatus| -> Vec<Vec<String>> {
        place.cpus.iter().map(|cpu| cpu_row(host, place, cpu, named)).collect()
    };
    host.places.iter().flat_map(of_place).collect()
}

fn cpu_row(host: &Status, place: &PlaceStatus, cpu: &CpuStatus, named: &Stamps) -> Vec<String> {
    let number = match (cpu.cpu, cpu.worker) {
        (Some(number), _) => number.to_string(),
        (None, Some(worker)) => format!("any (worker {worker})"),
        (None, None) => "any".to_owned(),
    };
    let said = [(cpu.excluded, "excluded"), (cpu.runs_vcpu, "runs a vCPU")];
    let said: Vec<&str> = said.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
    vec![
        host.host.clone(),
        named.name(place.stamp),
        format!("{} ({})", place.name, place.kind),
        place.mode.clone(),
        number,
        cpu.buckets.to_string(),
        cpu.high.to_string(),
        format!("{:.1}", cpu.load_percent),
        said.join(", "),
    ]
}

#[cfg(test)]
mod tests;
