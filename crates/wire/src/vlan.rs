//! VLAN tags (IEEE 802.1Q clause 9.6).
//!
//! A tag is four bytes between the source address and the EtherType. Its first two, the TPID, take
//! the place of the EtherType (0x8100, [`EtherType::VLAN`]), so an [`crate::ethernet::Frame`] has
//! read them already. The view covers the bytes behind it: the tag control information and the
//! EtherType that was moved back.
//!
//! ```text
//!   15  13  12  11        0
//!  |  PCP |DEI |    VID    |  ethertype  | payload ...
//!  |       TCI, 2 bytes    |   2 bytes   |
//! ```

use sluice_base::Priority;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherType, Truncated, put, split};

/// The size of a tag in bytes.
pub const TAG_SIZE: usize = 4;
/// The VID of a tag that carries a priority and no VLAN (802.1Q table 9-2).
pub const VID_NONE: u16 = 0;
/// The highest VID; 0xfff itself is reserved (802.1Q table 9-2).
pub const VID_MAX: u16 = 0xffe;

const VID_MASK: u16 = 0x0fff;
const DEI_BIT: u16 = 0x1000;
const PCP_SHIFT: u16 = 13;

/// Returns the priority code point of tag control information.
#[inline]
#[must_use]
pub const fn priority_of(tci: u16) -> Priority {
    Priority::from_low_bits((tci >> PCP_SHIFT) as u8)
}

/// Returns the tag control information of a priority and a VLAN, not drop eligible. The low 12 bits
/// of `vid` are taken.
#[inline]
#[must_use]
pub const fn tci_of(priority: Priority, vid: u16) -> u16 {
    (priority.get() as u16) << PCP_SHIFT | vid & VID_MASK
}

/// Returns the VLAN identifier of tag control information, 12 bits.
#[inline]
#[must_use]
pub const fn vid_of(tci: u16) -> u16 {
    tci & VID_MASK
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    tci: U16,
    ethertype: U16,
}

const _: () = assert!(size_of::<Header>() == TAG_SIZE);

/// A view of a tag from behind its TPID on.
#[derive(Clone, Copy, Debug)]
pub struct Tag<'a> {
    header: &'a Header,
    payload: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Returns a view of `bytes`, the payload of an Ethernet frame whose EtherType is a TPID.
    ///
    /// # Errors
    /// [`Truncated`] below [`TAG_SIZE`] bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, payload) = split(bytes)?;
        Ok(Self { header, payload })
    }

    /// Returns the priority code point.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> Priority {
        priority_of(self.header.tci.get())
    }

    /// Returns the drop eligible indicator.
    #[inline]
    #[must_use]
    pub fn drop_eligible(&self) -> bool {
        self.header.tci.get() & DEI_BIT != 0
    }

    /// Returns the VLAN identifier, 12 bits.
    #[inline]
    #[must_use]
    pub fn vid(&self) -> u16 {
        vid_of(self.header.tci.get())
    }

    /// Returns the EtherType behind the tag; that of another tag if tags are stacked.
    #[inline]
    #[must_use]
    pub fn ethertype(&self) -> EtherType {
        EtherType(self.header.ethertype.get())
    }

    /// Returns the bytes behind the EtherType.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The tag as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The priority code point.
    pub priority: Priority,
    /// The drop eligible indicator.
    pub drop_eligible: bool,
    /// The VLAN identifier. Its low 12 bits are written.
    pub vid: u16,
    /// The EtherType behind the tag.
    pub ethertype: EtherType,
}

impl Repr {
    /// Reads `tag`.
    #[inline]
    #[must_use]
    pub fn parse(tag: &Tag<'_>) -> Self {
        Self {
            priority: tag.priority(),
            drop_eligible: tag.drop_eligible(),
            vid: tag.vid(),
            ethertype: tag.ethertype(),
        }
    }

    /// Writes the tag without its TPID into the first [`TAG_SIZE`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let dei = if self.drop_eligible { DEI_BIT } else { 0 };
        let tci = u16::from(self.priority.get()) << PCP_SHIFT | dei | self.vid & VID_MASK;
        put(&Header { tci: U16::new(tci), ethertype: U16::new(self.ethertype.0) }, out);
    }
}

#[cfg(test)]
mod tests;
