//! Frames made by hand.

use std::net::Ipv4Addr;

use sluice_base::{Mac, Priority};
use sluice_ports::Port as _;
use sluice_ports::l2::{KernelShare, L2Config, L2Port};
use sluice_switch::{Egress, Sink as _, Taken};
use sluice_wire::checksum;

use super::Netns;

/// A packet socket that sends on a device.
pub(crate) struct Sender(L2Port);

impl Sender {
    pub(crate) fn new(netns: &Netns, device: &str) -> Self {
        let mut config = L2Config::new(device);
        (config.ring_bytes, config.kernel) = (1, KernelShare::All);
        Self(netns.inside(|| L2Port::open(&config).unwrap()))
    }

    /// Sends one frame. Returns false if the kernel does not accept such a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) -> bool {
        let lost = self.0.lost().total().frames;
        let size = u32::try_from(frame.len()).unwrap();
        let egress = Egress {
            header: frame,
            buf: None,
            strip: 0,
            size,
            first: 0,
            priority: Priority::ZERO,
            tunnel: None,
        };
        assert_eq!(self.0.offer(&egress), Taken::All);
        self.0.flush().unwrap();
        while self.0.pending().frames > 0 {
            // The device has no room for a moment.
            std::thread::yield_now();
            self.0.flush().unwrap();
        }
        self.0.lost().total().frames == lost
    }
}

/// Makes an Ethernet frame.
pub(crate) fn ethernet(dst: Mac, src: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&dst.0, &src.0, &ethertype.to_be_bytes()[..], payload].concat()
}

/// Makes an IPv4 packet with a valid checksum.
pub(crate) fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, tos: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut header = vec![0x45, tos, size[0], size[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    header.extend(src.octets());
    header.extend(dst.octets());
    set_checksum(&mut header);
    [&header, payload].concat()
}

/// Sets the checksum of an IPv4 header of 20 bytes.
pub(crate) fn set_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum::internet(&packet[..20]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
}

/// Makes a UDP datagram without a checksum.
pub(crate) fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + payload.len()).unwrap();
    let mut datagram: Vec<u8> = [src, dst, size, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    datagram.extend(payload);
    datagram
}

/// Makes a VXLAN header with an inner frame.
pub(crate) fn vxlan(flags: u8, vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut header = vec![flags, 0, 0, 0];
    header.extend((vni << 8).to_be_bytes());
    [&header, inner].concat()
}

/// Makes a MAC Control frame from `src`, not padded.
pub(crate) fn mac_control(src: Mac, parameters: &[u8]) -> Vec<u8> {
    ethernet(Mac::PAUSE, src, 0x8808, parameters)
}
