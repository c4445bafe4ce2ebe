//! Addresses and ports of a datagram, as the kernel's lookup takes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sluice_wire::guest_room::FlowEntry;
use sluice_wire::{EtherType, ethernet, ipv4, ipv6};

/// Size of `ipv4` and `ipv6` in `struct bpf_sock_tuple`.
const SIZE_V4: usize = 12;
const SIZE_V6: usize = 36;
/// Bytes of a frame within which the ports stand: Ethernet, IPv4 with all options, ports.
pub(super) const HEAD_SIZE: usize = 14 + 60 + 4;

/// Source and destination of a datagram, in network order: two addresses, two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    tuple: [u8; SIZE_V6],
    is_v6: bool,
}

impl Flow {
    /// The flow of a frame's first bytes, if it is a whole UDP datagram for one receiver.
    #[inline]
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let frame = ethernet::Frame::new_checked(head).ok()?;
        match frame.ethertype() {
            EtherType::IPV4 => Self::of_v4(frame.payload()),
            EtherType::IPV6 => Self::of_v6(frame.payload()),
            _ => None,
        }
    }

    #[inline]
    fn of_v4(bytes: &[u8]) -> Option<Self> {
        let packet = ipv4::Packet::new_checked(bytes).ok()?;
        let is_whole = packet.version() == 4
            && packet.protocol() == ipv4::PROTOCOL_UDP
            && packet.header_size() >= ipv4::HEADER_SIZE_MIN
            && !packet.is_fragment();
        if !is_whole || packet.dst().is_multicast() || packet.dst().is_broadcast() {
            return None;
        }
        let ports: &[u8; 4] = bytes.get(packet.header_size()..)?.first_chunk()?;
        let mut tuple = [0; SIZE_V6];
        tuple[..4].copy_from_slice(&packet.src().octets());
        tuple[4..8].copy_from_slice(&packet.dst().octets());
        tuple[8..SIZE_V4].copy_from_slice(ports);
        Some(Self { tuple, is_v6: false })
    }

    fn of_v6(bytes: &[u8]) -> Option<Self> {
        let packet = ipv6::Packet::new_checked(bytes).ok()?;
        let is_udp = packet.version() == 6 && packet.next_header() == ipv4::PROTOCOL_UDP;
        if !is_udp || packet.dst().is_multicast() {
            return None;
        }
        let ports: &[u8; 4] = bytes.get(ipv6::HEADER_SIZE..)?.first_chunk()?;
        let mut tuple = [0; SIZE_V6];
        tuple[..16].copy_from_slice(&packet.src().octets());
        tuple[16..32].copy_from_slice(&packet.dst().octets());
        tuple[32..].copy_from_slice(ports);
        Some(Self { tuple, is_v6: true })
    }

    /// The flow of an entry that an agent wrote.
    pub(super) const fn of_entry(entry: &FlowEntry) -> Self {
        Self { tuple: *entry.tuple(), is_v6: entry.is_v6() }
    }

    /// As an entry of a question.
    pub(super) const fn entry(&self) -> FlowEntry {
        FlowEntry::new(self.is_v6, self.tuple)
    }

    /// The words of `struct bpf_sock_tuple`, padded.
    pub(super) fn words(&self) -> [u64; 5] {
        let mut padded = [0; 40];
        padded[..SIZE_V6].copy_from_slice(&self.tuple);
        let (words, _) = padded.as_chunks();
        std::array::from_fn(|nth| u64::from_ne_bytes(words[nth]))
    }

    pub(super) const fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Address and port of the receiver.
    pub(super) fn receiver(&self) -> SocketAddr {
        let part = |at: usize| -> [u8; 16] { self.tuple[at..at + 16].try_into().expect("16") };
        let (ip, port) = if self.is_v6 {
            (IpAddr::V6(Ipv6Addr::from(part(16))), &self.tuple[34..36])
        } else {
            let ip: [u8; 4] = self.tuple[4..8].try_into().expect("4");
            (IpAddr::V4(Ipv4Addr::from(ip)), &self.tuple[10..12])
        };
        SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]]))
    }

    /// A number that spreads receivers over tables.
    pub(super) fn receiver_hash(&self) -> u64 {
        let mut receiver = *self;
        let source = if self.is_v6 { 0..16 } else { 0..4 };
        let port = if self.is_v6 { 32..34 } else { 8..10 };
        receiver.tuple[source].fill(0);
        receiver.tuple[port].fill(0);
        receiver.hash()
    }

    /// A number that spreads flows over tables.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        let words = self.words();
        let mixed = words.iter().fold(0u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        mixed ^ mixed >> 32
    }
}
