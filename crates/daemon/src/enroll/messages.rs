//! Messages of a join: one line of JSON in each direction.
//!
//! ```json
//! {"format":1,"program":"0.1.0","name":"h2","vtep":"10.0.0.2","address":"10.0.0.2:7474",
//!  "token":"…32 hexadecimal digits…","request":"-----BEGIN CERTIFICATE REQUEST-----…"}
//!
//! {"format":1,"program":"0.1.0","outcome":{"joined":{"fabric":"prod","number":"…","id":2,
//!  "certificate":"…","authorities":["…"],"authority":{…},"members":[{"name":"h1",…}]}}}
//! {"format":1,"program":"0.1.0","outcome":{"refused":{"kind":"token_used","error":"…",
//!  "remedy":"…"}}}
//! ```
//!
//! A message of another format is answered with the versions of both, whatever else is in it.
//! Unknown keys are ignored.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::authority::AuthorityPem;
use super::profile::{NAME_SIZE_MAX, is_name};
use super::refusal::Refused;
use super::request::SigningRequest;
use super::token::TokenSecret;

/// Version of the messages.
pub const FORMAT: u32 = 1;
/// Longest request, with the end of its line.
pub(super) const REQUEST_LINE_MAX: usize = 8 << 10;
/// Longest answer, with the end of its line.
pub(super) const ANSWER_LINE_MAX: usize = 1 << 20;
/// Most members that an answer may list.
const MEMBERS_MAX: usize = 4_096;
/// Longest name of a fabric, and longest version of a program, in bytes.
const TEXT_SIZE_MAX: usize = 64;

/// Request on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JoinRequest {
    pub(super) format: u32,
    pub(super) program: String,
    pub(super) name: String,
    pub(super) vtep: IpAddr,
    pub(super) address: SocketAddr,
    pub(super) token: String,
    pub(super) request: String,
    /// False if its underlay sees no pause frames. Earlier programs do not say it.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub(super) has_pauses: bool,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_true(value: &bool) -> bool {
    *value
}

/// Beginning that messages of all formats have.
#[derive(Deserialize)]
pub(super) struct Header {
    pub(super) format: u32,
    #[serde(default)]
    pub(super) program: String,
}

/// A host that asks to join. All of its parts are checked by themselves; the token is not judged,
/// and whether the host fits into the fabric is for the member to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joiner {
    /// Version of its program.
    pub program: String,
    /// Its name.
    pub name: String,
    /// Its VTEP.
    pub vtep: IpAddr,
    /// Address and port at which it will listen.
    pub address: SocketAddr,
    /// Secret of its token.
    pub token: TokenSecret,
    /// Request for its certificate: for its own name.
    pub request: SigningRequest,
    /// False if its underlay sees no pause frames.
    pub has_pauses: bool,
}

impl Joiner {
    /// Reads the line of a request.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn parse(line: &[u8]) -> Result<Self, Refused> {
        let none = |_| Refused::request("what came is no request to join");
        let header: Header = serde_json::from_slice(line).map_err(none)?;
        if header.format != FORMAT {
            let theirs = plain(&header.program).unwrap_or("of an unknown version");
            return Err(Refused::version(theirs, &format!("format {FORMAT} of a join")));
        }
        let asked: JoinRequest = serde_json::from_slice(line).map_err(none)?;
        let program = plain(&asked.program)
            .ok_or_else(|| Refused::request("the version of the program is unreadable"))?;
        if asked.name.len() > NAME_SIZE_MAX || !is_name(&asked.name) {
            let why = "the name is none of a host: letters, digits, `-` and `.`, 63 at most";
            return Err(Refused::request(why));
        }
        if !is_usable(asked.vtep) || !is_usable(asked.address.ip()) || asked.address.port() == 0 {
            let why = format!("{} or {} is no address of one host", asked.vtep, asked.address);
            return Err(Refused::request(why));
        }
        let token = TokenSecret::from_digits(&asked.token)
            .ok_or_else(|| Refused::request("the token is unreadable"))?;
        let request = SigningRequest::parse(&asked.request)?;
        if request.name() != asked.name {
            let (asked, expected) = (request.name().to_owned(), asked.name);
            return Err(super::request::RequestError::OtherName { asked, expected }.into());
        }
        let program = program.to_owned();
        let (name, vtep, address) = (asked.name, asked.vtep, asked.address);
        Ok(Self { program, name, vtep, address, token, request, has_pauses: asked.has_pauses })
    }
}

