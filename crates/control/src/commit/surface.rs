//! Types of the surface: what is replicated, what is asked for, what comes out.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sluice_base::{HostId, Nanos};

use super::format::Formats;
use super::mark::Mark;
use super::record::Record;

/// Index of the last applied entry of the log: the version of the configuration.
pub type Revision = u64;

/// Largest change of one transaction.
pub const CHANGE_BYTES_MAX: usize = 1 << 20;
/// Largest comment and largest name of an author.
pub const TEXT_BYTES_MAX: usize = 1 << 10;
/// Largest message between members, which is that of a snapshot.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Requests of this host that may wait at the same time.
pub const REQUESTS_MAX: usize = 64;

/// Identity of a member's disk: drawn once, when the disk is empty, and kept on it.
///
/// A host whose disk was lost comes back with another seat. It has forgotten how it voted, so it
/// must not be taken for the member that it was: it is evicted and joins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(u64);

impl Seat {
    /// Returns the seat of the low 48 bits of a random number; `None` if they are zero.
    #[must_use]
    pub const fn new(random: u64) -> Option<Self> {
        let bits = random & 0xffff_ffff_ffff;
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Part of a member in elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May be made a voter.
    Voter,
    /// Never votes in elections; may veto changes as every member.
    Learner,
    /// May be made a voter; has no ports.
    Witness,
}

/// A member of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The host.
    pub host: HostId,
    /// Its disk.
    pub seat: Seat,
    /// Its part in elections.
    pub role: Role,
}

/// Name, VNI or other key that a change claims. Two open reservations never claim the same key.
pub type Key = Vec<u8>;

/// A change that the replicated state does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The change does not fit the state; the text says why and what to do.
    Unfit(String),
    /// This version does not understand the named operation. Other versions may.
    Unknown(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(why) => f.write_str(why),
            Self::Unknown(operation) => write!(
                f,
                "operation `{operation}` is not known to this version: upgrade this host first"
            ),
        }
    }
}

/// The replicated document. Every function is deterministic: the same calls in the same order give
/// the same results on every host.
pub trait Replica: Clone {
    /// Checks a change against the state, and returns the keys that it claims.
    ///
    /// # Errors
    /// The change does not fit, or has an operation that is not understood.
    fn check(&self, change: &[u8]) -> Result<Vec<Key>, Refusal>;

    /// Applies a change, and returns the change that undoes it in the state that results.
    ///
    /// # Errors
    /// As for [`check`](Self::check); then the state is what it was.
    fn apply(&mut self, change: &[u8]) -> Result<Vec<u8>, Refusal>;

    /// Returns the members, at least one, in any order.
    fn members(&self) -> Vec<Member>;

    /// Returns the state as bytes.
    fn snapshot(&self) -> Vec<u8>;

    /// Returns the state that [`snapshot`](Self::snapshot) has written.
    ///
    /// # Errors
    /// The bytes are no state that this version understands.
    fn restore(bytes: &[u8]) -> Result<Self, Refusal>;
}

/// Identity of a transaction. Numbers of one incarnation of a host rise; incarnations of a host
/// rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The originator.
    pub host: HostId,
    /// Its start.
    pub incarnation: u64,
    /// Number within this start.
    pub number: u64,
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host.0, self.incarnation, self.number)
    }
}

/// Name of the quorums: it changes when a host is told to go on without a quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Number; zero at a host that has joined no fabric yet.
    pub number: u32,
    /// Host that began the epoch.
    pub founder: HostId,
    /// Last revision before the epoch.
    pub base: Revision,
}

/// Treatment of members that are away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every member is live and says yes.
    RequireAll,
    /// Every live member says yes, and a majority of the voters is among them.
    Quorum,
    /// As `Quorum`, after the given time for members that are away to come back.
    Wait(Nanos),
}

/// A transaction to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The change, as the document encodes it.
    pub change: Vec<u8>,
    /// The user.
    pub author: String,
    /// Wall-clock time in milliseconds since 1970, for the log.
    pub time_ms: u64,
    /// Words of the user.
    pub comment: String,
    /// Treatment of members that are away.
    pub policy: Policy,
    /// Time within which the transaction must be confirmed, else it is undone.
    pub confirm_within: Option<Nanos>,
}

/// A request of this host's operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Commits a transaction.
    Commit(Proposal),
    /// Asks every live member for its vote on a change, and leaves nothing behind.
    Check(Vec<u8>),
    /// Confirms the transaction that waits for it.
    Confirm,
    /// Undoes the transaction that waits to be confirmed.
    Revert,
    /// Goes on without a quorum, which is lost for good. Gives up what only the lost hosts knew.
    Recover {
        /// Hosts whose votes are not waited for any more. They stay members until evicted.
        without: Vec<HostId>,
    },
}

/// Number of a request, for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Number of a check, for its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckTicket(pub u64);

/// Number of a write, for its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteTicket(pub u64);

/// A host's reason against a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veto {
    /// The host.
    pub host: HostId,
    /// The reason, and what to do.
    pub reason: String,
}

/// Success of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The transaction is committed.
    Committed {
        /// Its entry of the log.
        revision: Revision,
        /// Its identity.
        id: TxnId,
    },
    /// Every live member would say yes.
    Checked {
        /// Hosts that were asked.
        yes: Vec<HostId>,
        /// Members that are away.
        away: Vec<HostId>,
    },
    /// The waiting transaction is confirmed.
    Confirmed(Revision),
    /// The waiting transaction is undone.
    Reverted(Revision),
    /// A new epoch has begun.
    Recovered(Epoch),
}

