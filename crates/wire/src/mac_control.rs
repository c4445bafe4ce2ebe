//! MAC Control frames, the flow control of Ethernet (IEEE 802.3 clause 31).
//!
//! ```text
//!  0        2         4
//!  | opcode | quanta  | zeros                  PAUSE, opcode 0x0001 (802.3 annex 31B)
//!  | opcode | enabled | quanta 0 ... quanta 7  PFC,   opcode 0x0101 (802.3 annex 31D,
//!                                              802.1Q clause 36)
//! ```
//!
//! PAUSE stops everything, PFC stops single priorities. A time is in quanta of 512 bit times at
//! the speed of the link; zero means "go on". The frames are sent to an address that no bridge
//! forwards, have no tag, and are padded to the smallest frame.

use sluice_base::{Mac, PriorityMask};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherType, Truncated, ethernet, put, split};

/// The size of a whole frame in bytes, without frame check sequence (802.3 clause 4A.4.2).
pub const FRAME_SIZE: usize = 60;
/// Length of a pause quantum, in bit times (802.3 clause 31B.2).
pub const QUANTUM_BITS: u64 = 512;

const OPCODE_PAUSE: u16 = 0x0001;
const OPCODE_PFC: u16 = 0x0101;

/// The parameters of a PFC frame.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Pfc {
    reserved: u8,
    enabled: u8,
    quanta: [U16; 8],
}

const _: () = assert!(ethernet::HEADER_SIZE + 2 + size_of::<Pfc>() <= FRAME_SIZE);

/// A MAC Control frame as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Stop sending for a time (802.3 annex 31B).
    Pause {
        /// Pause time, in quanta; zero: go on.
        quanta: u16,
    },
    /// Stop sending some priorities for a time each (802.3 annex 31D).
    Pfc {
        /// The priorities whose pause time changes.
        enabled: PriorityMask,
        /// Pause time of each priority, in quanta; without meaning for a priority that is not
        /// enabled.
        quanta: [u16; 8],
    },
    /// Another opcode, which has to be ignored (802.3 clause 31.5.3).
    Unknown {
        /// The opcode.
        opcode: u16,
    },
}

impl Message {
    /// Reads the payload of an Ethernet frame of type [`EtherType::MAC_CONTROL`].
    ///
    /// # Errors
    /// [`Truncated`] if the parameters of its opcode are not all there.
    #[inline]
    pub fn parse(ethernet_payload: &[u8]) -> Result<Self, Truncated> {
        let (opcode, parameters) = split::<U16>(ethernet_payload)?;
        match opcode.get() {
            OPCODE_PAUSE => {
                let (quanta, _padding) = split::<U16>(parameters)?;
                Ok(Self::Pause { quanta: quanta.get() })
            }
            OPCODE_PFC => {
                let (pfc, _padding) = split::<Pfc>(parameters)?;
                let enabled = PriorityMask(pfc.enabled);
                Ok(Self::Pfc { enabled, quanta: pfc.quanta.map(U16::get) })
            }
            opcode => Ok(Self::Unknown { opcode }),
        }
    }

    /// Writes the whole frame from `src` to [`Mac::PAUSE`], padded with zeros.
    #[inline]
    pub fn emit(&self, src: Mac, out: &mut [u8; FRAME_SIZE]) {
        *out = [0; FRAME_SIZE];
        let header = ethernet::Repr { dst: Mac::PAUSE, src, ethertype: EtherType::MAC_CONTROL };
        header.emit(out);
        let (opcode, parameters) = out[ethernet::HEADER_SIZE..].split_at_mut(2);
        match *self {
            Self::Pause { quanta } => {
                put(&U16::new(OPCODE_PAUSE), opcode);
                put(&U16::new(quanta), parameters);
            }
            Self::Pfc { enabled, quanta } => {
                put(&U16::new(OPCODE_PFC), opcode);
                let quanta = quanta.map(U16::new);
                put(&Pfc { reserved: 0, enabled: enabled.0, quanta }, parameters);
            }
            Self::Unknown { opcode: number } => put(&U16::new(number), opcode),
        }
    }
}

#[cfg(test)]
mod tests;