/// Address of a member, as a new host is told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAddress {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// Address and port at which it listens.
    pub address: SocketAddr,
    /// Its VTEP.
    pub vtep: IpAddr,
}

/// The good answer on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JoinedMessage {
    pub(super) fabric: String,
    /// Number of the fabric: 32 hexadecimal digits.
    pub(super) number: String,
    pub(super) id: u16,
    pub(super) certificate: String,
    pub(super) authorities: Vec<String>,
    #[serde(default)]
    pub(super) authority: Option<AuthorityPem>,
    pub(super) members: Vec<MemberAddress>,
    /// Authority that is to follow; absent: none, or the member has no key of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<AuthorityPem>,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The host is a member.
    Joined(Box<JoinedMessage>),
    /// The host is no member.
    Refused(Refused),
}

/// Answer on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JoinAnswer {
    pub(super) format: u32,
    pub(super) program: String,
    pub(super) outcome: Outcome,
}

impl JoinAnswer {
    /// Puts an outcome into an answer of this program.
    pub(super) fn new(outcome: Outcome) -> Self {
        Self { format: FORMAT, program: env!("CARGO_PKG_VERSION").to_owned(), outcome }
    }

    /// Reads the line of an answer; names and texts can be shown on a terminal.
    ///
    /// # Errors
    /// A refusal in the member's name, or the reason why the answer is unreadable.
    pub(super) fn parse(line: &[u8]) -> Result<JoinedMessage, AnswerError> {
        let header: Header = serde_json::from_slice(line).map_err(|_| AnswerError::Unreadable)?;
        if header.format != FORMAT {
            let theirs = plain(&header.program).unwrap_or("of an unknown version").to_owned();
            return Err(AnswerError::Version(theirs));
        }
        let answer: Self = serde_json::from_slice(line).map_err(|_| AnswerError::Unreadable)?;
        match answer.outcome {
            Outcome::Refused(mut refused) => {
                refused.clean();
                Err(AnswerError::Refused(refused))
            }
            Outcome::Joined(joined) => {
                let names = joined.members.iter().map(|member| &member.name);
                let has_names =
                    names.clone().all(|name| name.len() <= NAME_SIZE_MAX && is_name(name));
                if !has_names
                    || joined.members.len() > MEMBERS_MAX
                    || plain(&joined.fabric).is_none()
                {
                    return Err(AnswerError::Unreadable);
                }
                Ok(*joined)
            }
        }
    }
}

/// Reason why an answer makes no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerError {
    /// The member refused.
    Refused(Refused),
    /// The member runs a program of this version, whose answers are of another format.
    Version(String),
    /// It is no answer.
    Unreadable,
}

/// Returns a short text that can be shown on a terminal.
pub(super) fn plain(text: &str) -> Option<&str> {
    let is_plain = !text.is_empty() && text.len() <= TEXT_SIZE_MAX;
    (is_plain && !text.contains(char::is_control)).then_some(text)
}

/// Returns true if an address can be that of one host.
const fn is_usable(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Parses a line as each of the requests and answers, for the fuzz target of the join, and checks
/// that what was read can be shown.
#[doc(hidden)]
pub fn fuzz(line: &[u8]) {
    if let Ok(joiner) = Joiner::parse(line) {
        assert_eq!(joiner.name, joiner.request.name());
        assert!(plain(&joiner.program).is_some());
    }
    match JoinAnswer::parse(line) {
        Ok(joined) => assert!(plain(&joined.fabric).is_some()),
        Err(AnswerError::Refused(refused)) => {
            assert!(!refused.to_string().contains(char::is_control));
        }
        Err(AnswerError::Version(version)) => assert!(!version.is_empty()),
        Err(AnswerError::Unreadable) => {}
    }
    super::standing::fuzz(line);
}

#[cfg(test)]
mod tests;
