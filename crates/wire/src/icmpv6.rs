//! ICMPv6 (RFC 4443) with the two messages of address resolution: Neighbor Solicitation and
//! Neighbor Advertisement (RFC 4861 clauses 4.3 and 4.4).
//!
//! ```text
//!  0      1      2          4                 8              24
//!  | type | code | checksum | flags, reserved | target, 16 B | options ...
//!
//!  an option (clause 4.6):       | type | size / 8 | data ...
//!  link-layer address (4.6.1):   |  1, 2 |    1    | MAC, 6 B
//! ```
//!
//! The checksum covers a pseudo-header of the addresses, so it is checked and made together with
//! the IPv6 header. [`Repr::receive`] validates a message by hop limit, checksum, code, addresses
//! and options (clauses 7.1.1 and 7.1.2).

use core::net::Ipv6Addr;

use sluice_base::Mac;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Truncated, checksum, ipv6, put, split};

/// The number of the protocol in an IPv6 header (RFC 4443 clause 1).
pub const PROTOCOL: u8 = 58;
/// The size of a solicitation or advertisement in bytes, without options.
pub const HEADER_SIZE: usize = 24;
/// The size of the option that carries a MAC, in bytes.
pub const LINK_OPTION_SIZE: usize = 8;
/// The size of the largest message that [`Repr::emit`] writes, in bytes.
pub const SIZE_MAX: usize = HEADER_SIZE + LINK_OPTION_SIZE;
/// The hop limit of every solicitation and advertisement: a router would have lowered it (RFC 4861
/// clause 7.1.1).
pub const HOP_LIMIT: u8 = 255;
/// All nodes of the link (RFC 4291 clause 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const FLAG_ROUTER: u32 = 1 << 31;
const FLAG_SOLICITED: u32 = 1 << 30;
const FLAG_OVERRIDE: u32 = 1 << 29;
const CHECKSUM: core::ops::Range<usize> = 2..4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    kind: u8,
    code: u8,
    checksum: U16,
    flags: U32,
    target: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE);

/// The start of an option.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct OptionHeader {
    kind: u8,
    eighths: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct LinkOption {
    header: OptionHeader,
    mac: [u8; 6],
}

const _: () = assert!(size_of::<LinkOption>() == LINK_OPTION_SIZE);

/// The type of a message, known or not (RFC 4443 clause 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Neighbor Solicitation: asks for the target (RFC 4861 clause 4.3).
    pub const NEIGHBOR_SOLICITATION: Self = Self(135);
    /// Neighbor Advertisement: the sender has the target (RFC 4861 clause 4.4).
    pub const NEIGHBOR_ADVERTISEMENT: Self = Self(136);

    /// Returns the type in the first byte of `message`; `None` if it is empty.
    #[inline]
    #[must_use]
    pub fn of(message: &[u8]) -> Option<Self> {
        message.first().copied().map(Self)
    }

    /// Returns true for a solicitation or an advertisement.
    #[inline]
    #[must_use]
    pub const fn is_neighbor(self) -> bool {
        matches!(self, Self::NEIGHBOR_SOLICITATION | Self::NEIGHBOR_ADVERTISEMENT)
    }
}

/// The kind of an option, known or not (RFC 4861 clause 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionKind(pub u8);

impl OptionKind {
    /// The MAC of the sender of a solicitation (clause 4.6.1).
    pub const SOURCE_LINK: Self = Self(1);
    /// The MAC of the target (clause 4.6.1).
    pub const TARGET_LINK: Self = Self(2);
}

/// One option of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdOption<'a> {
    /// The kind of the option.
    pub kind: OptionKind,
    /// The bytes behind kind and size.
    pub data: &'a [u8],
}

impl NdOption<'_> {
    /// Returns the MAC that it carries, if it has the size of one and is of that kind.
    #[inline]
    fn link(&self, kind: OptionKind) -> Option<Mac> {
        let mac: [u8; 6] = self.data.try_into().ok()?;
        (self.kind == kind).then_some(Mac(mac))
    }
}

/// The options of a message, in order, up to the first that is cut or has no size.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = NdOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (header, _data) = split::<OptionHeader>(self.rest).ok()?;
        let size = usize::from(header.eighths) * 8;
        let data = self.rest.get(size_of::<OptionHeader>()..size)?;
        self.rest = &self.rest[size..];
        Some(NdOption { kind: OptionKind(header.kind), data })
    }
}

