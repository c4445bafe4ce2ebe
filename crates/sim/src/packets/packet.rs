//! A packet from one endpoint to the other.

use crate::ids::EndpointId;
use crate::tcp;

/// Payload of a frame from one endpoint to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) to: EndpointId,
    /// Tells connections apart that had the same number one after the other.
    pub(crate) generation: u32,
    /// Number of the packet by its sender, so that the order can be checked.
    pub(crate) number: u32,
    pub(crate) body: Body,
}

impl Packet {
    /// Returns the receiver: the endpoint, and the generation of the connection that has its
    /// number.
    pub(crate) const fn connection(&self) -> (EndpointId, u32) {
        (self.to, self.generation)
    }
}

/// A packet without its headers' addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Tcp(tcp::Segment),
    /// A UDP datagram with so many bytes of payload.
    Datagram(u32),
}

impl Body {
    /// The size of the frame in bytes, Ethernet and IPv4 headers included.
    pub(crate) fn frame_size(&self) -> u32 {
        const ETHERNET_AND_IPV4: u32 = 14 + 20;
        ETHERNET_AND_IPV4
            + match self {
                Self::Tcp(segment) => segment.header_bytes() + segment.len,
                Self::Datagram(bytes) => 8 + bytes,
            }
    }
}
