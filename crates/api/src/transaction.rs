//! Changes of a fabric's configuration: questions to a member, and its answers.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::fabric_config::{FabricConfig, Operation};

/// A question to a member, or to a host that waits to become one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Make a fabric of this host.
    Create {
        /// Name of the fabric.
        fabric: String,
        /// Place of this host in it.
        place: Place,
    },
    /// Make this host a member of a fabric.
    Join {
        /// Address of a member, with a port if it is not the default.
        address: String,
        /// Token that the fabric gave.
        token: String,
        /// Place of this host in it.
        place: Place,
    },
    /// Make a token for one host.
    Token {
        /// Time for which it is valid, in seconds.
        valid_s: u32,
    },
    /// Change the configuration.
    Change {
        /// Operations, all of them or none.
        change: Vec<Operation>,
        /// The way to do it.
        how: How,
    },
    /// Keep the transaction that would be undone by itself.
    Confirm,
    /// Undo everything after a revision.
    Rollback {
        /// The revision.
        to: u64,
        /// The way to do it.
        how: How,
    },
    /// The transactions, the newest first.
    Log {
        /// Most of them.
        last: u32,
    },
    /// The configuration, now or at an earlier revision.
    Show {
        /// The revision; absent: the current one.
        at: Option<u64>,
    },
    /// The members and their progress.
    Status,
    /// Keep a text as the candidate, which a commit would apply.
    Load {
        /// The text that people edit.
        text: String,
        /// Revision that it was made of; absent: the current one.
        base: Option<u64>,
    },
    /// The candidate, and its difference from the configuration.
    Candidate,
    /// Commit the candidate, or only ask all members about it.
    Commit {
        /// The way to do it.
        how: How,
    },
    /// Forget the candidate.
    Discard,
    /// Give this host another key, and a certificate for it.
    RotateKey,
    /// Replace the fabric's authority: the next step of it.
    RotateCa {
        /// True if a replacement is begun when none is under way.
        begin: bool,
    },
    /// Give the authority up that is to follow, and does not sign yet.
    AbandonCa,
    /// Leave the fabric; or only forget it here, when no member can be asked.
    Leave {
        /// True if no member is asked.
        forget: bool,
    },
    /// Take a member out.
    Evict {
        /// Name of the member.
        host: String,
    },
    /// Continue without members that are lost for good.
    Recover {
        /// Names of these members.
        without: Vec<String>,
    },
}

impl Question {
    /// Returns true if it changes something, or shows a secret.
    #[must_use]
    pub const fn changes(&self) -> bool {
        !matches!(self, Self::Log { .. } | Self::Show { .. } | Self::Status | Self::Candidate)
    }
}

/// Place of a host in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Device of the underlay; absent: the file's, or the device of the route to the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
    /// Address of the VTEP; absent: the first IPv4 address of that device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vtep: Option<Ipv4Addr>,
    /// Rate of the underlay in Mbit/s; absent: that of the device, if it says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<u64>,
}

/// Way to make a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct How {
    /// Remark for the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// True if members are only asked for their votes.
    #[serde(default)]
    pub check: bool,
    /// Seconds after which it is undone unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_s: Option<u32>,
    /// Members that must agree.
    #[serde(default)]
    pub away: Away,
}

/// Treatment of members that are away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Away {
    /// A majority of the voters is enough.
    #[default]
    Quorum,
    /// Nobody may be away.
    RequireAll,
    /// They are waited for this long, in milliseconds; then a majority is enough.
    Wait(u32),
}