/// A view of a solicitation or advertisement. It can be laid over any ICMPv6 message;
/// [`Packet::kind`] tells whether the names of the fields apply.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a Header,
    options: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Returns a view of `bytes`, the payload of an IPv6 packet.
    ///
    /// # Errors
    /// [`Truncated`] below [`HEADER_SIZE`] bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, options) = split(bytes)?;
        Ok(Self { header, options })
    }

    /// Returns the type of the message.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind(self.header.kind)
    }

    /// Returns the code; zero in solicitations and advertisements.
    #[inline]
    #[must_use]
    pub const fn code(&self) -> u8 {
        self.header.code
    }

    /// Returns the checksum, as the message says.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.header.checksum.get()
    }

    /// Returns true if the sender of an advertisement is a router.
    #[inline]
    #[must_use]
    pub fn is_router(&self) -> bool {
        self.header.flags.get() & FLAG_ROUTER != 0
    }

    /// Returns true if an advertisement answers a solicitation.
    #[inline]
    #[must_use]
    pub fn is_solicited(&self) -> bool {
        self.header.flags.get() & FLAG_SOLICITED != 0
    }

    /// Returns true if an advertisement replaces the entry of its receiver.
    #[inline]
    #[must_use]
    pub fn overrides(&self) -> bool {
        self.header.flags.get() & FLAG_OVERRIDE != 0
    }

    /// Returns the target address.
    #[inline]
    #[must_use]
    pub fn target(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.header.target)
    }

    /// Returns the options.
    #[inline]
    #[must_use]
    pub const fn options(&self) -> Options<'a> {
        Options { rest: self.options }
    }

    /// Returns true if the options are whole to the end; none has size zero (RFC 4861 clause 4.6).
    #[inline]
    #[must_use]
    pub fn options_ok(&self) -> bool {
        let mut options = self.options();
        while options.next().is_some() {}
        options.rest.is_empty()
    }

    /// Returns the MAC of the first option of `kind` that carries one.
    #[inline]
    #[must_use]
    pub fn link(&self, kind: OptionKind) -> Option<Mac> {
        self.options().find_map(|option| option.link(kind))
    }
}

/// A solicitation or advertisement as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr {
    /// Asks for the target.
    Solicitation {
        /// The address that is asked for.
        target: Ipv6Addr,
        /// The MAC of the sender.
        source_mac: Option<Mac>,
    },
    /// The sender has the target.
    Advertisement {
        /// The address that the sender has.
        target: Ipv6Addr,
        /// The MAC of the target.
        target_mac: Option<Mac>,
        /// True if the sender is a router.
        router: bool,
        /// True if it answers a solicitation.
        solicited: bool,
        /// True if it replaces the entry of its receiver.
        overrides: bool,
    },
}

impl Repr {
    /// Reads `packet`; `None` if it is of another kind.
    #[inline]
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        match packet.kind() {
            Kind::NEIGHBOR_SOLICITATION => Some(Self::Solicitation {
                target: packet.target(),
                source_mac: packet.link(OptionKind::SOURCE_LINK),
            }),
            Kind::NEIGHBOR_ADVERTISEMENT => Some(Self::Advertisement {
                target: packet.target(),
                target_mac: packet.link(OptionKind::TARGET_LINK),
                router: packet.is_router(),
                solicited: packet.is_solicited(),
                overrides: packet.overrides(),
            }),
            _ => None,
        }
    }

    /// Reads the message in `ip`; `None` unless it is whole and valid (RFC 4861 clauses 7.1.1 and
    /// 7.1.2).
    #[inline]
    #[must_use]
    pub fn receive(ip: &ipv6::Packet<'_>) -> Option<Self> {
        let message = ip.payload();
        let whole = message.len() == usize::from(ip.payload_size());
        if !whole || ip.next_header() != PROTOCOL || ip.hop_limit() != HOP_LIMIT {
            return None;
        }
        let packet = Packet::new_checked(message).ok()?;
        let repr = Self::parse(&packet)?;
        let (src, dst) = (ip.src(), ip.dst());
        let addresses_ok = match repr {
            Self::Solicitation { target, source_mac } => {
                let nobody = src.is_unspecified();
                !nobody || (source_mac.is_none() && dst == solicited_node(target))
            }
            Self::Advertisement { solicited, .. } => !(solicited && dst.is_multicast()),
        };
        let ok = addresses_ok
            && packet.code() == 0
            && !packet.target().is_multicast()
            && packet.options_ok()
            && checksum::over_ipv6(src, dst, PROTOCOL, message) == 0;
        ok.then_some(repr)
    }

    /// Returns the size of the message in bytes.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> usize {
        match self {
            Self::Solicitation { source_mac: None, .. }
            | Self::Advertisement { target_mac: None, .. } => HEADER_SIZE,
            _ => SIZE_MAX,
        }
    }

    /// Writes the message from `src` to `dst` into the first [`Self::size`] bytes of `out`, with
    /// its checksum.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let (kind, target, flags, link, mac) = match *self {
            Self::Solicitation { target, source_mac } => {
                (Kind::NEIGHBOR_SOLICITATION, target, 0, OptionKind::SOURCE_LINK, source_mac)
            }
            Self::Advertisement { target, target_mac, router, solicited, overrides } => {
                let flags = flag(router, FLAG_ROUTER)
                    | flag(solicited, FLAG_SOLICITED)
                    | flag(overrides, FLAG_OVERRIDE);
                let kind = Kind::NEIGHBOR_ADVERTISEMENT;
                (kind, target, flags, OptionKind::TARGET_LINK, target_mac)
            }
        };
        let out = &mut out[..self.size()];
        let header = Header {
            kind: kind.0,
            code: 0,
            checksum: U16::ZERO,
            flags: U32::new(flags),
            target: target.octets(),
        };
        put(&header, out);
        if let Some(Mac(mac)) = mac {
            let header = OptionHeader { kind: link.0, eighths: 1 };
            put(&LinkOption { header, mac }, &mut out[HEADER_SIZE..]);
        }
        let sum = checksum::over_ipv6(src, dst, PROTOCOL, out);
        out[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the solicited-node group of `ip`: ff02::1:ff00:0/104 and its last 24 bits (RFC 4291
/// clause 2.7.1).
#[inline]
#[must_use]
pub const fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let ip = ip.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13] = ip[13];
    group[14] = ip[14];
    group[15] = ip[15];
    Ipv6Addr::from_octets(group)
}

#[cfg(test)]
mod tests;
