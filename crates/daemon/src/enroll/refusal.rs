//! Reasons why a member refuses a host that asks to join.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::request::RequestError;
use super::token::TokenError;

/// Kind of a refusal, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedKind {
    /// The fabric does not know the token.
    TokenWrong,
    /// The token was used.
    TokenUsed,
    /// The token's time is over.
    TokenExpired,
    /// A member has this name.
    NameTaken,
    /// A member has this VTEP.
    VtepTaken,
    /// A member listens at this address.
    AddressTaken,
    /// The policy of the fabric pauses the underlay, and that of the new host sees no pauses.
    Underlay,
    /// One of the two programs is too old for the other.
    Version,
    /// The request cannot be read, or its parts contradict each other.
    Request,
    /// The member cannot change the fabric now, such as without a quorum.
    Unavailable,
    /// A kind that this program does not know.
    #[serde(other)]
    Other,
}

/// Refusal of a join, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Refused {
    /// Kind.
    pub kind: RefusedKind,
    /// Reason.
    pub error: String,
    /// Remedy.
    pub remedy: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; {}", self.error, self.remedy)
    }
}

impl Refused {
    /// Makes a refusal.
    #[must_use]
    pub fn new(kind: RefusedKind, error: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind, error: error.into(), remedy: remedy.into() }
    }

    /// A member has the name of the new host.
    #[must_use]
    pub fn name_taken(name: &str) -> Self {
        Self::new(
            RefusedKind::NameTaken,
            format!("the fabric has a member `{name}`"),
            format!(
                "give this host another `name`, or take the other out with `sluice fabric evict \
                 {name}` if this is the same machine, installed again"
            ),
        )
    }

    /// Member `of` has the VTEP of the new host.
    #[must_use]
    pub fn vtep_taken(vtep: std::net::IpAddr, of: &str) -> Self {
        Self::new(
            RefusedKind::VtepTaken,
            format!("the VTEP {vtep} is that of the member `{of}`"),
            "choose the device with this host's own address with `--underlay`",
        )
    }

    /// Member `of` listens at the address of the new host.
    #[must_use]
    pub fn address_taken(address: std::net::SocketAddr, of: &str) -> Self {
        Self::new(
            RefusedKind::AddressTaken,
            format!("the member `{of}` listens at {address}"),
            "set `fabric.address` of this host to an address of its own",
        )
    }

    /// The fabric's policy pauses the underlay, and that of the new host sees no pauses.
    #[must_use]
    pub fn underlay(policy: &str, fitting: &str) -> Self {
        Self::new(
            RefusedKind::Underlay,
            format!(
                "the fabric's policy is {policy}, which pauses the physical network, and the UDP \
                 sockets of the new host see no pause frames (PFC)"
            ),
            format!(
                "use `kind = \"l2\"` in `[underlay]` of its file, or `sluice config set \
                 policy={fitting}` on a member"
            ),
        )
    }

    /// The fabric uses something that the program of the new host does not understand.
    #[must_use]
    pub fn version(theirs: &str, needs: &str) -> Self {
        Self::new(
            RefusedKind::Version,
            format!(
                "the new host runs sluice {theirs}, which does not understand {needs}; this member \
                 runs {}",
                env!("CARGO_PKG_VERSION")
            ),
            "install the same version on both",
        )
    }

    /// The member cannot change the fabric now.
    #[must_use]
    pub fn unavailable(why: impl Into<String>) -> Self {
        let remedy = "try again, or ask another member; `sluice fabric status` there says more";
        Self::new(RefusedKind::Unavailable, why, remedy)
    }

    /// The request cannot be read.
    pub(super) fn request(why: impl Into<String>) -> Self {
        let remedy = "compare `sluice --version` of both hosts";
        Self::new(RefusedKind::Request, why, remedy)
    }

    /// Limits and cleans the texts of another host for a terminal.
    pub(super) fn clean(&mut self) {
        for text in [&mut self.error, &mut self.remedy] {
            sluice_api::foreign::clean(text);
        }
    }
}

impl From<TokenError> for Refused {
    fn from(error: TokenError) -> Self {
        let kind = match error {
            TokenError::Wrong => RefusedKind::TokenWrong,
            TokenError::Used => RefusedKind::TokenUsed,
            TokenError::Expired => RefusedKind::TokenExpired,
        };
        let remedy = "make another one with `sluice fabric token` on a member";
        Self::new(kind, error.to_string(), remedy)
    }
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Self {
        Self::request(format!("the request for a certificate is refused: {error}"))
    }
}
