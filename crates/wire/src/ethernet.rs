//! Ethernet II frames without preamble and frame check sequence (IEEE 802.3 clause 3.1.1).
//!
//! ```text
//!  0           6           12    14
//!  | dst       | src       | type | payload ...
//! ```

use sluice_base::Mac;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherType, Truncated, put, split};

/// The size of the header in bytes.
pub const HEADER_SIZE: usize = 14;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    dst: [u8; 6],
    src: [u8; 6],
    ethertype: U16,
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE);

/// A view of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns a view of `bytes`, which begin with the destination address.
    ///
    /// # Errors
    /// [`Truncated`] below [`HEADER_SIZE`] bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, payload) = split(bytes)?;
        Ok(Self { header, payload })
    }

    /// Returns the destination address.
    #[inline]
    #[must_use]
    pub const fn dst(&self) -> Mac {
        Mac(self.header.dst)
    }

    /// Returns the source address.
    #[inline]
    #[must_use]
    pub const fn src(&self) -> Mac {
        Mac(self.header.src)
    }

    /// Returns the EtherType: that of the payload, or of a tag.
    #[inline]
    #[must_use]
    pub fn ethertype(&self) -> EtherType {
        EtherType(self.header.ethertype.get())
    }

    /// Returns the bytes behind the header, padding included.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The destination address.
    pub dst: Mac,
    /// The source address.
    pub src: Mac,
    /// The type of the payload.
    pub ethertype: EtherType,
}

impl Repr {
    /// Reads the header of `frame`.
    #[inline]
    #[must_use]
    pub fn parse(frame: &Frame<'_>) -> Self {
        Self { dst: frame.dst(), src: frame.src(), ethertype: frame.ethertype() }
    }

    /// Writes the header into the first [`HEADER_SIZE`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let header =
            Header { dst: self.dst.0, src: self.src.0, ethertype: U16::new(self.ethertype.0) };
        put(&header, out);
    }
}

#[cfg(test)]
mod tests;
