//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!  0       2       4      5      6     8            14          18           24          28
//!  | htype | ptype | hlen | plen | op  | sender MAC | sender IP | target MAC | target IP |
//! ```
//!
//! The view lays the field sizes of Ethernet and IPv4 over any packet; only
//! [`Packet::is_well_formed`] tells whether they apply.

use core::net::Ipv4Addr;

use sluice_base::Mac;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherType, Truncated, put, split};

/// The size of a packet in bytes.
pub const SIZE: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;
const MAC_SIZE: u8 = 6;
const IP_SIZE: u8 = 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct Header {
    hardware_type: U16,
    protocol_type: U16,
    hardware_size: u8,
    protocol_size: u8,
    operation: U16,
    sender_mac: [u8; 6],
    sender_ip: [u8; 4],
    target_mac: [u8; 6],
    target_ip: [u8; 4],
}

const _: () = assert!(size_of::<Header>() == SIZE);

/// The operation of an ARP packet (`ar$op`), known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(pub u16);

impl Operation {
    /// Asks for the MAC of the target IP.
    pub const REQUEST: Self = Self(1);
    /// Answers a request: the sender has the IP.
    pub const REPLY: Self = Self(2);
}

/// A view of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a Header,
}

impl<'a> Packet<'a> {
    /// Returns a view of `bytes`. The bytes behind the packet are padding.
    ///
    /// # Errors
    /// [`Truncated`] below [`SIZE`] bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, _padding) = split(bytes)?;
        Ok(Self { header })
    }

    /// Returns true if it is a request or a reply for IPv4 over Ethernet, so that the names of the
    /// other fields apply.
    #[inline]
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let header = self.header;
        header.hardware_type.get() == HARDWARE_ETHERNET
            && header.protocol_type.get() == EtherType::IPV4.0
            && header.hardware_size == MAC_SIZE
            && header.protocol_size == IP_SIZE
            && matches!(self.operation(), Operation::REQUEST | Operation::REPLY)
    }

    /// Returns the operation.
    #[inline]
    #[must_use]
    pub fn operation(&self) -> Operation {
        Operation(self.header.operation.get())
    }

    /// Returns the sender's hardware address.
    #[inline]
    #[must_use]
    pub const fn sender_mac(&self) -> Mac {
        Mac(self.header.sender_mac)
    }

    /// Returns the sender's protocol address; 0.0.0.0 in a probe (RFC 5227 section 2.1.1).
    #[inline]
    #[must_use]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.header.sender_ip)
    }

    /// Returns the target's hardware address; without meaning in a request.
    #[inline]
    #[must_use]
    pub const fn target_mac(&self) -> Mac {
        Mac(self.header.target_mac)
    }

    /// Returns the target's protocol address.
    #[inline]
    #[must_use]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.header.target_ip)
    }
}

/// A packet for IPv4 over Ethernet as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The operation.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: Mac,
    /// The sender's protocol address.
    pub sender_ip: Ipv4Addr,
    /// The target's hardware address.
    pub target_mac: Mac,
    /// The target's protocol address.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Returns the probe that `mac` sends before it uses `ip` (RFC 5227 section 2.1.1).
    #[inline]
    #[must_use]
    pub const fn probe(mac: Mac, ip: Ipv4Addr) -> Self {
        Self {
            operation: Operation::REQUEST,
            sender_mac: mac,
            sender_ip: Ipv4Addr::UNSPECIFIED,
            target_mac: Mac([0; 6]),
            target_ip: ip,
        }
    }

    /// Returns the announcement that `mac` uses `ip` from now on (RFC 5227 section 2.3).
    #[inline]
    #[must_use]
    pub const fn announcement(mac: Mac, ip: Ipv4Addr) -> Self {
        Self { sender_ip: ip, ..Self::probe(mac, ip) }
    }

    /// Returns the answer to this request: its target is at `mac` (RFC 826, packet reception).
    #[inline]
    #[must_use]
    pub const fn reply(&self, mac: Mac) -> Self {
        Self {
            operation: Operation::REPLY,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Returns true if its sender asks for an address that it does not use yet (RFC 5227 section
    /// 1.1).
    #[inline]
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.operation == Operation::REQUEST && self.sender_ip.is_unspecified()
    }

    /// Returns true if it only announces the sender's address: a request of the sender for itself,
    /// which is an announcement (RFC 5227 section 1.1), or an unsolicited reply (RFC 5944 section
    /// 4.6).
    #[inline]
    #[must_use]
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip && !self.sender_ip.is_unspecified()
    }

    /// Reads `packet`; `None` unless it is well formed.
    #[inline]
    #[must_use]
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        packet.is_well_formed().then(|| Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        })
    }

    /// Writes the packet into the first [`SIZE`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let header = Header {
            hardware_type: U16::new(HARDWARE_ETHERNET),
            protocol_type: U16::new(EtherType::IPV4.0),
            hardware_size: MAC_SIZE,
            protocol_size: IP_SIZE,
            operation: U16::new(self.operation.0),
            sender_mac: self.sender_mac.0,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac.0,
            target_ip: self.target_ip.octets(),
        };
        put(&header, out);
    }
}

#[cfg(test)]
mod tests;