/// Failure of a request. Nothing has changed, except for [`InDoubt`](Self::InDoubt).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Live members have reasons against the change.
    Vetoed(Vec<Veto>),
    /// Too few voters are live.
    NoQuorum {
        /// Number of voters.
        voters: usize,
        /// Voters that did not answer.
        missing: Vec<HostId>,
    },
    /// Voters that are connected have not answered in time, and without them is no majority.
    Slow(Vec<HostId>),
    /// Members are away that the policy requires.
    Away(Vec<HostId>),
    /// Another transaction has claimed the same keys.
    Conflict(TxnId),
    /// The change no longer fits: another transaction came first.
    TooLate(String),
    /// This host has not caught up with the log.
    Behind,
    /// This host cannot write.
    Disk(String),
    /// The transaction was handed to the log, and its fate is not known yet. The log shows it.
    InDoubt(TxnId),
    /// The change does not fit the configuration.
    Unfit(String),
    /// Another transaction waits to be confirmed.
    Unconfirmed(Revision),
    /// No transaction waits to be confirmed.
    NothingToConfirm,
    /// A bound is exceeded.
    TooLarge(&'static str),
    /// Too many requests wait.
    Busy,
    /// This host is no member.
    NotMember,
    /// This version does not understand an entry of the log.
    Halted(String),
    /// The revision is no longer in the history.
    Forgotten(Revision),
}

/// Result of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change is part of the state.
    Applied,
    /// The change did not fit any more; nothing has changed.
    Refused(String),
}

/// A transaction of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its entry of the log.
    pub revision: Revision,
    /// Its identity; that of the undone transaction if `undoes`.
    pub id: TxnId,
    /// Undoes an unconfirmed transaction.
    pub undoes: bool,
    /// The user.
    pub author: String,
    /// Wall-clock time in milliseconds, as the originator stated it.
    pub time_ms: u64,
    /// Words of the user.
    pub comment: String,
    /// Hosts that said yes.
    pub votes: Vec<HostId>,
    /// The change.
    pub change: Vec<u8>,
    /// The change that undoes it; empty if it was refused.
    pub inverse: Vec<u8>,
    /// Its result.
    pub outcome: Outcome,
}

/// Progress of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Last applied revision.
    pub revision: Revision,
    /// Transactions applied since the fabric began: differences are lags in transactions.
    pub transactions: u64,
    /// Hash of all applied entries.
    pub hash: u64,
}

/// Phase of a transaction that this host originates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPhase {
    /// It waits for members that are away, or for a majority.
    Waits,
    /// Members are asked for their votes.
    Reserves,
    /// The log is asked to take it.
    PreCommits,
    /// The log is asked to end it.
    Aborts,
}

/// Work for the caller. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a message to a host; it may be lost.
    Send {
        /// The host.
        to: HostId,
        /// At most [`MESSAGE_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Make records durable, all or none, then call `persisted` or `write_failed`. The next write
    /// comes after that.
    Write {
        /// Number of the write.
        ticket: WriteTicket,
        /// The records in order.
        records: Vec<Record>,
    },
    /// Keep this mark in place of the one before, where it outlives the process, before the next
    /// output is carried out; then go on without a flush. A start is given it
    /// ([`super::Recovered::with_mark`]).
    Keep(Mark),
    /// Check a change against what only this host knows, then call `checked`.
    Check {
        /// Number of the check.
        ticket: CheckTicket,
        /// The transaction.
        id: TxnId,
        /// The change.
        change: Vec<u8>,
        /// The vote only is wanted: reserve nothing.
        dry: bool,
    },
    /// A reservation has ended: release what the check has set aside.
    Released {
        /// The transaction.
        id: TxnId,
    },
    /// An entry was applied; [`super::Commit::replica`] shows the result.
    Applied(Transaction),
    /// The waiting transaction was confirmed.
    Confirmed(TxnId),
    /// The state was replaced as a whole, and is durable.
    Installed(Revision),
    /// A request has ended.
    Answer {
        /// The request.
        request: RequestId,
        /// Its result.
        result: Result<Done, Refused>,
    },
    /// Progress of another member.
    Progress {
        /// The member.
        host: HostId,
        /// Its progress.
        progress: Progress,
    },
    /// A member has applied other entries at the same revision. It needs an operator.
    Diverged {
        /// The member.
        host: HostId,
        /// The revision.
        revision: Revision,
    },
    /// A member and this host have no format of messages in common: the one with the older program
    /// takes part in no change until it is upgraded.
    OtherFormats {
        /// The member.
        host: HostId,
        /// Its formats.
        theirs: Formats,
        /// This host's.
        ours: Formats,
    },
    /// Entries of an older epoch were kept aside; they are not part of the configuration.
    KeptAside {
        /// The older epoch.
        epoch: Epoch,
        /// Number of entries.
        entries: usize,
    },
    /// This host is no member any more, and has stopped.
    Removed {
        /// Host that said so.
        by: HostId,
    },
    /// A member does not know this host with its disk: it is no member yet, or must be evicted and
    /// join again.
    Stranger {
        /// Host that said so.
        by: HostId,
    },
    /// This version does not understand an entry; the last state stays in force.
    Halted(String),
}

mod words;
