//! A TCP segment that may be joined to others.

use core::ops::Range;

use sluice_switch::Egress;
use sluice_wire::{EtherType, checksum, ethernet, ipv4, ipv6, tcp};

use super::{TCP_CHECKSUM_AT, TCP_FLAGS_AT};
use crate::frame::FrameBuf;

/// A TCP segment in an Ethernet frame without tags and padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) transport_at: usize,
    /// Size of all headers.
    pub(super) header_size: usize,
    /// True if it has data and nothing that its receiver must see apart.
    pub(super) begins: bool,
}

impl<'a> Segment<'a> {
    /// Parses a frame; `None` if it is no TCP segment, or one that the stack has to look at: with a
    /// wrong checksum, in fragments, with IP options.
    #[inline]
    pub(super) fn of(frame: &Egress<'a, FrameBuf>) -> Option<Self> {
        let buf = frame.buf.filter(|buf| buf.pool_slot().is_some() && frame.header.is_empty())?;
        Self::parse(buf.bytes().get(frame.strip.into()..)?)
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        const AT: usize = ethernet::HEADER_SIZE;
        let packet = bytes.get(AT..)?;
        let ethertype = EtherType(u16::from_be_bytes([bytes[AT - 2], bytes[AT - 1]]));
        let (transport_at, is_right) = match ethertype {
            EtherType::IPV4 => {
                let packet_bytes = packet;
                let packet = ipv4::Packet::new_checked(packet).ok()?;
                let is_plain = packet.header_size() == ipv4::HEADER_SIZE_MIN
                    && packet.protocol() == ipv4::PROTOCOL_TCP
                    && packet.dont_fragment()
                    && !packet.is_fragment()
                    && usize::from(packet.total_size()) == packet_bytes.len();
                let message = packet_bytes.get(ipv4::HEADER_SIZE_MIN..)?;
                let is_right = || {
                    let sum = checksum::over_ipv4(
                        packet.src(),
                        packet.dst(),
                        ipv4::PROTOCOL_TCP,
                        message,
                    );
                    packet.header_checksum_ok() && sum == 0
                };
                (AT + ipv4::HEADER_SIZE_MIN, is_plain && is_right())
            }
            EtherType::IPV6 => {
                let message = packet.get(ipv6::HEADER_SIZE..)?;
                let packet = ipv6::Packet::new_checked(packet).ok()?;
                let is_plain = packet.next_header() == ipv4::PROTOCOL_TCP
                    && usize::from(packet.payload_size()) == message.len();
                let is_right = || {
                    let (src, dst) = (packet.src(), packet.dst());
                    checksum::over_ipv6(src, dst, ipv4::PROTOCOL_TCP, message) == 0
                };
                (AT + ipv6::HEADER_SIZE, is_plain && is_right())
            }
            _ => return None,
        };
        let header =
            tcp::Packet::new_checked(bytes.get(transport_at..)?).ok().filter(|_| is_right)?;
        let header_size = transport_at + header.header_size();
        if header.header_size() < tcp::HEADER_SIZE_MIN || header_size > bytes.len() {
            return None;
        }
        let others = !(tcp::flags::ACK | tcp::flags::PSH);
        let begins = header.flags() & others == 0
            && header.flags() & tcp::flags::ACK != 0
            && header_size < bytes.len();
        Some(Self { bytes, transport_at, header_size, begins })
    }

    pub(super) fn seq(&self) -> u32 {
        let at = self.transport_at + 4;
        u32::from_be_bytes(*self.bytes[at..].first_chunk().expect("its header was parsed"))
    }

    /// Identification of IPv4; zero for IPv6, which has none.
    pub(super) fn ident(&self) -> u16 {
        const AT: usize = ethernet::HEADER_SIZE + 4;
        if self.is_ipv6() { 0 } else { u16::from_be_bytes([self.bytes[AT], self.bytes[AT + 1]]) }
    }

    pub(super) fn payload_size(&self) -> u16 {
        u16::try_from(self.bytes.len() - self.header_size).expect("not above an IP packet")
    }

    pub(super) fn is_pushed(&self) -> bool {
        self.bytes[self.transport_at + TCP_FLAGS_AT] & tcp::flags::PSH != 0
    }

    const fn is_ipv6(&self) -> bool {
        self.transport_at == ethernet::HEADER_SIZE + ipv6::HEADER_SIZE
    }

    /// Place of both IP addresses: they stand at the end of the IP header.
    pub(super) const fn addresses_range(&self) -> Range<usize> {
        let size = if self.is_ipv6() { 32 } else { 8 };
        self.transport_at - size..self.transport_at
    }

    pub(super) fn addresses(&self) -> &[u8] {
        &self.bytes[self.addresses_range()]
    }

    pub(super) fn ports(&self) -> &[u8] {
        &self.bytes[self.transport_at..][..4]
    }

    /// True if the headers are those of `first`, but for what differs from segment to segment:
    /// size, identification and checksum of IP, sequence number, PSH and checksum of TCP.
    pub(super) fn is_like(&self, first: &[u8]) -> bool {
        const AT: usize = ethernet::HEADER_SIZE;
        let same = |range: Range<usize>| self.bytes[range.clone()] == first[range];
        let network = if self.is_ipv6() {
            same(0..AT + 4) && same(AT + 6..self.transport_at)
        } else {
            same(0..AT + 2) && same(AT + 6..AT + 10) && same(AT + 12..self.transport_at)
        };
        let at = self.transport_at;
        let flags = at + TCP_FLAGS_AT;
        let but_push = |byte: u8| byte & !tcp::flags::PSH;
        network
            && same(at + 8..flags)
            && but_push(self.bytes[flags]) == but_push(first[flags])
            && same(flags + 1..at + TCP_CHECKSUM_AT)
            && same(at + TCP_CHECKSUM_AT + 2..self.header_size)
    }
}
