//! Messages between the control planes of two hosts, about the vports that each has, and fragments
//! of larger messages about their configuration.
//!
//! They travel over one ordered byte stream (TCP, mostly under TLS) in frames of this form:
//!
//! ```text
//!  0        2      3          4
//!  | length | type | reserved | body of `length` bytes
//!
//!  1 Hello          magic, versions, host, fabric, incarnation, state of the peer's claims
//!  2 Claims         after, up to, count, records
//!  3 SnapshotBegin  round
//!  4 SnapshotEnd    up to
//!  5 Ack            round, sequence, whole
//!  6 Digest         at, count, sum
//!  7 Resync         round
//!  8 Alive
//!  9 Bye            reason
//! 10 Ask            id, topic, time limit, size, question       \ since version 2
//! 11 Answer         id, outcome, size, answer                   / (`rpc`)
//! 12 Fragment       message, total, offset, size, bytes         \ since version 4
//! 13 FragmentAck    taken                                       / (`fragment`)
//!
//!  record: | size | what | VNI, 3 | MAC, 6 | port, 2 | moves, 4 | IPv4 ... | IPv6 ... |
//!                    what: 0-1 withdrawn, learned, sticky, bound; 2-4 IPv4s; 5-7 IPv6s
//!                    a withdrawal ends after the MAC
//!                    since version 3: a sequence for each address, 4 bytes, in their order
//! ```
//!
//! All numbers are big-endian. The format is Sluice's own. A **sequence** numbers the changes that
//! a host made to its own vports in one **incarnation** (a run of its control plane); a **round**
//! numbers the snapshots of one direction of one connection.
//!
//! Two neighbouring versions understand each other: a newer one may add fields at the end of a body
//! or of a record, and an older one skips them. Other changes need a type of their own, which is
//! sent only when both sides know it. Reserved bits are sent as zero and ignored on receipt.
//!
//! Every length is bounded ([`BODY_SIZE_MAX`], [`RECORD_SIZE_MAX`]) and nothing here allocates or
//! panics over what was received. The session decides the meaning of a message, and whether it may
//! come now.

mod fragment;
mod hold;
mod owner;
mod record;
mod rpc;

use core::fmt;

use sluice_base::HostId;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Truncated, put, split};

pub use fragment::{
    FRAGMENT_SIZE_MIN, FRAGMENT_WINDOW, FRAGMENTS_VERSION, Fragment, MESSAGE_SIZE_MAX,
};
pub use hold::{HOLD_PARTS_MAX, Held, HoldError, HoldOrder, HoldPart, HoldWriter};
pub use owner::{AskedFor, OWNER_SIZE_MAX};
pub use record::{
    IPS_MAX, IpList, Origin, RECORD_SIZE_MAX, Record, RecordError, Records, SEQUENCE_FIRST,
    SEQUENCES_VERSION, WITHDRAWAL_SIZE,
};
pub use rpc::{
    ANSWER_SIZE_MAX, ANSWER_SIZE_MIN, ASK_SIZE_MAX, ASK_SIZE_MIN, Answer, Ask, Outcome,
    RPC_VERSION, Topic,
};

/// The size of a message header, in bytes.
pub const HEADER_SIZE: usize = 4;
/// The largest body in bytes.
pub const BODY_SIZE_MAX: usize = 16 * 1024;
/// The largest frame in bytes.
pub const FRAME_SIZE_MAX: usize = HEADER_SIZE + BODY_SIZE_MAX;
/// Buffer size that is enough for every message but [`Message::Claims`], [`Message::Ask`],
/// [`Message::Answer`] and [`Message::Fragment`], in bytes.
pub const SMALL_SIZE_MAX: usize = HEADER_SIZE + size_of::<RawHello>();
/// Bytes of a frame of claims beside its records.
pub const CLAIMS_SIZE_MIN: usize = HEADER_SIZE + size_of::<RawClaims>();
/// The versions that this code speaks, oldest and newest.
pub const VERSIONS: (u8, u8) = (1, 4);

