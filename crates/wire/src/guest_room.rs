//! Frames between a host and the agent in a virtual machine: questions for the room of UDP sockets,
//! and answers.
//!
//! ```text
//!  0       4         5      6        8        16
//!  | magic | version | kind | count  | number | count entries
//!
//!  a flow, 40 bytes:  | 4 or 6 | 3 zeros | two addresses, two ports, padded to 36 |
//!  a room, 56 bytes:  | flow | socket: 8 | used: 4 | limit: 4 |
//! ```
//!
//! They have an EtherType for local experiments, behind which a protocol has to name itself and its
//! version (IEEE 802 clause 9.2.3), and are sent to the Nearest Bridge group address, which no
//! bridge forwards (IEEE 802.1Q table 8-1): they never leave the card's link.
//!
//! A question goes the way of the data behind which it is sent, so that its answer speaks of a
//! socket in which that data is.

use core::fmt;

use sluice_base::Mac;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherType, ethernet, put, split};

/// Destination of every such frame: the Nearest Bridge group address (IEEE 802.1Q table 8-1).
pub const ADDRESS: Mac = Mac([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);
/// Limit of the entries of one frame.
pub const ENTRIES_MAX: usize = 16;
/// Size of the largest frame.
pub const FRAME_SIZE_MAX: usize = START + ENTRIES_MAX * size_of::<RoomEntry>();
/// Size of the smallest frame (802.3 clause 4A.4.2).
pub const FRAME_SIZE_MIN: usize = 60;
/// Size of the addresses and ports of a flow.
pub const TUPLE_SIZE: usize = 36;

const START: usize = ethernet::HEADER_SIZE + size_of::<Header>();
const MAGIC: [u8; 4] = *b"SLgr";
const VERSION: u8 = 1;

const HELLO: u8 = 1;
const QUESTION: u8 = 2;
const ANSWER: u8 = 3;
const BYE: u8 = 4;
const IDLE: u8 = 5;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    count: U16,
    number: U64,
}

/// Source and destination of a datagram.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct FlowEntry {
    family: u8,
    zeros: [u8; 3],
    tuple: [u8; TUPLE_SIZE],
}

impl FlowEntry {
    /// Two addresses and two ports in network order, source first: of IPv4 the first 12 bytes.
    #[must_use]
    pub const fn new(is_v6: bool, tuple: [u8; TUPLE_SIZE]) -> Self {
        Self { family: if is_v6 { 6 } else { 4 }, zeros: [0; 3], tuple }
    }

    /// True for IPv6.
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        self.family == 6
    }

    /// The addresses and ports.
    #[must_use]
    pub const fn tuple(&self) -> &[u8; TUPLE_SIZE] {
        &self.tuple
    }

    fn is_valid(&self) -> bool {
        let rest_of_v4 = &self.tuple[12..];
        match self.family {
            4 => self.zeros == [0; 3] && rest_of_v4.iter().all(|byte| *byte == 0),
            6 => self.zeros == [0; 3],
            _ => false,
        }
    }
}

/// The socket of a flow, and its room.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct RoomEntry {
    flow: FlowEntry,
    socket: U64,
    used: U32,
    limit: U32,
}

impl RoomEntry {
    /// The room of a socket; `socket` is 0 if the flow has none.
    #[must_use]
    pub const fn new(flow: FlowEntry, socket: u64, used: u32, limit: u32) -> Self {
        Self { flow, socket: U64::new(socket), used: U32::new(used), limit: U32::new(limit) }
    }

    /// The flow that was asked for.
    #[must_use]
    pub const fn flow(&self) -> &FlowEntry {
        &self.flow
    }

    /// Identity of the socket in its kernel (`SO_COOKIE`); 0: there is none.
    #[must_use]
    pub fn socket(&self) -> u64 {
        self.socket.get()
    }

    /// Bytes in its receive buffer (`sk_rmem_alloc`).
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.get()
    }

    /// Size of its receive buffer (`sk_rcvbuf`).
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.get()
    }
}

/// A frame that is not one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Another destination, EtherType or protocol.
    Other,
    /// Another version.
    Version(u8),
    /// Another kind, or one with entries that has none.
    Kind(u8),
    /// It ends before its entries do.
    Truncated,
    /// More entries than a frame may have.
    TooMany(u16),
    /// A flow of neither IPv4 nor IPv6, or with bytes that must be zero.
    Flow,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("not a frame about the room of sockets"),
            Self::Version(version) => write!(f, "version {version}, not {VERSION}"),
            Self::Kind(kind) => write!(f, "kind {kind}, or its entries, are unknown"),
            Self::Truncated => f.write_str("the frame ends before its entries do"),
            Self::TooMany(count) => write!(f, "{count} entries, not at most {ENTRIES_MAX}"),
            Self::Flow => f.write_str("a flow of neither IPv4 nor IPv6"),
        }
    }
}

