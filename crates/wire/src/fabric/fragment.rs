//! Fragments of messages that are larger than a frame.
//!
//! ```text
//!  Fragment      | message, 4 | total, 4 | offset, 4 | size, 2 | `size` bytes of the message
//!  FragmentAck   | taken, 8
//! ```
//!
//! The messages of one direction of a connection are numbered from 1, and are sent one after the
//! other: each fragment begins where the one before it ended. The receiver acknowledges the frames
//! that it has taken, in bytes since the connection began ([`Fragment::frame_size`], which does not
//! count fields of later versions). At most [`FRAGMENT_WINDOW`] bytes may wait for that, so that
//! nothing else waits behind more.
//!
//! This module does not read the content of a message.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY_SIZE_MAX, FRAME_SIZE_MAX, HEADER_SIZE};
use crate::{Truncated, put, split};

/// The first version with [`Fragment`].
pub const FRAGMENTS_VERSION: u8 = 4;
/// The largest message in bytes.
pub const MESSAGE_SIZE_MAX: usize = 16 << 20;
/// Bytes of a frame with a fragment beside those of the message.
pub const FRAGMENT_SIZE_MIN: usize = HEADER_SIZE + size_of::<RawFragment>();
/// Bytes of fragments that may be sent and not acknowledged: one frame.
pub const FRAGMENT_WINDOW: usize = FRAME_SIZE_MAX;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawFragment {
    message: U32,
    total: U32,
    offset: U32,
    size: U16,
}

const _: () = assert!(FRAGMENT_SIZE_MIN < BODY_SIZE_MAX);
const _: () = assert!(MESSAGE_SIZE_MAX <= u32::MAX as usize);

/// A fragment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Number of the message in its direction of the connection.
    pub message: u32,
    /// Size of the whole message in bytes.
    pub total: u32,
    /// Position of the first byte in the message.
    pub offset: u32,
    /// Bytes of the message.
    pub bytes: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Returns the size of its frame in bytes.
    #[must_use]
    pub const fn frame_size(&self) -> usize {
        FRAGMENT_SIZE_MIN + self.bytes.len()
    }

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Truncated> {
        let (raw, rest) = split::<RawFragment>(body)?;
        let bytes = rest.get(..usize::from(raw.size.get())).ok_or(Truncated)?;
        let (message, total, offset) = (raw.message.get(), raw.total.get(), raw.offset.get());
        Ok(Self { message, total, offset, bytes })
    }

    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let size = u16::try_from(self.bytes.len()).expect("a fragment is shorter than 64 KiB");
        let raw = RawFragment {
            message: U32::new(self.message),
            total: U32::new(self.total),
            offset: U32::new(self.offset),
            size: U16::new(size),
        };
        put(&raw, out);
        out[size_of::<RawFragment>()..][..self.bytes.len()].copy_from_slice(self.bytes);
        size_of::<RawFragment>() + self.bytes.len()
    }
}
