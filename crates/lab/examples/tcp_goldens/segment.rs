//! Fields of a frame that the relay needs.

use sluice_wire::tcp::flags;
use sluice_wire::{ethernet, ipv4, tcp};

const ETHERTYPE_IPV4: u16 = 0x0800;
const PROTOCOL_TCP: u8 = 6;
/// Option kinds: end of the list, padding (RFC 9293 section 3.2), SACK (RFC 2018 section 3).
const OPTION_END: u8 = 0;
const OPTION_PADDING: u8 = 1;
const OPTION_SACK: u8 = 5;

/// A TCP segment, with the sequence numbers of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) size: u32,
    pub(crate) syn: bool,
    /// SACK blocks: first and last plus one, most recent block first.
    pub(crate) sack: Vec<(u32, u32)>,
}

/// Parses the segment in an Ethernet frame; `None` if the frame holds anything else.
pub(crate) fn parse(frame: &[u8]) -> Option<Segment> {
    let frame = ethernet::Frame::new_checked(frame).ok()?;
    if frame.ethertype().0 != ETHERTYPE_IPV4 {
        return None;
    }
    let packet = ipv4::Packet::new_checked(frame.payload()).ok()?;
    if packet.protocol() != PROTOCOL_TCP {
        return None;
    }
    let segment = tcp::Packet::new_checked(packet.payload()).ok()?;
    let options = packet.payload().get(tcp::HEADER_SIZE_MIN..segment.header_size())?;
    Some(Segment {
        seq: segment.seq(),
        ack: segment.ack(),
        size: u32::try_from(segment.payload().len()).ok()?,
        syn: segment.flags() & flags::SYN != 0,
        sack: sack(options).unwrap_or_default(),
    })
}

/// Returns the SACK blocks among a header's options; `None` if there are none.
fn sack(mut options: &[u8]) -> Option<Vec<(u32, u32)>> {
    loop {
        match *options.first()? {
            OPTION_END => return None,
            OPTION_PADDING => options = &options[1..],
            kind => {
                let size = usize::from(*options.get(1)?);
                let body = options.get(2..size)?;
                if kind == OPTION_SACK {
                    return Some(body.chunks_exact(8).map(block).collect());
                }
                options = &options[size..];
            }
        }
    }
}

fn block(bytes: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
    (number(0), number(4))
}