impl core::error::Error for Error {}

/// A frame as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The agent is there; guest to host.
    Hello,
    /// Asks for the rooms of these flows' sockets, or, without one, if the agent answers.
    Question {
        /// Number of the question.
        number: u64,
        /// The flows.
        flows: &'a [FlowEntry],
    },
    /// The rooms, read after the question had arrived.
    Answer {
        /// Number of the question.
        number: u64,
        /// The rooms.
        rooms: &'a [RoomEntry],
    },
    /// The agent ends; guest to host.
    Bye,
    /// The host hears the agent and holds nothing for its sockets; host to guest.
    Idle,
}

impl<'a> Message<'a> {
    /// Returns true if the first bytes of a frame are those of such a frame, of any version.
    #[inline]
    #[must_use]
    pub fn is_one(head: &[u8]) -> bool {
        let Some((dst, rest)) = head.split_first_chunk() else { return false };
        *dst == ADDRESS.0 && rest.len() >= 12 && is_named(rest)
    }

    /// Reads a whole frame.
    ///
    /// # Errors
    /// [`Error`] says what is wrong with it.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Error> {
        if !Self::is_one(frame) {
            return Err(Error::Other);
        }
        let (header, entries) =
            split::<Header>(&frame[ethernet::HEADER_SIZE..]).map_err(|_| Error::Truncated)?;
        if header.version != VERSION {
            return Err(Error::Version(header.version));
        }
        let (number, count) = (header.number.get(), header.count.get());
        if usize::from(count) > ENTRIES_MAX {
            return Err(Error::TooMany(count));
        }
        match (header.kind, count) {
            (QUESTION, _) => {
                let flows = take::<FlowEntry>(entries, count)?;
                let is_valid = flows.iter().all(FlowEntry::is_valid);
                if is_valid { Ok(Self::Question { number, flows }) } else { Err(Error::Flow) }
            }
            (ANSWER, _) => {
                let rooms = take::<RoomEntry>(entries, count)?;
                let is_valid = rooms.iter().all(|room| room.flow.is_valid());
                if is_valid { Ok(Self::Answer { number, rooms }) } else { Err(Error::Flow) }
            }
            (HELLO, 0) => Ok(Self::Hello),
            (BYE, 0) => Ok(Self::Bye),
            (IDLE, 0) => Ok(Self::Idle),
            (kind, _) => Err(Error::Kind(kind)),
        }
    }

    /// Writes the whole frame from `src`, padded with zeros to the smallest size; returns its size.
    ///
    /// # Panics
    /// With more than [`ENTRIES_MAX`] entries.
    pub fn emit(&self, src: Mac, out: &mut [u8; FRAME_SIZE_MAX]) -> usize {
        let (kind, number, entries, count) = match self {
            Self::Hello => (HELLO, 0, &[][..], 0),
            Self::Question { number, flows } => (QUESTION, *number, flows.as_bytes(), flows.len()),
            Self::Answer { number, rooms } => (ANSWER, *number, rooms.as_bytes(), rooms.len()),
            Self::Bye => (BYE, 0, &[][..], 0),
            Self::Idle => (IDLE, 0, &[][..], 0),
        };
        assert!(count <= ENTRIES_MAX, "{count} entries");
        *out = [0; FRAME_SIZE_MAX];
        let ethertype = EtherType::LOCAL_EXPERIMENTAL;
        ethernet::Repr { dst: ADDRESS, src, ethertype }.emit(out);
        let count = U16::new(u16::try_from(count).expect("a few"));
        let number = U64::new(number);
        let header = Header { magic: MAGIC, version: VERSION, kind, count, number };
        put(&header, &mut out[ethernet::HEADER_SIZE..]);
        out[START..START + entries.len()].copy_from_slice(entries);
        (START + entries.len()).max(FRAME_SIZE_MIN)
    }
}

/// Looks at a frame behind its destination: source, EtherType, magic.
fn is_named(rest: &[u8]) -> bool {
    rest[6..8] == EtherType::LOCAL_EXPERIMENTAL.0.to_be_bytes() && rest[8..12] == MAGIC
}

fn take<T>(bytes: &[u8], count: u16) -> Result<&[T], Error>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let taken = <[T]>::ref_from_prefix_with_elems(bytes, count.into());
    taken.map(|(entries, _padding)| entries).map_err(|_| Error::Truncated)
}

#[cfg(test)]
mod tests;
