//! TCP headers, read only (RFC 9293 section 3.1). The switch never writes one.
//!
//! ```text
//!  0               8               16                              31
//!  |          source port          |       destination port        |
//!  |                        sequence number                        |
//!  |                    acknowledgement number                     |
//!  |offset |  res  |     flags     |            window             |
//!  |           checksum            |        urgent pointer         |
//!  |            options, up to 40 bytes            |  payload ...
//! ```

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{Truncated, split};

/// The size of a header without options, in bytes.
pub const HEADER_SIZE_MIN: usize = 20;

/// The bits of [`Packet::flags`].
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Sequence numbers are synchronised.
    pub const SYN: u8 = 0x02;
    /// The connection is reset.
    pub const RST: u8 = 0x04;
    /// Hand data to the user now.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168 section 6.1).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168 section 6.1).
    pub const CWR: u8 = 0x80;
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    src_port: U16,
    dst_port: U16,
    seq: U32,
    ack: U32,
    offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent: U16,
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE_MIN);

/// A view of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a Header,
    bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Returns a view of `bytes`.
    ///
    /// # Errors
    /// [`Truncated`] below [`HEADER_SIZE_MIN`] bytes. Options may be cut off.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, _rest) = split(bytes)?;
        Ok(Self { header, bytes })
    }

    /// Returns the port of the sender.
    #[inline]
    #[must_use]
    pub fn src_port(&self) -> u16 {
        self.header.src_port.get()
    }

    /// Returns the port of the receiver.
    #[inline]
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        self.header.dst_port.get()
    }

    /// Returns the sequence number of the first byte of payload.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> u32 {
        self.header.seq.get()
    }

    /// Returns the sequence number that the sender waits for.
    #[inline]
    #[must_use]
    pub fn ack(&self) -> u32 {
        self.header.ack.get()
    }

    /// Returns the size of the header with options in bytes, as its data offset says: 0 to 60.
    /// Below [`HEADER_SIZE_MIN`] it is wrong.
    #[inline]
    #[must_use]
    pub const fn header_size(&self) -> usize {
        (self.header.offset >> 4) as usize * 4
    }

    /// Returns the control bits, as in [`flags`].
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.header.flags
    }

    /// Returns the receive window, not scaled.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u16 {
        self.header.window.get()
    }

    /// Returns the checksum, as the header says.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns the urgent pointer.
    #[inline]
    #[must_use]
    pub fn urgent(&self) -> u16 {
        self.header.urgent.get()
    }

    /// Returns the payload, as far as the bytes go. Empty if the header size is wrong.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let start = self.header_size();
        if start < HEADER_SIZE_MIN { &[] } else { self.bytes.get(start..).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests;
