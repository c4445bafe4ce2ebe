//! Mark of the last entry that a host knows to be committed.
//!
//! The log's record of it becomes durable after the entry has taken effect, so that no change waits
//! for one flush more. A process that is killed in between would start with less than it had in
//! force. The mark closes that gap: some bytes that the caller writes, without a flush, before the
//! entry takes effect. They outlive the process, though not the machine; with the machine goes all
//! that was in force.
//!
//! ```text
//!   ┌─────────┬──────┬───────┬───────┬──────┬──────────┐
//!   │ version │ seat │ epoch │ index │ term │ checksum │
//!   └─────────┴──────┴───────┴───────┴──────┴──────────┘
//!        1       8      14       8      8        8
//! ```
//!
//! A mark that is lost, torn, or of another disk or epoch is no mark. Index and term name one entry
//! of an epoch (Raft's log matching), so that an older mark says nothing wrong.

use alloc::vec::Vec;

use super::bytes::{Malformed, Reader, Writer};
use super::chain;
use super::record::{epoch, put_epoch, seat};
use super::surface::{Epoch, Revision, Seat};

const VERSION: u8 = 1;

/// Last entry of the log that a host knows to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(super) seat: Seat,
    pub(super) epoch: Epoch,
    pub(super) index: Revision,
    pub(super) term: u64,
}

impl Mark {
    /// Returns the index of the entry.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.index
    }

    /// Returns the encoding, which always has the same size.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        put_epoch(out.u8(VERSION).u64(self.seat.get()), self.epoch);
        out.u64(self.index).u64(self.term);
        chain::sealed(out.take())
    }

    /// Returns the mark that the bytes encode.
    ///
    /// # Errors
    /// They are no mark: cut off, torn, or of another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(chain::unsealed(bytes, "the checksum of a mark differs")?);
        Malformed::unless_known("a mark", from.u8()?, VERSION)?;
        let (seat, epoch) = (seat(&mut from)?, epoch(&mut from)?);
        let (index, term) = (from.u64()?, from.u64()?);
        from.end()?;
        Ok(Self { seat, epoch, index, term })
    }
}

#[cfg(test)]
mod tests;
