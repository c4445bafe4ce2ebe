//! Questions between two hosts, and their answers.
//!
//! ```text
//!  Ask     | id, 8 | topic, 2 | limit in ms, 4 | size, 2 | body of `size` bytes
//!  Answer  | id, 8 | outcome, 1                | size, 2 | body of `size` bytes
//! ```
//!
//! A **topic** gives the subject and the format of question and answer; another format is another
//! topic. A host that does not know a topic answers [`Outcome::UnknownTopic`]. The topic defines
//! the content of a body; this module does not read it.

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY_SIZE_MAX, HEADER_SIZE};
use crate::{Truncated, put, split};

/// The first version with [`Ask`] and [`Answer`].
pub const RPC_VERSION: u8 = 2;
/// The largest body of a question in bytes.
pub const ASK_SIZE_MAX: usize = 1024;
/// The largest body of an answer in bytes.
pub const ANSWER_SIZE_MAX: usize = 12 * 1024;
/// Bytes of a frame with a question beside its body.
pub const ASK_SIZE_MIN: usize = HEADER_SIZE + size_of::<RawAsk>();
/// Bytes of a frame with an answer beside its body.
pub const ANSWER_SIZE_MIN: usize = HEADER_SIZE + size_of::<RawAnswer>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawAsk {
    id: U64,
    topic: U16,
    limit_ms: U32,
    size: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawAnswer {
    id: U64,
    outcome: u8,
    size: U16,
}

const _: () = assert!(ASK_SIZE_MIN + ASK_SIZE_MAX <= HEADER_SIZE + BODY_SIZE_MAX);
const _: () = assert!(ANSWER_SIZE_MIN + ANSWER_SIZE_MAX <= HEADER_SIZE + BODY_SIZE_MAX);

/// The subject of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topic(pub u16);

impl Topic {
    /// Outcome of a frame from an endpoint at a port of the host that is asked.
    pub const TRACE: Self = Self(1);
    /// Outcome of a frame that comes in VXLAN from the host that asks.
    pub const ARRIVAL: Self = Self(2);
    /// The placement policy that a host has, and its result there.
    pub const PLACEMENT: Self = Self(3);
    /// Stuck or slow receivers at the host that asks ([`HoldPart`](super::HoldPart)). The answer
    /// has no body.
    pub const HOLD: Self = Self(4);
    /// The endpoints at a port of the host that is asked, by the name of the port.
    pub const PORT: Self = Self(5);
    /// Settings that must agree between members: networks, MTUs, policy, VTEP, version, clock.
    pub const AGREE: Self = Self(6);
    /// An endpoint of the host that is asked, whose address an endpoint of the other host asks for
    /// ([`AskedFor`](super::AskedFor)). The answer has no body.
    pub const OWNER: Self = Self(7);
    /// An endpoint that may move again, although it moved too often.
    pub const THAW: Self = Self(8);
    /// The authority that is to follow the fabric's present one, with its key. The host that is
    /// asked keeps it.
    pub const AUTHORITY: Self = Self(9);
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Identifier that the answer repeats; unique in its connection.
    pub id: u64,
    /// Subject of the question.
    pub topic: Topic,
    /// Time for which the sender still waits, in milliseconds from now on.
    pub limit_ms: u32,
    /// The question.
    pub body: &'a [u8],
}

/// Outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The body answers it.
    Done,
    /// The host does not know the topic.
    UnknownTopic,
    /// The question, or its answer, would exceed its size limit.
    TooBig,
    /// The host does not answer it: it is busy, or cannot read the body.
    Refused,
    /// A number that this version does not know.
    Unknown(u8),
}

impl Outcome {
    pub(super) const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Done,
            1 => Self::UnknownTopic,
            2 => Self::TooBig,
            3 => Self::Refused,
            number => Self::Unknown(number),
        }
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::UnknownTopic => 1,
            Self::TooBig => 2,
            Self::Refused => 3,
            Self::Unknown(number) => number,
        }
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The identifier of the question.
    pub id: u64,
    /// Outcome of the question.
    pub outcome: Outcome,
    /// The answer; empty unless it is [`Outcome::Done`].
    pub body: &'a [u8],
}

impl<'a> Ask<'a> {
    /// Returns the size of its frame in bytes.
    #[must_use]
    pub const fn frame_size(&self) -> usize {
        ASK_SIZE_MIN + self.body.len()
    }

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Truncated> {
        let (raw, rest) = split::<RawAsk>(body)?;
        let body = rest.get(..usize::from(raw.size.get())).ok_or(Truncated)?;
        let (id, limit_ms) = (raw.id.get(), raw.limit_ms.get());
        Ok(Self { id, topic: Topic(raw.topic.get()), limit_ms, body })
    }

    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let raw = RawAsk {
            id: U64::new(self.id),
            topic: U16::new(self.topic.0),
            limit_ms: U32::new(self.limit_ms),
            size: size_of_body(self.body),
        };
        put(&raw, out);
        put_body(self.body, &mut out[size_of::<RawAsk>()..]);
        size_of::<RawAsk>() + self.body.len()
    }
}

impl<'a> Answer<'a> {
    /// Returns the size of its frame in bytes.
    #[must_use]
    pub const fn frame_size(&self) -> usize {
        ANSWER_SIZE_MIN + self.body.len()
    }

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Truncated> {
        let (raw, rest) = split::<RawAnswer>(body)?;
        let body = rest.get(..usize::from(raw.size.get())).ok_or(Truncated)?;
        Ok(Self { id: raw.id.get(), outcome: Outcome::from_number(raw.outcome), body })
    }

    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let raw = RawAnswer {
            id: U64::new(self.id),
            outcome: self.outcome.number(),
            size: size_of_body(self.body),
        };
        put(&raw, out);
        put_body(self.body, &mut out[size_of::<RawAnswer>()..]);
        size_of::<RawAnswer>() + self.body.len()
    }
}

fn size_of_body(body: &[u8]) -> U16 {
    U16::new(u16::try_from(body.len()).expect("a body is shorter than 64 KiB"))
}

fn put_body(body: &[u8], out: &mut [u8]) {
    out[..body.len()].copy_from_slice(body);
}
