//! UDP headers (RFC 768).
//!
//! ```text
//!  0          2          4      6          8
//!  | src port | dst port | size | checksum | payload ...
//! ```

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Truncated, put, split};

/// The size of the header in bytes.
pub const HEADER_SIZE: usize = 8;

/// [`HEADER_SIZE`] as the size field counts it.
const SIZE_MIN: u16 = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    src_port: U16,
    dst_port: U16,
    size: U16,
    checksum: U16,
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE);
const _: () = assert!(SIZE_MIN as usize == HEADER_SIZE);

/// A view of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a Header,
    rest: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Returns a view of `bytes`.
    ///
    /// # Errors
    /// [`Truncated`] below [`HEADER_SIZE`] bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, rest) = split(bytes)?;
        Ok(Self { header, rest })
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

    /// Returns the size of header and payload in bytes, as the header says. Below [`HEADER_SIZE`]
    /// it is wrong.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u16 {
        self.header.size.get()
    }

    /// Returns the checksum, as the header says; zero if the sender made none.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns the payload, up to the end that the header gives, or to the end of the bytes if that
    /// comes first. Empty if the size is wrong.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let size = usize::from(self.size()).saturating_sub(HEADER_SIZE);
        &self.rest[..self.rest.len().min(size)]
    }
}

/// The header as values. The checksum is left out, since it covers the payload too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The port of the sender.
    pub src_port: u16,
    /// The port of the receiver.
    pub dst_port: u16,
    /// The size of the payload, in bytes.
    pub payload_size: u16,
}

impl Repr {
    /// Reads the header of `packet`; `None` if its size field is below [`HEADER_SIZE`].
    #[inline]
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        Some(Self {
            src_port: packet.src_port(),
            dst_port: packet.dst_port(),
            payload_size: packet.size().checked_sub(SIZE_MIN)?,
        })
    }

    /// Writes the header into the first [`HEADER_SIZE`] bytes of `out`, with checksum zero: "none
    /// made", as VXLAN wants it (RFC 7348 section 5).
    ///
    /// # Panics
    /// If `out` is shorter, or header and payload together are larger than a datagram can be.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let size =
            self.payload_size.checked_add(SIZE_MIN).expect("a datagram is smaller than 64 KiB");
        let header = Header {
            src_port: U16::new(self.src_port),
            dst_port: U16::new(self.dst_port),
            size: U16::new(size),
            checksum: U16::ZERO,
        };
        put(&header, out);
    }
}

#[cfg(test)]
mod tests;
