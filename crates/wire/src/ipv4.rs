//! IPv4 headers (RFC 791 section 3.1; RFC 2474 and RFC 3168 for the second byte).
//!
//! ```text
//!  0               8               16                              31
//!  |version| IHL   |   DSCP    |ECN|          total size           |
//!  |        identification         |R D M|    fragment offset      |
//!  |  time to live |   protocol    |        header checksum        |
//!  |                        source address                         |
//!  |                      destination address                      |
//!  |            options, up to 40 bytes            |  payload ...
//! ```
//!
//! Options are skipped, never read or written. Fragments are recognised but not reassembled.

use core::net::Ipv4Addr;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Truncated, checksum, ecn, put, split};

/// The size of a header without options, in bytes.
pub const HEADER_SIZE_MIN: usize = 20;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

const VERSION: u8 = 4;
/// [`HEADER_SIZE_MIN`] as the size field counts it.
const SIZE_MIN: u16 = 20;
/// IHL counts words of four bytes; the smallest is five.
const IHL_MIN: u8 = 5;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    version_ihl: u8,
    dscp_ecn: u8,
    total_size: U16,
    ident: U16,
    flags_offset: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE_MIN);
const _: () = assert!(SIZE_MIN as usize == HEADER_SIZE_MIN);
const _: () = assert!(IHL_MIN as usize * 4 == HEADER_SIZE_MIN);

/// A view of a packet.
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

    /// Returns the version field; 4 if the packet is what its frame says.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.header.version_ihl >> 4
    }

    /// Returns the size of the header with options in bytes, as the header says: 0 to 60. Below
    /// [`HEADER_SIZE_MIN`] it is wrong.
    #[inline]
    #[must_use]
    pub const fn header_size(&self) -> usize {
        (self.header.version_ihl & 0x0f) as usize * 4
    }

    /// Returns the differentiated services code point, 6 bits (RFC 2474 section 3).
    #[inline]
    #[must_use]
    pub const fn dscp(&self) -> u8 {
        self.header.dscp_ecn >> 2
    }

    /// Returns the ECN field (RFC 3168 section 5), a value of [`crate::ecn`].
    #[inline]
    #[must_use]
    pub const fn ecn(&self) -> u8 {
        self.header.dscp_ecn & ecn::MASK
    }

    /// Returns the size of header and payload in bytes, as the header says.
    #[inline]
    #[must_use]
    pub fn total_size(&self) -> u16 {
        self.header.total_size.get()
    }

    /// Returns the identification of a packet that may be fragmented (RFC 6864 section 4).
    #[inline]
    #[must_use]
    pub fn ident(&self) -> u16 {
        self.header.ident.get()
    }

    /// Returns true if routers must not fragment it.
    #[inline]
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.header.flags_offset.get() & DONT_FRAGMENT != 0
    }

    /// Returns true if it is one fragment of a packet, the first one included.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.header.flags_offset.get() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Returns the time to live: the number of routers that it may still pass.
    #[inline]
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        self.header.ttl
    }

    /// Returns the protocol of the payload.
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.header.protocol
    }

    /// Returns the header checksum, as the header says.
    #[inline]
    #[must_use]
    pub fn header_checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns the source address.
    #[inline]
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.header.src)
    }

    /// Returns the destination address.
    #[inline]
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.header.dst)
    }

    /// Returns true if the header checksum is right (RFC 1071 section 1). Returns false also if the
    /// header size is wrong, or if some of its options are cut off.
    #[inline]
    #[must_use]
    pub fn header_checksum_ok(&self) -> bool {
        let size = self.header_size();
        if size == HEADER_SIZE_MIN {
            // The case of nearly every header: summed without a loop, since the compiler knows the
            // size.
            return checksum::internet(self.header.as_bytes()) == 0;
        }
        size > HEADER_SIZE_MIN
            && self.bytes.get(..size).is_some_and(|header| checksum::internet(header) == 0)
    }

    /// Returns the payload: from behind the options to the end that the header gives, or to the end
    /// of the bytes if that comes first. Empty if the sizes contradict each other.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let end = usize::from(self.total_size()).min(self.bytes.len());
        let start = self.header_size();
        if start < HEADER_SIZE_MIN { &[] } else { self.bytes.get(start..end).unwrap_or_default() }
    }
}

/// A header without options as values, of a packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
    /// The protocol of the payload.
    pub protocol: u8,
    /// The differentiated services code point. Its low 6 bits are written.
    pub dscp: u8,
    /// The ECN field. Its low 2 bits are written.
    pub ecn: u8,
    /// Time to live: the number of routers that it may pass.
    pub ttl: u8,
    /// The identification.
    pub ident: u16,
    /// True if routers must not fragment it.
    pub dont_fragment: bool,
    /// The size of the payload, in bytes.
    pub payload_size: u16,
}

impl Repr {
    /// Reads the header of `packet`. `None` if it is not version 4, has options, is a fragment, or
    /// ends before its header does. Does not check the checksum.
    #[inline]
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        let plain = packet.header.version_ihl == VERSION << 4 | IHL_MIN && !packet.is_fragment();
        if !plain {
            return None;
        }
        Some(Self {
            src: packet.src(),
            dst: packet.dst(),
            protocol: packet.protocol(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            ttl: packet.ttl(),
            ident: packet.ident(),
            dont_fragment: packet.dont_fragment(),
            payload_size: packet.total_size().checked_sub(SIZE_MIN)?,
        })
    }

    /// Writes the header with its checksum into the first [`HEADER_SIZE_MIN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter, or header and payload together are larger than a packet can be.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let total_size =
            self.payload_size.checked_add(SIZE_MIN).expect("a packet is smaller than 64 KiB");
        let mut header = Header {
            version_ihl: VERSION << 4 | IHL_MIN,
            dscp_ecn: self.dscp << 2 | self.ecn & ecn::MASK,
            total_size: U16::new(total_size),
            ident: U16::new(self.ident),
            flags_offset: U16::new(if self.dont_fragment { DONT_FRAGMENT } else { 0 }),
            ttl: self.ttl,
            protocol: self.protocol,
            checksum: U16::ZERO,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        header.checksum = U16::new(checksum::internet(header.as_bytes()));
        put(&header, out);
    }
}

/// Sets the ECN field of the header at the start of `header` to the low two bits of `ecn` and
/// updates its checksum (RFC 1624 section 3). Writes nothing if the field has that value already.
///
/// # Panics
/// If there are fewer than [`HEADER_SIZE_MIN`] bytes.
#[inline]
pub fn set_ecn(header: &mut [u8], ecn: u8) {
    let (header, _rest) = Header::mut_from_prefix(header).expect("the header is all there");
    let old = header.dscp_ecn;
    let new = old & !ecn::MASK | ecn & ecn::MASK;
    if new == old {
        return;
    }
    header.dscp_ecn = new;
    let word = |byte| u16::from_be_bytes([header.version_ihl, byte]);
    header.checksum = U16::new(checksum::update(header.checksum.get(), word(old), word(new)));
}

#[cfg(test)]
mod tests;