/// Answer of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The host is a member.
    Member {
        /// Name of the fabric.
        fabric: String,
        /// Name of the host.
        host: String,
        /// Its number.
        id: u16,
        /// Its VTEP.
        vtep: Ipv4Addr,
        /// Members of the fabric.
        members: Vec<String>,
        /// Notes on its ports, such as what keeps its underlay from being lossless.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A token, which is shown once.
    Token {
        /// The token.
        token: String,
        /// End in milliseconds since 1970.
        expires_ms: u64,
        /// Address of this member, for the host that joins.
        address: Ipv4Addr,
    },
    /// A change holds.
    Committed(Committed),
    /// All members that were asked would accept the change.
    Accepted {
        /// Operations, in words.
        changes: Vec<String>,
        /// Members that voted.
        voted: Vec<String>,
    },
    /// Transactions.
    Log(Vec<LogRow>),
    /// The configuration.
    Config {
        /// Its revision.
        revision: u64,
        /// The configuration.
        config: Box<FabricConfig>,
        /// Reason why it is not in force at this host, which tries again; absent: it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_in_force: Option<String>,
    },
    /// The members and their progress.
    Status(Box<Status>),
    /// The candidate.
    Candidate {
        /// Revision that it was made of.
        base: u64,
        /// The text.
        text: String,
        /// Difference from the configuration, in words.
        changes: Vec<String>,
    },
    /// A step in the replacement of the authority.
    Rotation(Rotation),
    /// It is done.
    Done {
        /// Result, in words.
        said: String,
    },
}

/// A change that holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Committed {
    /// Revision that it made.
    pub revision: u64,
    /// Operations, in words.
    pub changes: Vec<String>,
    /// Members that have applied it.
    pub applied: Vec<String>,
    /// Members that have not yet.
    pub behind: Vec<String>,
    /// Seconds within which it must be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<u32>,
    /// Parts that take effect on this host at its next restart, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_restart: Vec<String>,
    /// Reason why the newest revision is not in force at this host, which tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_in_force: Option<String>,
}

/// A step in the replacement of the authority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotation {
    /// Number of the step, from 1.
    pub step: u8,
    /// Number of the last step.
    pub steps: u8,
    /// Fingerprint of the new authority.
    pub authority: String,
    /// Result of the step, in words.
    pub said: String,
    /// The change that it was.
    pub committed: Committed,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogRow {
    /// Revision that it made.
    pub revision: u64,
    /// Member at which it began.
    pub by: String,
    /// Time of its beginning, in milliseconds since 1970 by that member's clock.
    pub at_ms: u64,
    /// Remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Operations, in words.
    pub changes: Vec<String>,
    /// Operations that undo it, in words.
    pub inverse: Vec<String>,
    /// `committed`; `unconfirmed`: it will be undone; `refused`: it did not apply any more.
    pub state: String,
    /// Reason of a refusal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// State of the configuration at a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ConfigurationStatus))]
pub struct Status {
    /// Name of the fabric.
    pub fabric: String,
    /// Name of this host.
    pub host: String,
    /// Revision that this host has applied.
    pub revision: u64,
    /// Member that leads decisions; absent: none is known.
    pub leader: Option<String>,
    /// True if changes can be committed.
    pub writable: bool,
    /// Reason why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The members.
    pub members: Vec<Progress>,
    /// Revision of the transaction that waits for its confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<u64>,
    /// Transactions that were kept aside, as another history holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<String>,
    /// Parts that take effect on this host at its next restart, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_restart: Vec<String>,
    /// Reason why the newest revision is not in force at this host, which tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_in_force: Option<String>,
    /// Eviction of this host, as a member has told it; absent: it knows of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Evicted>,
}

/// Eviction of a host, as a member has told it. What that member does not remember is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evicted {
    /// Member that says so.
    pub told_by: String,
    /// Member at which the eviction began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time of its beginning, in milliseconds since 1970 by that member's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// Revision that it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// Progress of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    /// Name of the member.
    pub name: String,
    /// Number of the member.
    pub id: u16,
    /// VTEP of the member.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub vtep: Ipv4Addr,
    /// `voter` or `learner`; at a host that has joined and has no configuration yet, `joining` for
    /// itself and `unknown` for others.
    pub part: String,
    /// True if it is connected.
    pub connected: bool,
    /// Revision that it has applied; absent: it has not said so.
    pub revision: Option<u64>,
    /// Transactions that it lacks.
    pub lag: Option<u64>,
}