/// Magic number at the start of a [`Hello`], so that another protocol on the same port is detected
/// at once.
const MAGIC: u32 = u32::from_be_bytes(*b"SLUC");

const HELLO: u8 = 1;
const CLAIMS: u8 = 2;
const SNAPSHOT_BEGIN: u8 = 3;
const SNAPSHOT_END: u8 = 4;
const ACK: u8 = 5;
const DIGEST: u8 = 6;
const RESYNC: u8 = 7;
const ALIVE: u8 = 8;
const BYE: u8 = 9;
const ASK: u8 = 10;
const ANSWER: u8 = 11;
const FRAGMENT: u8 = 12;
const FRAGMENT_ACK: u8 = 13;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawHeader {
    length: U16,
    kind: u8,
    reserved: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawHello {
    magic: U32,
    version_min: u8,
    version_max: u8,
    host: U16,
    fabric: [u8; 16],
    incarnation: U64,
    have_incarnation: U64,
    have_sequence: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawClaims {
    after: U64,
    up_to: U64,
    count: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawAck {
    round: U32,
    sequence: U64,
    whole: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawDigest {
    at: U64,
    count: U64,
    sum: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);
const _: () = assert!(BODY_SIZE_MAX <= u16::MAX as usize);
const _: () = assert!(size_of::<RawClaims>() + RECORD_SIZE_MAX <= BODY_SIZE_MAX);

/// The first message of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that its sender speaks, oldest and newest.
    pub versions: (u8, u8),
    /// The fabric that its sender belongs to.
    pub fabric: [u8; 16],
    /// Number that the sender claims to have. The connection's certificate decides.
    pub host: HostId,
    /// Run of the sender's control plane; a later run has a higher number.
    pub incarnation: u64,
    /// State up to which the sender has the receiver's claims.
    pub have: Have,
}

/// State of another host's claims: everything up to a sequence of an incarnation is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Have {
    /// The incarnation of the owner; zero if it was never heard of.
    pub incarnation: u64,
    /// The last change that was applied; zero if the claims are not complete as of any.
    pub sequence: u64,
}

/// Changes of the sender's vports: every change above `after`, up to and including `up_to`, that no
/// later change replaces.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a> {
    /// The sequence that the message before ended with.
    pub after: u64,
    /// The sequence that this message ends with.
    pub up_to: u64,
    /// The changes, oldest first.
    pub records: Records<'a>,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The sender leaves, or starts anew.
    Leaving,
    /// No version is spoken by both.
    NoCommonVersion,
    /// The two belong to different fabrics.
    WrongFabric,
    /// The receiver claims a host number that is not that of the connection.
    WrongHost,
    /// A later incarnation of the receiver is known.
    StaleIncarnation,
    /// A message could not be read.
    Malformed,
    /// A message was not allowed when it came.
    OutOfPlace,
    /// The receiver is not, or no longer, a member of the sender's fabric.
    NotMember,
    /// A number that this version does not know.
    Unknown(u8),
}

impl Reason {
    const KNOWN: [Self; 8] = [
        Self::Leaving,
        Self::NoCommonVersion,
        Self::WrongFabric,
        Self::WrongHost,
        Self::StaleIncarnation,
        Self::Malformed,
        Self::OutOfPlace,
        Self::NotMember,
    ];

    fn from_number(number: u8) -> Self {
        Self::KNOWN.get(usize::from(number)).copied().unwrap_or(Self::Unknown(number))
    }

    const fn number(self) -> u8 {
        match self {
            Self::Leaving => 0,
            Self::NoCommonVersion => 1,
            Self::WrongFabric => 2,
            Self::WrongHost => 3,
            Self::StaleIncarnation => 4,
            Self::Malformed => 5,
            Self::OutOfPlace => 6,
            Self::NotMember => 7,
            Self::Unknown(number) => number,
        }
    }
}

/// A message as values.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Identity and state of the sender.
    Hello(Hello),
    /// Changes of the sender's vports.
    Claims(Claims<'a>),
    /// All claims of the sender follow; the numbering of changes begins again at zero.
    SnapshotBegin {
        /// Number of snapshots in this direction of this connection, this one included.
        round: u32,
    },
    /// End of a snapshot: claims that it did not name are gone.
    SnapshotEnd {
        /// The sequence up to which the snapshot counts.
        up_to: u64,
    },
    /// Acknowledges a change and everything before it.
    Ack {
        /// The round of the change; zero before the first snapshot.
        round: u32,
        /// The last change applied in this round.
        sequence: u64,
        /// True if the claims are complete: no snapshot is on its way.
        whole: bool,
    },
    /// Digest of the sender's claims.
    Digest {
        /// The sequence up to which the digest counts.
        at: u64,
        /// Number of claims.
        count: u64,
        /// The sum of their hashes.
        sum: u64,
    },
    /// Asks for another snapshot: the receiver's claims, as the sender has them, are wrong.
    Resync {
        /// The round that went wrong.
        round: u32,
    },
    /// Keepalive without content.
    Alive,
    /// The sender closes the connection.
    Bye {
        /// Reason of the end.
        reason: Reason,
    },
    /// A question. Only sent if both sides speak [`RPC_VERSION`].
    Ask(Ask<'a>),
    /// An answer to one of the receiver's questions; likewise.
    Answer(Answer<'a>),
    /// A fragment of a larger message. Only sent if both sides speak [`FRAGMENTS_VERSION`].
    Fragment(Fragment<'a>),
    /// Acknowledges fragments; likewise.
    FragmentAck {
        /// Size of the frames of all fragments that were taken on this connection, in bytes.
        taken: u64,
    },
}

/// The bytes are no frame of this protocol. The bytes behind them cannot be read either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The body is longer than [`BODY_SIZE_MAX`].
    TooLong {
        /// Its size in bytes.
        length: u16,
    },
    /// No version up to this one has such a type.
    UnknownType {
        /// The type.
        number: u8,
    },
    /// The body ends before its fields do.
    Truncated {
        /// The type of the message.
        number: u8,
    },
    /// A Hello without the magic number.
    NotFabric,
    /// A Hello with an empty range of versions.
    NoVersion {
        /// The oldest version of the range.
        min: u8,
        /// The newest.
        max: u8,
    },
    /// A record is wrong.
    Record(RecordError),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => {
                write!(f, "a body of {length} B, {BODY_SIZE_MAX} B are the limit")
            }
            Self::UnknownType { number } => write!(f, "message type {number} is not known"),
            Self::Truncated { number } => write!(f, "a message of type {number} is too short"),
            Self::NotFabric => f.write_str("the other side speaks another protocol"),
            Self::NoVersion { min, max } => write!(f, "versions {min} to {max} are none"),
            Self::Record(error) => write!(f, "a claim cannot be read: {error}"),
        }
    }
}

impl core::error::Error for Malformed {}

impl<'a> Message<'a> {
    /// Reads the frame at the start of `bytes` and returns it with its size; `None` if it is not
    /// complete yet.
    ///
    /// # Errors
    /// [`Malformed`] if more bytes cannot make it a frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Ok((header, rest)) = split::<RawHeader>(bytes) else { return Ok(None) };
        let size = usize::from(header.length.get());
        if size > BODY_SIZE_MAX {
            return Err(Malformed::TooLong { length: header.length.get() });
        }
        if !(HELLO..=FRAGMENT_ACK).contains(&header.kind) {
            return Err(Malformed::UnknownType { number: header.kind });
        }
        let Some(body) = rest.get(..size) else { return Ok(None) };
        let message = Self::parse_body(header.kind, body)?;
        Ok(Some((message, HEADER_SIZE + size)))
    }

    fn parse_body(kind: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let short = |Truncated| Malformed::Truncated { number: kind };
        Ok(match kind {
            HELLO => Self::Hello(Hello::parse(split(body).map_err(short)?.0)?),
            CLAIMS => {
                let (raw, records) = split::<RawClaims>(body).map_err(short)?;
                let records =
                    Records::new_checked(records, raw.count.get()).map_err(Malformed::Record)?;
                Self::Claims(Claims { after: raw.after.get(), up_to: raw.up_to.get(), records })
            }
            SNAPSHOT_BEGIN => {
                Self::SnapshotBegin { round: split::<U32>(body).map_err(short)?.0.get() }
            }
            SNAPSHOT_END => Self::SnapshotEnd { up_to: split::<U64>(body).map_err(short)?.0.get() },
            ACK => {
                let (raw, _) = split::<RawAck>(body).map_err(short)?;
                let (round, sequence) = (raw.round.get(), raw.sequence.get());
                Self::Ack { round, sequence, whole: raw.whole & 1 == 1 }
            }
            DIGEST => {
                let (raw, _) = split::<RawDigest>(body).map_err(short)?;
                Self::Digest { at: raw.at.get(), count: raw.count.get(), sum: raw.sum.get() }
            }
            RESYNC => Self::Resync { round: split::<U32>(body).map_err(short)?.0.get() },
            BYE => {
                let (reason, _) = split::<u8>(body).map_err(short)?;
                Self::Bye { reason: Reason::from_number(*reason) }
            }
            ASK => Self::Ask(Ask::parse(body).map_err(short)?),
            ANSWER => Self::Answer(Answer::parse(body).map_err(short)?),
            FRAGMENT => Self::Fragment(Fragment::parse(body).map_err(short)?),
            FRAGMENT_ACK => Self::FragmentAck { taken: split::<U64>(body).map_err(short)?.0.get() },
            _ => Self::Alive,
        })
    }

    /// Writes the frame into the start of `out` and returns its size. [`SMALL_SIZE_MAX`] bytes are
    /// room enough, except for claims, which a [`ClaimsWriter`] writes, and for questions, answers
    /// and fragments, which have a `frame_size`.
    ///
    /// # Panics
    /// If `out` is too short, or for claims, questions, answers and fragments that are no valid
    /// body.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let body = &mut out[HEADER_SIZE..];
        let (kind, size) = match *self {
            Self::Hello(hello) => (HELLO, emit_body(&hello.raw(), body)),
            Self::Claims(claims) => {
                let head = RawClaims {
                    after: U64::new(claims.after),
                    up_to: U64::new(claims.up_to),
                    count: U16::new(claims.records.count()),
                };
                let at = emit_body(&head, body);
                let records = claims.records.bytes();
                body[at..at + records.len()].copy_from_slice(records);
                (CLAIMS, at + records.len())
            }
            Self::SnapshotBegin { round } => (SNAPSHOT_BEGIN, emit_body(&U32::new(round), body)),
            Self::SnapshotEnd { up_to } => (SNAPSHOT_END, emit_body(&U64::new(up_to), body)),
            Self::Ack { round, sequence, whole } => {
                let (round, sequence) = (U32::new(round), U64::new(sequence));
                (ACK, emit_body(&RawAck { round, sequence, whole: u8::from(whole) }, body))
            }
            Self::Digest { at, count, sum } => {
                let [at, count, sum] = [at, count, sum].map(U64::new);
                (DIGEST, emit_body(&RawDigest { at, count, sum }, body))
            }
            Self::Resync { round } => (RESYNC, emit_body(&U32::new(round), body)),
            Self::Alive => (ALIVE, 0),
            Self::Bye { reason } => (BYE, emit_body(&reason.number(), body)),
            Self::Ask(ask) => (ASK, ask.emit(body)),
            Self::Answer(answer) => (ANSWER, answer.emit(body)),
            Self::Fragment(fragment) => (FRAGMENT, fragment.emit(body)),
            Self::FragmentAck { taken } => (FRAGMENT_ACK, emit_body(&U64::new(taken), body)),
        };
        emit_header(kind, size, out);
        HEADER_SIZE + size
    }
}

