//! `sluice api`: tokens of those who ask a host over the network.

use sluice_api::access::{Made, NewToken, Question, Revoked, TokenEntry, Tokens};
use sluice_api::envelope::rfc3339;

use crate::client::show::{self, HostSelector};
use crate::ipc::protocol::Request;

/// Makes a token, and prints its text alone, for a file or a variable.
///
/// # Errors
/// If no host answers, or it refuses.
pub fn make(whom: &HostSelector, new: NewToken, json: bool) -> anyhow::Result<()> {
    let made: Made = show::answer(whom, &Request::Access(Question::Make(new)))?;
    show::print(whom, &made, json, || made.token.clone())
}

/// Lists the tokens.
///
/// # Errors
/// If no host answers.
pub fn list(whom: &HostSelector, json: bool) -> anyhow::Result<()> {
    let all: Tokens = show::answer(whom, &Request::Access(Question::List))?;
    show::print(whom, &all, json, || {
        let header = ["token", "role", "networks", "made", "valid until"];
        let rows = all.tokens.iter().map(row).collect();
        show::table(&header, header.len(), rows, "there is no token").trim_end().to_owned()
    })
}

/// Ends a token.
///
/// # Errors
/// If no host answers, or there is no such token.
pub fn revoke(whom: &HostSelector, name: &str, json: bool) -> anyhow::Result<()> {
    let done: Revoked = show::answer(whom, &Request::Access(Question::Revoke(name.to_owned())))?;
    show::print(whom, &done, json, || format!("token {} is valid no more", done.revoked))
}

fn row(entry: &TokenEntry) -> Vec<String> {
    let TokenEntry { grant, made_ms, expires_ms } = entry;
    let at = |ms: u64| rfc3339(ms.into());
    let until = expires_ms.map_or_else(|| "it is revoked".to_owned(), at);
    let mut vnets = if grant.vnets.is_empty() { "all".to_owned() } else { grant.vnets.join(" ") };
    if !grant.netns.is_empty() {
        vnets += &format!(", ports in {}", grant.netns.join(" "));
    }
    vec![grant.name.clone(), grant.role.to_string(), vnets, at(*made_ms), until]
}
