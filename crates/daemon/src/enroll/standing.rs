//! Messages of a member that asks how it stands: one line of JSON in each direction.
//!
//! ```json
//! {"format":1,"program":"0.1.0","name":"h3","id":3,"seat":163547}
//!
//! {"format":1,"program":"0.1.0","outcome":{"standing":{"revision":19,"standing":{"evicted":
//!  {"revision":18,"by":"h1","at_ms":1767225600000}}}}}
//! {"format":1,"program":"0.1.0","outcome":{"refused":{"kind":"request","error":"…","remedy":"…"}}}
//! ```
//!
//! The serial number of the asking host's certificate is no part of the request: it is read from
//! the certificate that the host has shown in TLS, so that nobody asks for another host.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use serde::{Deserialize, Serialize};

use super::messages::{AnswerError, FORMAT, Header, plain};
use super::profile::{NAME_SIZE_MAX, is_name, serial};
use super::refusal::Refused;

/// Request on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StandingRequest {
    pub(super) format: u32,
    pub(super) program: String,
    pub(super) name: String,
    pub(super) id: u16,
    pub(super) seat: u64,
}

/// A host that is a member in its own eyes, and has shown a certificate of this fabric for its
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// Identity of its disk.
    pub seat: u64,
    /// Serial number of the certificate that it has shown.
    pub serial: String,
}

impl Asker {
    /// Reads the line of a request. `shown` is the certificate of the peer, which TLS has verified.
    ///
    /// # Errors
    /// The refusal to send. It names nothing of the fabric.
    pub(super) fn parse(line: &[u8], shown: Option<&CertificateDer<'_>>) -> Result<Self, Refused> {
        let Some(shown) = shown else {
            return Err(Refused::request("who asks how it stands has to show its certificate"));
        };
        let none = |_| Refused::request("what came does not ask how a host stands");
        let header: Header = serde_json::from_slice(line).map_err(none)?;
        if header.format != FORMAT {
            let theirs = plain(&header.program).unwrap_or("of an unknown version");
            return Err(Refused::version(theirs, &format!("format {FORMAT} of such a question")));
        }
        let asked: StandingRequest = serde_json::from_slice(line).map_err(none)?;
        if asked.name.len() > NAME_SIZE_MAX || !is_name(&asked.name) || asked.id == 0 {
            return Err(Refused::request("the name or the number is none of a host"));
        }
        let parsed = ParsedCertificate::try_from(shown).ok();
        let name = ServerName::try_from(asked.name.as_str()).ok();
        let is_own = parsed
            .zip(name)
            .is_some_and(|(certificate, name)| verify_server_name(&certificate, &name).is_ok());
        let serial = serial(shown).filter(|_| is_own).ok_or_else(|| {
            Refused::request("the certificate that was shown is that of another host")
        })?;
        let StandingRequest { name, id, seat, .. } = asked;
        Ok(Self { name, id, seat, serial })
    }
}

/// The transaction that took a host out of its fabric, as far as the log still has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Its revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Member at which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time of its beginning, in milliseconds since 1970 by that member's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// Standing of a host in the configuration of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is a member.
    Member,
    /// It was a member, and was taken out.
    Evicted(Eviction),
    /// It is no member. A member that has not caught up may say so of one that has just joined.
    Missing(Eviction),
}

/// Answer of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingAnswer {
    /// Revision that the member has applied.
    pub revision: u64,
    /// The standing at that revision.
    pub standing: Standing,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StandingOutcome {
    /// The member answers.
    Standing(StandingAnswer),
    /// It does not.
    Refused(Refused),
}

/// Answer on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StandingMessage {
    pub(super) format: u32,
    pub(super) program: String,
    pub(super) outcome: StandingOutcome,
}

impl StandingMessage {
    /// Puts an outcome into an answer of this program.
    pub(super) fn new(outcome: StandingOutcome) -> Self {
        Self { format: FORMAT, program: env!("CARGO_PKG_VERSION").to_owned(), outcome }
    }

    /// Reads the line of an answer; names and texts can be shown on a terminal.
    ///
    /// # Errors
    /// A refusal in the member's name, or the reason why the answer is unreadable.
    pub(super) fn parse(line: &[u8]) -> Result<StandingAnswer, AnswerError> {
        let header: Header = serde_json::from_slice(line).map_err(|_| AnswerError::Unreadable)?;
        if header.format != FORMAT {
            let theirs = plain(&header.program).unwrap_or("of an unknown version").to_owned();
            return Err(AnswerError::Version(theirs));
        }
        let answer: Self = serde_json::from_slice(line).map_err(|_| AnswerError::Unreadable)?;
        let answer = match answer.outcome {
            StandingOutcome::Refused(mut refused) => {
                refused.clean();
                return Err(AnswerError::Refused(refused));
            }
            StandingOutcome::Standing(answer) => answer,
        };
        let by = match &answer.standing {
            Standing::Member => None,
            Standing::Evicted(eviction) | Standing::Missing(eviction) => eviction.by.as_deref(),
        };
        match by.is_none_or(|by| plain(by).is_some()) {
            true => Ok(answer),
            false => Err(AnswerError::Unreadable),
        }
    }
}

/// Parses a line as a request without a certificate, and as an answer.
pub(super) fn fuzz(line: &[u8]) {
    assert!(Asker::parse(line, None).is_err(), "nobody is answered without a certificate");
    let Ok(asked) = serde_json::from_slice::<StandingRequest>(line) else {
        if let Ok(StandingAnswer {
            standing: Standing::Evicted(Eviction { by: Some(by), .. }),
            ..
        }) = StandingMessage::parse(line)
        {
            assert!(plain(&by).is_some());
        }
        return;
    };
    let written = serde_json::to_vec(&asked).expect("texts and numbers");
    assert_eq!(serde_json::from_slice::<StandingRequest>(&written).ok(), Some(asked));
}

#[cfg(test)]
mod tests;
