//! Hosts that join: a token is good for one, and the transaction that makes the host a member
//! spends it, so that of two hosts with one token one is refused.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use sluice_api::config::UnderlayKind;
use sluice_api::fabric_config::{self as shared, FabricConfig, Member, Operation, Role};

use super::Event;
use super::setup::seat;
use crate::enroll::{
    Admitted, Asker, Enroll, Fingerprint, Joiner, MemberAddress, Redemption, Refused,
    StandingAnswer, TokenId, TokenRecord, TokenUse, redeem,
};
use crate::sys::log::say;

/// Longest time for the transaction that makes a host a member.
const ANSWER_MAX: Duration = Duration::from_secs(50);

/// Longest time for the answer to a host that asks how it stands.
const STANDING_MAX: Duration = Duration::from_secs(5);

/// A host that asks to be made a member.
pub(super) struct Candidate {
    pub(super) joiner: Joiner,
    pub(super) answer: SyncSender<Result<Admitted, Refused>>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("name", &self.joiner.name).finish_non_exhaustive()
    }
}

/// The member's side of the exchange.
#[derive(Debug)]
pub(super) struct Admission(pub(super) SyncSender<Event>);

impl Enroll for Admission {
    fn admit(&self, from: SocketAddr, joiner: &Joiner) -> Result<Admitted, Refused> {
        let (answer, result) = sync_channel(1);
        let candidate = Candidate { joiner: joiner.clone(), answer };
        _ = self.0.send(Event::Admit(Box::new(candidate)));
        let result = result
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|_| Err(Refused::unavailable("the members do not decide in time")));
        if let Ok(admitted) = &result {
            say!("{} joins from {from} as number {}", joiner.name, admitted.id);
        }
        result
    }

    fn standing(&self, asker: &Asker) -> Result<StandingAnswer, Refused> {
        let (answer, result) = sync_channel(1);
        _ = self.0.send(Event::Standing(asker.clone(), answer));
        result
            .recv_timeout(STANDING_MAX)
            .unwrap_or_else(|_| Err(Refused::unavailable("this member is too busy")))
    }

    fn refused(&self, from: SocketAddr, why: &Refused) {
        say!(warn: "a host at {from} is not let in: {}", why.error);
    }
}

/// What becomes of a host that asks.
#[derive(Debug, PartialEq)]
pub(super) enum Judged {
    /// It is a member; its answer was lost.
    Again(Admitted),
    /// These operations make it a member.
    First(Vec<Operation>),
}

/// Judges a host by the configuration.
///
/// # Errors
/// Reason why it is not let in.
pub(super) fn judge(
    config: &FabricConfig,
    joiner: &Joiner,
    now_ms: u64,
) -> Result<Judged, Refused> {
    let key = joiner.request.key();
    let records: Vec<TokenRecord> =
        config.tokens.iter().filter_map(|(id, token)| record(id, token)).collect();
    let (id, redemption) = redeem(&records, &joiner.token, (&joiner.name, key), now_ms)?;
    if redemption == Redemption::Again {
        return match config.members.get(&joiner.name) {
            Some(_) => Ok(Judged::Again(admitted(config, &joiner.name))),
            None => Err(Refused::unavailable(format!("`{}` was evicted", joiner.name))),
        };
    }
    let (IpAddr::V4(vtep), IpAddr::V4(address)) = (joiner.vtep, joiner.address.ip()) else {
        return Err(Refused::unavailable("a VTEP has an IPv4 address"));
    };
    if config.members.contains_key(&joiner.name) {
        return Err(Refused::name_taken(&joiner.name));
    }
    for (name, member) in &config.members {
        if member.vtep == vtep {
            return Err(Refused::vtep_taken(joiner.vtep, name));
        }
        if member.listen() == address {
            return Err(Refused::address_taken(joiner.address, name));
        }
    }
    let policy = config.settings.policy.unwrap_or_default();
    if policy.physical_lossless() && !joiner.has_pauses {
        let fitting = policy.on(UnderlayKind::Udp);
        return Err(Refused::underlay(policy.name(), fitting.name()));
    }
    let Some(number) = config.free_id() else {
        return Err(Refused::unavailable("the fabric has no number left"));
    };
    let member = Member {
        id: number,
        seat: seat(key).get(),
        vtep,
        address: (address != vtep).then_some(address),
        role: Role::default(),
    };
    let by = shared::TokenUse { host: joiner.name.clone(), key: key.to_string() };
    Ok(Judged::First(vec![
        Operation::AddMember { name: joiner.name.clone(), member },
        Operation::SpendToken { id: id.to_string(), by },
    ]))
}

/// Returns the answer for a host that is a member now.
pub(super) fn admitted(config: &FabricConfig, name: &str) -> Admitted {
    let port = super::setup::FABRIC_PORT;
    let address = |(name, member): (&String, &Member)| MemberAddress {
        name: name.clone(),
        id: member.id,
        address: SocketAddr::new(member.listen().into(), port),
        vtep: member.vtep.into(),
    };
    Admitted {
        fabric: config.fabric.clone(),
        number: crate::config::fabric_number(&config.fabric),
        id: config.members.get(name).map_or(0, |member| member.id),
        members: config.members.iter().map(address).collect(),
        next: None,
    }
}

/// Returns the record of a token as the exchange has it.
fn record(id: &str, token: &shared::Token) -> Option<TokenRecord> {
    let used = match &token.used {
        Some(used) => {
            Some(TokenUse { host: used.host.clone(), key: used.key.parse::<Fingerprint>().ok()? })
        }
        None => None,
    };
    let id: TokenId = serde_json::from_value(u32::from_str_radix(id, 16).ok()?.into()).ok()?;
    Some(TokenRecord { id, hash: bytes(&token.hash)?, expires_ms: token.expires_ms, used })
}

/// Returns the entry of a token in the configuration.
pub(super) fn entry(record: &TokenRecord) -> (String, shared::Token) {
    let hash = record.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = shared::Token { hash, expires_ms: record.expires_ms, used: None };
    (record.id.to_string(), token)
}

fn bytes(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
