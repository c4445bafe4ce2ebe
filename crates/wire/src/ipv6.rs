//! IPv6 headers (RFC 8200 section 3; RFC 2474 and RFC 3168 for the traffic class).
//!
//! ```text
//!  0       4           10  12      16              24              31
//!  |version|   DSCP    |ECN|              flow label               |
//!  |         payload size          |  next header  |   hop limit   |
//!  |                  source address, 16 bytes                     |
//!  |                destination address, 16 bytes                  |
//! ```
//!
//! Extension headers are part of the payload here.

use core::net::Ipv6Addr;

use sluice_base::Mac;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Truncated, ecn, put, split};

/// The size of the header in bytes.
pub const HEADER_SIZE: usize = 40;

const VERSION: u32 = 6;
const VERSION_SHIFT: u32 = 28;
const DSCP_SHIFT: u32 = 22;
const DSCP_MASK: u32 = 0x3f;
const ECN_SHIFT: u32 = 20;
const ECN_MASK: u32 = ecn::MASK as u32;
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    version_class_label: U32,
    payload_size: U16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE);

/// A view of a packet.
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

    /// Returns the version field; 6 if the packet is what its frame says.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u8 {
        (self.header.version_class_label.get() >> VERSION_SHIFT) as u8
    }

    /// Returns the differentiated services code point, 6 bits (RFC 2474 section 3).
    #[inline]
    #[must_use]
    pub fn dscp(&self) -> u8 {
        (self.header.version_class_label.get() >> DSCP_SHIFT & DSCP_MASK) as u8
    }

    /// Returns the ECN field (RFC 3168 section 5), a value of [`crate::ecn`].
    #[inline]
    #[must_use]
    pub fn ecn(&self) -> u8 {
        (self.header.version_class_label.get() >> ECN_SHIFT & ECN_MASK) as u8
    }

    /// Returns the flow label, 20 bits (RFC 6437).
    #[inline]
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        self.header.version_class_label.get() & FLOW_LABEL_MASK
    }

    /// Returns the size of the payload in bytes, as the header says.
    #[inline]
    #[must_use]
    pub fn payload_size(&self) -> u16 {
        self.header.payload_size.get()
    }

    /// Returns the protocol of the payload, or the kind of the first extension header.
    #[inline]
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.header.next_header
    }

    /// Returns the hop limit: the number of routers that it may still pass.
    #[inline]
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        self.header.hop_limit
    }

    /// Returns the source address.
    #[inline]
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.header.src)
    }

    /// Returns the destination address.
    #[inline]
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.header.dst)
    }

    /// Returns the payload, up to the end that the header gives, or to the end of the bytes if that
    /// comes first.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.rest[..self.rest.len().min(usize::from(self.payload_size()))]
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
    /// The protocol of the payload, or the kind of the first extension header.
    pub next_header: u8,
    /// The differentiated services code point. Its low 6 bits are written.
    pub dscp: u8,
    /// The ECN field. Its low 2 bits are written.
    pub ecn: u8,
    /// The flow label. Its low 20 bits are written.
    pub flow_label: u32,
    /// Hop limit: the number of routers that it may pass.
    pub hop_limit: u8,
    /// The size of the payload, in bytes.
    pub payload_size: u16,
}

impl Repr {
    /// Reads the header of `packet`; `None` if it is not version 6.
    #[inline]
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        (u32::from(packet.version()) == VERSION).then(|| Self {
            src: packet.src(),
            dst: packet.dst(),
            next_header: packet.next_header(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
            payload_size: packet.payload_size(),
        })
    }

    /// Writes the header into the first [`HEADER_SIZE`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let first = VERSION << VERSION_SHIFT
            | (u32::from(self.dscp) & DSCP_MASK) << DSCP_SHIFT
            | (u32::from(self.ecn) & ECN_MASK) << ECN_SHIFT
            | self.flow_label & FLOW_LABEL_MASK;
        let header = Header {
            version_class_label: U32::new(first),
            payload_size: U16::new(self.payload_size),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        put(&header, out);
    }
}

/// Sets the ECN field of the header at the start of `header` to the low two bits of `ecn`. IPv6
/// has no header checksum, and the pseudo-header of the transport's does not cover the field
/// (RFC 8200 section 8.1).
///
/// # Panics
/// If there are fewer than [`HEADER_SIZE`] bytes.
#[inline]
pub fn set_ecn(header: &mut [u8], ecn: u8) {
    let (header, _rest) = Header::mut_from_prefix(header).expect("the header is all there");
    let first = header.version_class_label.get();
    let cleared = first & !(ECN_MASK << ECN_SHIFT);
    header.version_class_label = U32::new(cleared | (u32::from(ecn) & ECN_MASK) << ECN_SHIFT);
}

/// Returns the MAC to which packets for `group` go: 33:33 and its last 32 bits (RFC 2464 section
/// 7). Without meaning for an address that is no group.
#[inline]
#[must_use]
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let group = group.octets();
    Mac([0x33, 0x33, group[12], group[13], group[14], group[15]])
}

/// Returns the link-local address that is formed from a MAC (RFC 4291 clause 2.5.6 and appendix A).
#[must_use]
pub fn link_local(Mac([a, b, c, d, e, f]): Mac) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns true if an interface with this MAC may have formed this link-local address: from its own
/// MAC, or without a MAC, as RFC 7217 and RFC 8064 have it. An address formed from another MAC
/// belongs to another interface.
#[must_use]
pub fn may_have_link_local(mac: Mac, ip: Ipv6Addr) -> bool {
    let bytes = ip.octets();
    let is_of_a_mac = bytes[11..13] == [0xff, 0xfe];
    bytes[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && (!is_of_a_mac || ip == link_local(mac))
}

#[cfg(test)]
mod tests;
