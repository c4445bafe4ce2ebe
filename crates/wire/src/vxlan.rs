//! VXLAN headers (RFC 7348 section 5).
//!
//! ```text
//!  0               8                               24              31
//!  |R R R R I R R R|                   reserved                    |
//!  |                      VNI                      |   reserved    |
//!  |  inner Ethernet frame, without frame check sequence ...
//! ```
//!
//! Reserved bits are sent as zero and ignored on receipt, so frames of extensions that put a
//! meaning on them (GBP, GPE) show their VNI and nothing else.

use sluice_base::Vni;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Truncated, put, split};

/// The size of the header in bytes.
pub const HEADER_SIZE: usize = 8;
/// The UDP destination port of VXLAN.
pub const PORT: u16 = 4789;

/// The I flag: the VNI is valid.
const FLAG_VNI: u8 = 0x08;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawHeader {
    flags: u8,
    reserved: [u8; 3],
    vni: [u8; 3],
    reserved_last: u8,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);

/// A view of a VXLAN header and the frame behind it.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    header: &'a RawHeader,
    payload: &'a [u8],
}

impl<'a> Header<'a> {
    /// Returns a view of `bytes`, the payload of a UDP datagram.
    ///
    /// # Errors
    /// [`Truncated`] below [`HEADER_SIZE`] bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, payload) = split(bytes)?;
        Ok(Self { header, payload })
    }

    /// Returns true if the I flag is set. Without it the frame is not VXLAN.
    #[inline]
    #[must_use]
    pub const fn has_vni(&self) -> bool {
        self.header.flags & FLAG_VNI != 0
    }

    /// Returns the network identifier; without meaning unless [`Self::has_vni`].
    #[inline]
    #[must_use]
    pub const fn vni(&self) -> Vni {
        let [high, middle, low] = self.header.vni;
        Vni::new(u32::from_be_bytes([0, high, middle, low])).expect("three bytes are 24 bits")
    }

    /// Returns the inner frame.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The network identifier.
    pub vni: Vni,
}

impl Repr {
    /// Reads `header`; `None` without the I flag.
    #[inline]
    #[must_use]
    pub fn parse(header: &Header<'_>) -> Option<Self> {
        header.has_vni().then(|| Self { vni: header.vni() })
    }

    /// Writes the header into the first [`HEADER_SIZE`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let [_, high, middle, low] = self.vni.get().to_be_bytes();
        let header = RawHeader {
            flags: FLAG_VNI,
            reserved: [0; 3],
            vni: [high, middle, low],
            reserved_last: 0,
        };
        put(&header, out);
    }
}

#[cfg(test)]
mod tests;
