//! The frames of the generator: UDP over IPv4, plain or in VXLAN, and the mark in their payload.
//!
//! ```text
//!   Ethernet 14 │ IPv4 20 │ UDP 8 │ mark 20: run+stream, flow, sequence number, time │ rest
//!   in VXLAN (RFC 7348, 5): Ethernet 14 │ IPv4 20 │ UDP 8 │ VXLAN 8 in front of it: 50 bytes
//! ```

use crate::guest::Bytes;

/// Offset of the mark in a plain frame.
pub const MARK_AT: usize = 42;
/// Bytes of the mark.
pub const MARK_BYTES: usize = 20;
/// Bytes of the VXLAN headers.
pub const VXLAN_BYTES: usize = 50;
/// Offset of the source port in a plain frame, by which flows differ.
pub const FLOW_AT: usize = 34;
/// The shortest frame, in bytes without FCS.
pub const FRAME_BYTES_MIN: usize = 64;

const MAGIC: u64 = 0x51_1c << 48;
const UDP: u8 = 17;
const VXLAN_PORT: u16 = 4789;

/// An end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address.
    pub ip: [u8; 4],
}

/// Returns a plain frame of `bytes` bytes with an empty mark. The UDP checksum is zero, which means
/// none.
///
/// # Panics
/// If it would be shorter than [`FRAME_BYTES_MIN`] or longer than IPv4 allows.
#[must_use]
pub fn plain(from: End, to: End, bytes: usize) -> Vec<u8> {
    assert!(bytes >= FRAME_BYTES_MIN, "a frame of {bytes} bytes has no room for the mark");
    udp(from, to, (1024, 9), &vec![0; bytes - MARK_AT])
}

/// Returns a frame in VXLAN, as the underlay carries it.
///
/// # Panics
/// If it is longer than IPv4 allows.
#[must_use]
pub fn vxlan(from: End, to: End, vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x08, 0, 0, 0];
    payload.extend((vni << 8).to_be_bytes());
    payload.extend(inner);
    udp(from, to, (50_000, VXLAN_PORT), &payload)
}

fn udp(from: End, to: End, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = |extra: usize| u16::try_from(payload.len() + extra).expect("a frame fits");
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[2..4].copy_from_slice(&length(28).to_be_bytes());
    ip[12..16].copy_from_slice(&from.ip);
    ip[16..20].copy_from_slice(&to.ip);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = Vec::with_capacity(MARK_AT + payload.len());
    frame.extend(to.mac);
    frame.extend(from.mac);
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend(length(8).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

/// Mark of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Run of the frame; frames of an earlier one may come late.
    pub run: u16,
    /// Source that made it.
    pub stream: u16,
    /// The flow in its source.
    pub flow: u16,
    /// Its number in the flow.
    pub sequence: u32,
    /// Time at which it was made, in ticks.
    pub time: u64,
}

impl Mark {
    /// Writes the mark.
    #[inline]
    pub(super) fn write(&self, to: Bytes<'_>, at: usize) {
        let word =
            MAGIC | u64::from(self.run) << 32 | u64::from(self.stream) << 16 | u64::from(self.flow);
        to.write_u64(at, word);
        to.write(at + 8, &self.sequence.to_le_bytes());
        to.write_u64(at + 12, self.time);
    }

    /// Reads a mark; `None` if the frame has none.
    #[inline]
    pub(super) fn read(from: Bytes<'_>, at: usize) -> Option<Self> {
        if from.len() < at + MARK_BYTES {
            return None;
        }
        let word = from.read_u64(at);
        if word & 0xffff << 48 != MAGIC {
            return None;
        }
        let part = |shift: u32| u16::try_from(word >> shift & 0xffff).unwrap_or(0);
        let mut sequence = [0; 4];
        from.read(at + 8, &mut sequence);
        Some(Self {
            run: part(32),
            stream: part(16),
            flow: part(0),
            sequence: u32::from_le_bytes(sequence),
            time: from.read_u64(at + 12),
        })
    }
}
