//! Datagrams of the tunnel, as another host's card would send them.
//!
//! ```text
//!   | VXLAN 8 | Ethernet 14 | IPv4 20 | UDP 8, number 8, … |
//! ```
//!
//! A datagram that is larger than the tunnel's MTU is sent in fragments of IPv4.

use std::net::Ipv4Addr;

use super::{FIRST_PORT, GUEST_MAC, HOST, PORT, SENDER_MAC, VNI, guest_address};
use sluice_wire::checksum;

const ETHERNET_AT: usize = 8;
const IP_AT: usize = ETHERNET_AT + 14;
const UDP_AT: usize = IP_AT + 20;
const NUMBER_AT: usize = UDP_AT + 8;
/// Largest IP payload of a packet in the tunnel: from an MTU of 1,450, in units of eight bytes.
const CARRIED_MAX: usize = 1_424;
const MORE_FRAGMENTS: u16 = 0x2000;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// One datagram of a flow, in one packet or several.
pub(super) struct Datagram {
    pub(super) packets: Vec<Vec<u8>>,
}

impl Datagram {
    /// Makes a datagram of a flow, with `bytes` bytes of UDP payload.
    pub(super) fn new(flow: u16, bytes: usize) -> Self {
        let mut udp = vec![0; 8 + bytes];
        let length = u16::try_from(udp.len()).expect("a datagram");
        for (at, half) in [FIRST_PORT + flow, PORT, length].into_iter().enumerate() {
            udp[2 * at..2 * at + 2].copy_from_slice(&half.to_be_bytes());
        }
        // No UDP checksum, which IPv4 allows (RFC 768).
        let last = udp.len().div_ceil(CARRIED_MAX) - 1;
        let packet = |(nth, part): (usize, &[u8])| {
            let flags = match (last, nth) {
                (0, _) => DO_NOT_FRAGMENT,
                (last, nth) if nth == last => 0,
                _ => MORE_FRAGMENTS,
            };
            let offset = u16::try_from(nth * CARRIED_MAX / 8).expect("a datagram");
            packet(guest_address(flow), flags | offset, part)
        };
        Self { packets: udp.chunks(CARRIED_MAX).enumerate().map(packet).collect() }
    }

    /// Sets the number.
    pub(super) fn set(&mut self, number: u64) {
        self.packets[0][NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
        if self.packets.len() == 1 {
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "what identifies fragments wraps")]
        let identification = number as u16;
        for packet in &mut self.packets {
            let header = &mut packet[IP_AT..UDP_AT];
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            seal(header);
        }
    }
}

fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum::internet(header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
}

fn packet(to: Ipv4Addr, fragment: u16, carried: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x08, 0, 0, 0];
    packet.extend((VNI << 8).to_be_bytes());
    packet.extend(GUEST_MAC.0);
    packet.extend(SENDER_MAC.0);
    packet.extend([0x08, 0x00]);
    let length = u16::try_from(20 + carried.len()).expect("a packet");
    packet.extend([0x45, 0]);
    for half in [length, 0, fragment] {
        packet.extend(half.to_be_bytes());
    }
    // Time to live, UDP, and the checksum.
    packet.extend([64, 17, 0, 0]);
    packet.extend(HOST.octets());
    packet.extend(to.octets());
    seal(&mut packet[IP_AT..UDP_AT]);
    packet.extend(carried);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_make_up_the_datagram() {
        let mut datagram = Datagram::new(3, 8_192);
        datagram.set(0x1_2345);
        assert_eq!(datagram.packets.len(), 6);
        let mut carried: Vec<u8> = Vec::new();
        for packet in &datagram.packets {
            let header = &packet[IP_AT..UDP_AT];
            assert_eq!(checksum::internet(header), 0, "a good checksum");
            let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            assert_eq!(usize::from(half(2)), packet.len() - IP_AT);
            assert_eq!(half(4), 0x2345);
            assert_eq!(usize::from(half(6) & 0x1fff) * 8, carried.len(), "where it belongs");
            carried.extend(&packet[UDP_AT..]);
            assert_eq!(half(6) & MORE_FRAGMENTS != 0, carried.len() < 8 + 8_192, "the last one");
            assert!(packet.len() - ETHERNET_AT - 14 <= 1_450, "it fits the tunnel");
        }
        assert_eq!(carried.len(), 8 + 8_192);
        assert_eq!(carried[8..16], 0x1_2345_u64.to_be_bytes());
        let one = Datagram::new(0, 1_400);
        assert_eq!(one.packets.len(), 1);
    }
}
