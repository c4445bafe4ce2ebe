//! Offloads that would give this port frames which never were on a wire, and the checksum that one
//! of them leaves open.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use sluice_wire::{checksum, ethernet, ipv4, ipv6, vlan};

use crate::device::ioctl_socket;
use crate::error::OpenError;
use crate::handed::PortHandover;
use crate::sys::DeviceRequest;

/// One offload: its name, the ethtool requests that read and set it, and its bit in them.
struct Feature {
    name: &'static str,
    get: u32,
    set: u32,
    bit: u32,
}

// Numbers of `linux/ethtool.h`.
const FEATURES: [Feature; 6] = [
    Feature { name: "lro", get: 0x25, set: 0x26, bit: 1 << 15 },
    Feature { name: "gro", get: 0x2b, set: 0x2c, bit: 1 },
    Feature { name: "tso", get: 0x1e, set: 0x1f, bit: 1 },
    Feature { name: "gso", get: 0x23, set: 0x24, bit: 1 },
    Feature { name: "tx", get: 0x16, set: 0x17, bit: 1 },
    Feature { name: "rx", get: 0x14, set: 0x15, bit: 1 },
];

/// Offloads that were switched off, and are switched on again when this is dropped.
#[derive(Debug)]
pub(super) struct Offloads {
    device: String,
    socket: OwnedFd,
    were_on: Vec<(u32, u32)>,
    /// True if checksums may be left to the device.
    keeps_checksums: bool,
}

/// Name of the offload of checksums that are sent.
const CHECKSUMS: &str = "tx";

impl Offloads {
    /// Adds the offloads that an earlier process switched off, and handed over. One that is left on
    /// now is switched on again.
    pub(super) fn were_on_before(&mut self, handed: &BTreeMap<String, u64>) {
        for feature in FEATURES {
            if self.keeps(&feature) {
                let value = handed.get(feature.name).and_then(|on| u32::try_from(*on).ok());
                if let (Some(value), Some(request)) = (value, DeviceRequest::new(&self.device)) {
                    // Without it each frame leaves for itself.
                    _ = request.ethtool(self.socket.as_fd(), feature.set, value);
                }
                continue;
            }
            let before = handed.get(feature.name).and_then(|on| u32::try_from(*on).ok());
            let is_known = self.were_on.iter().any(|(set, _)| *set == feature.set);
            self.were_on.extend(before.filter(|_| !is_known).map(|before| (feature.set, before)));
        }
    }

    /// Adds the earlier values to a hand-over.
    pub(super) fn hand_over(&self, handed: &mut PortHandover) {
        for feature in FEATURES {
            if let Some((_, before)) = self.were_on.iter().find(|(set, _)| *set == feature.set) {
                handed.number(feature.name, (*before).into());
            }
        }
    }

    fn keeps(&self, feature: &Feature) -> bool {
        self.keeps_checksums && feature.name == CHECKSUMS
    }

    /// True if the device makes the checksums of what it is given.
    pub(super) fn leave_checksums(&self) -> bool {
        let tx = FEATURES.iter().find(|feature| self.keeps(feature));
        let request = DeviceRequest::new(&self.device);
        let value = tx.zip(request).map(|(feature, request)| {
            request.ethtool(self.socket.as_fd(), feature.get, 0).unwrap_or(0) & feature.bit
        });
        value.is_some_and(|value| value != 0)
    }

    /// Leaves the offloads of a device as they are.
    pub(super) fn left(device: &str) -> Result<Self, OpenError> {
        let socket = ioctl_socket().map_err(OpenError::device(device, "open a socket for it"))?;
        let (device, were_on) = (device.to_owned(), Vec::new());
        Ok(Self { device, socket, were_on, keeps_checksums: false })
    }

    /// Switches the offloads of a device off, but for checksums if those may be left to it.
    pub(super) fn off(device: &str, keeps_checksums: bool) -> Result<Self, OpenError> {
        let socket = ioctl_socket().map_err(OpenError::device(device, "open a socket for it"))?;
        let request = DeviceRequest::new(device)
            .ok_or_else(|| OpenError::BadName { device: device.to_owned() })?;
        let mut offloads =
            Self { device: device.to_owned(), socket, were_on: Vec::new(), keeps_checksums };
        for feature in FEATURES {
            if offloads.keeps(&feature) {
                continue;
            }
            // A feature that the device does not know is off.
            let get = |offloads: &Self| {
                request.ethtool(offloads.socket.as_fd(), feature.get, 0).unwrap_or(0)
            };
            let before = get(&offloads);
            if before & feature.bit == 0 {
                continue;
            }
            let set = request.ethtool(offloads.socket.as_fd(), feature.set, before & !feature.bit);
            // Receive checksums only mark frames as verified; they may stay on.
            let needed = feature.name != "rx";
            if needed && (set.is_err() || get(&offloads) & feature.bit != 0) {
                let device = device.to_owned();
                return Err(OpenError::Offload { device, feature: feature.name });
            }
            if set.is_ok() {
                offloads.were_on.push((feature.set, before));
            }
        }
        Ok(offloads)
    }

    /// Switches the offloads on again.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        let Some(request) = DeviceRequest::new(&self.device) else { return Ok(()) };
        let mut result = Ok(());
        // In reverse order: some offloads depend on others.
        for (set, before) in self.were_on.drain(..).rev() {
            if let Err(error) = request.ethtool(self.socket.as_fd(), set, before) {
                result = Err(error);
            }
        }
        result
    }
}

impl Drop for Offloads {
    fn drop(&mut self) {
        // The device may be gone, and then there is nothing to restore.
        let _gone = self.restore();
    }
}

/// Offset of the checksum in a TCP or UDP header.
const fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 => Some(6),
        _ => None,
    }
}

/// Finishes a TCP or UDP checksum that its sender left to a card: the field holds the sum of the
/// pseudo-header, to which the sum over the rest is added. Returns false if the frame is neither.
pub(super) fn finish_checksum(frame: &mut [u8]) -> bool {
    let Some((start, end, protocol)) = transport(frame) else { return false };
    let Some(offset) = checksum_offset(protocol) else { return false };
    let Some(segment) = frame.get_mut(start..end) else { return false };
    if segment.len() < offset + 2 {
        return false;
    }
    let mut sum = checksum::internet(segment);
    if sum == 0 && protocol == 17 {
        sum = 0xffff; // Zero would say "none made" (RFC 768).
    }
    segment[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Offset of the transport header, end of the packet, and its protocol.
fn transport(frame: &[u8]) -> Option<(usize, usize, u8)> {
    let mut at = ethernet::HEADER_SIZE;
    let mut ethertype = u16::from_be_bytes(*frame.get(at - 2..)?.first_chunk()?);
    while matches!(ethertype, 0x8100 | 0x88a8) {
        at += vlan::TAG_SIZE;
        ethertype = u16::from_be_bytes(*frame.get(at - 2..)?.first_chunk()?);
    }
    let packet = frame.get(at..)?;
    match ethertype {
        0x0800 => {
            let packet = ipv4::Packet::new_checked(packet).ok()?;
            let end = at + usize::from(packet.total_size());
            (!packet.is_fragment()).then_some((at + packet.header_size(), end, packet.protocol()))
        }
        0x86dd => {
            let packet = ipv6::Packet::new_checked(packet).ok()?;
            let start = at + ipv6::HEADER_SIZE;
            Some((start, start + usize::from(packet.payload_size()), packet.next_header()))
        }
        _ => None,
    }
}