fn emit_body<B: IntoBytes + Immutable>(raw: &B, body: &mut [u8]) -> usize {
    put(raw, body);
    size_of::<B>()
}

fn emit_header(kind: u8, size: usize, out: &mut [u8]) {
    assert!(size <= BODY_SIZE_MAX, "a body of {size} B");
    let length = U16::new(u16::try_from(size).expect("bounded just before"));
    put(&RawHeader { length, kind, reserved: 0 }, out);
}

impl Hello {
    fn parse(raw: &RawHello) -> Result<Self, Malformed> {
        if raw.magic.get() != MAGIC {
            return Err(Malformed::NotFabric);
        }
        let (min, max) = (raw.version_min, raw.version_max);
        if min > max || max == 0 {
            return Err(Malformed::NoVersion { min, max });
        }
        let (incarnation, sequence) = (raw.have_incarnation.get(), raw.have_sequence.get());
        Ok(Self {
            versions: (min, max),
            fabric: raw.fabric,
            host: HostId(raw.host.get()),
            incarnation: raw.incarnation.get(),
            have: Have { incarnation, sequence },
        })
    }

    const fn raw(&self) -> RawHello {
        RawHello {
            magic: U32::new(MAGIC),
            version_min: self.versions.0,
            version_max: self.versions.1,
            host: U16::new(self.host.0),
            fabric: self.fabric,
            incarnation: U64::new(self.incarnation),
            have_incarnation: U64::new(self.have.incarnation),
            have_sequence: U64::new(self.have.sequence),
        }
    }

