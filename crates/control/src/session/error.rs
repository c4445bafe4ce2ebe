//! Reasons why a connection ends before its time.

use core::fmt;

use sluice_base::HostId;
use sluice_wire::fabric::{Malformed, Reason};

use crate::vport::Key;

/// Reason why this side ends a connection, or the other did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Bytes that are no message.
    Malformed(Malformed),
    /// The peer belongs to another fabric.
    WrongFabric,
    /// The peer names another host than the connection's.
    WrongHost(HostId),
    /// There is no version that both speak.
    NoCommonVersion {
        /// The peer's oldest and newest.
        theirs: (u8, u8),
    },
    /// A later incarnation of the peer is known.
    StaleIncarnation {
        /// The peer's incarnation.
        theirs: u64,
        /// The lowest incarnation that would be accepted.
        known: u64,
    },
    /// A message came before a Hello.
    NoHello,
    /// There was a Hello already.
    SecondHello,
    /// Claims without a snapshot before them, without a position to go on from.
    ClaimsWithoutSnapshot,
    /// Claims do not begin at the end of the last ones, or end before they begin.
    Gap {
        /// Begin of the claims.
        after: u64,
        /// End of the claims.
        up_to: u64,
        /// End of the last claims.
        at: u64,
    },
    /// A claim for a group address, which is no endpoint.
    NoEndpoint(Key),
    /// The end of a snapshot that did not begin, or that went further.
    EndWithoutBegin {
        /// End of the snapshot.
        up_to: u64,
        /// End of the last claims.
        at: u64,
    },
    /// A digest of another position than this side's.
    DigestElsewhere {
        /// Position of the digest.
        at: u64,
        /// Position of this side.
        ours: u64,
    },
    /// A snapshot out of turn, or a complaint about a snapshot that did not begin.
    WrongRound {
        /// The peer's number.
        theirs: u32,
        /// Number of rounds so far.
        ours: u32,
    },
    /// An acknowledgement of claims that were not sent, or one that goes back.
    WrongAck {
        /// The round.
        round: u32,
        /// The sequence.
        sequence: u64,
        /// Last sequence that was sent in the present round.
        sent: u64,
    },
    /// A fragment that does not follow the one before it, or of a message that is too large.
    WrongFragment {
        /// Number of the message.
        message: u32,
        /// Position in the message.
        offset: u32,
    },
    /// More fragments than may be sent without an acknowledgement.
    FragmentFlood {
        /// Size of their frames in bytes.
        waiting: u64,
    },
    /// An acknowledgement of fragments that were not sent, or one that goes back.
    WrongFragmentAck {
        /// The peer's number of bytes.
        taken: u64,
        /// Number of bytes that were sent.
        sent: u64,
    },
    /// A message that the version of the connection does not have.
    NotSpoken {
        /// The version.
        version: u8,
    },
    /// The peer ended the connection.
    Bye(Reason),
}

impl Error {
    /// Returns the reason that is sent to the peer.
    pub(super) const fn reason(&self) -> Reason {
        match self {
            Self::Malformed(_) | Self::NoEndpoint(_) => Reason::Malformed,
            Self::WrongFabric => Reason::WrongFabric,
            Self::WrongHost(_) => Reason::WrongHost,
            Self::NoCommonVersion { .. } => Reason::NoCommonVersion,
            Self::StaleIncarnation { .. } => Reason::StaleIncarnation,
            Self::Bye(_) => Reason::Leaving,
            _ => Reason::OutOfPlace,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "{error}"),
            Self::WrongFabric => f.write_str("it belongs to another fabric"),
            Self::WrongHost(HostId(host)) => write!(f, "it says that it is host {host}"),
            Self::NoCommonVersion { theirs: (min, max) } => {
                write!(f, "it speaks versions {min} to {max} only")
            }
            Self::StaleIncarnation { theirs, known } => {
                write!(f, "incarnation {theirs} is over, {known} is the lowest that would do")
            }
            Self::NoHello => f.write_str("it did not say Hello"),
            Self::SecondHello => f.write_str("it said Hello twice"),
            Self::ClaimsWithoutSnapshot => f.write_str("its claims do not begin with a snapshot"),
            Self::Gap { after, up_to, at } => {
                write!(f, "claims {after} to {up_to} do not follow {at}")
            }
            Self::NoEndpoint(key) => write!(f, "it claims the group address {}", key.mac),
            Self::EndWithoutBegin { up_to, at } => {
                write!(f, "the end of a snapshot at {up_to} does not follow {at}")
            }
            Self::DigestElsewhere { at, ours } => {
                write!(f, "a digest as of {at} does not follow {ours}")
            }
            Self::WrongRound { theirs, ours } => {
                write!(f, "snapshot {theirs} is not in turn after {ours}")
            }
            Self::WrongAck { round, sequence, sent } => {
                write!(f, "it has {sequence} of snapshot {round}, {sent} was sent")
            }
            Self::WrongFragment { message, offset } => {
                write!(f, "message {message} does not go on at byte {offset}")
            }
            Self::FragmentFlood { waiting } => {
                write!(f, "{waiting} B of messages came without an acknowledgement")
            }
            Self::WrongFragmentAck { taken, sent } => {
                write!(f, "it has {taken} B of messages, {sent} B were sent")
            }
            Self::NotSpoken { version } => {
                write!(f, "version {version} is spoken, which does not have this message")
            }
            Self::Bye(Reason::NotMember) => {
                f.write_str("it closed the connection: this host is no member there")
            }
            Self::Bye(reason) => write!(f, "it closed the connection: {reason:?}"),
        }
    }
}

impl core::error::Error for Error {}
