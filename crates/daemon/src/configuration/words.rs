//! Results of the commit protocol in words.

use sluice_api::fabric_config::{FabricConfig, Operation, read_change};
use sluice_base::HostId;
use sluice_control::commit::{Refused, Transaction, Veto};

/// Returns the name of a host.
pub(super) fn name(config: &FabricConfig, host: HostId) -> String {
    config.member_of(host.0).map_or_else(|| format!("host {}", host.0), |(name, _)| name.to_owned())
}

/// Returns the names of hosts.
pub(super) fn names(config: &FabricConfig, hosts: &[HostId]) -> String {
    let names: Vec<String> = hosts.iter().map(|host| name(config, *host)).collect();
    names.join(", ")
}

/// Returns operations in words, a line each.
pub(super) fn operations(change: &[Operation]) -> Vec<String> {
    change.iter().map(ToString::to_string).collect()
}

/// Returns the operations of a stored change in words.
pub(super) fn change(bytes: &[u8]) -> Vec<String> {
    match read_change(bytes) {
        Ok(all) => operations(&all),
        Err(_) if bytes.is_empty() => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

/// Returns the reason of a refusal, with the remedy.
pub(super) fn refused(config: &FabricConfig, refused: &Refused) -> String {
    match refused {
        Refused::Vetoed(all) => format!("nothing has changed; {}", vetoes(config, all)),
        Refused::NoQuorum { voters, missing } => format!(
            "nothing has changed, since {} of {voters} voters can be reached and a majority is \
             needed; missing: {}; hosts go on forwarding as before; if these are lost for good, \
             see `sluice fabric recover`",
            voters - missing.len().min(*voters),
            names(config, missing)
        ),
        Refused::Slow(hosts) => format!(
            "nothing has changed, since no vote came in time from {}, though connected: a disk or \
             processors may be busy (`sluice fabric status`); try again",
            names(config, hosts)
        ),
        Refused::Away(hosts) => format!(
            "nothing has changed, since {} is away; without `--require-all` a majority is enough",
            names(config, hosts)
        ),
        Refused::Conflict(other) => format!(
            "nothing has changed, since another change of the same names is under way at {}; try \
             again",
            name(config, other.host)
        ),
        Refused::TooLate(why) => {
            format!("nothing has changed, since another change came first: {why}")
        }
        Refused::Behind => "nothing has changed, since this host has not caught up with the \
                            others yet; try again, or at another member"
            .to_owned(),
        Refused::Disk(why) => {
            format!("nothing has changed, since the disk of this host cannot be written: {why}")
        }
        Refused::InDoubt(_) => "the change was handed to the other members and its fate is not \
                                known yet; `sluice config log` will show it"
            .to_owned(),
        Refused::Unfit(why) => why.clone(),
        Refused::Unconfirmed(revision) => format!(
            "nothing has changed, since revision {revision} waits for `sluice config confirm`"
        ),
        Refused::NothingToConfirm => "no change waits to be confirmed".to_owned(),
        Refused::TooLarge(what) => format!("{what} is too large; make the change in parts"),
        Refused::Busy => "too many changes are under way at this host; try again".to_owned(),
        Refused::NotMember => "this host is no member of the fabric any more".to_owned(),
        Refused::Halted(why) => format!(
            "this host takes part in no change, since it does not understand one of an earlier \
             transaction ({why}); upgrade it (`sluice upgrade`)"
        ),
        Refused::Forgotten(revision) => format!(
            "revision {revision} is older than what is remembered; `sluice config log` shows how \
             far back that goes"
        ),
    }
}

/// Returns vetoes by reason: members that have the same one stand together.
fn vetoes(config: &FabricConfig, all: &[Veto]) -> String {
    let mut by_reason: Vec<(&str, Vec<HostId>)> = Vec::new();
    for veto in all {
        match by_reason.iter_mut().find(|(reason, _)| *reason == veto.reason) {
            Some((_, hosts)) => hosts.push(veto.host),
            None => by_reason.push((&veto.reason, vec![veto.host])),
        }
    }
    let lines = by_reason.iter().map(|(reason, hosts)| {
        let verb = if hosts.len() == 1 { "refuses" } else { "refuse" };
        format!("{} {verb}: {reason}", names(config, hosts))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Returns the state of a transaction.
pub(super) fn state(transaction: &Transaction, unconfirmed: Option<u64>) -> (String, String) {
    use sluice_control::commit::Outcome;
    match &transaction.outcome {
        Outcome::Refused(why) => ("refused".to_owned(), why.clone()),
        Outcome::Applied if unconfirmed == Some(transaction.revision) => {
            ("unconfirmed".to_owned(), String::new())
        }
        Outcome::Applied => ("committed".to_owned(), String::new()),
    }
}

#[cfg(test)]
mod tests;