    /// Returns the version that both sides speak: the newest of `ours` and of the sender's; `None`
    /// if there is none.
    #[must_use]
    pub fn common_version(&self, ours: (u8, u8)) -> Option<u8> {
        let newest = self.versions.1.min(ours.1);
        (newest >= self.versions.0.max(ours.0)).then_some(newest)
    }
}

/// Writes a frame of claims, record by record.
#[derive(Debug)]
pub struct ClaimsWriter<'a> {
    out: &'a mut [u8],
    size: usize,
    count: u16,
}

impl<'a> ClaimsWriter<'a> {
    /// Begins a frame of at most [`FRAME_SIZE_MAX`] bytes at the start of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`CLAIMS_SIZE_MIN`].
    #[must_use]
    pub fn new(out: &'a mut [u8]) -> Self {
        assert!(out.len() >= CLAIMS_SIZE_MIN, "a frame of {} B", out.len());
        let size = out.len().min(FRAME_SIZE_MAX);
        Self { out: &mut out[..size], size: CLAIMS_SIZE_MIN, count: 0 }
    }

    /// Adds a record; `false`, and nothing happens, if there is no room.
    pub fn push(&mut self, record: &Record) -> bool {
        let room = &mut self.out[self.size..];
        if room.len() < record.size() {
            return false;
        }
        self.size += record.emit(room);
        self.count += 1;
        true
    }

    /// Returns the number of records.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Ends the frame and returns its size in bytes.
    pub fn finish(self, after: u64, up_to: u64) -> usize {
        let (after, up_to) = (U64::new(after), U64::new(up_to));
        let head = RawClaims { after, up_to, count: U16::new(self.count) };
        put(&head, &mut self.out[HEADER_SIZE..]);
        emit_header(CLAIMS, self.size - HEADER_SIZE, self.out);
        self.size
    }
}

// A frame of the smallest records does not overflow their count.
const _: () = assert!(BODY_SIZE_MAX / WITHDRAWAL_SIZE <= u16::MAX as usize);

#[cfg(test)]
mod tests;
