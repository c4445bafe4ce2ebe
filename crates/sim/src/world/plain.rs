//! Hosts without a virtual switch: a segment goes straight to the network card.

use super::{EndpointId, Load, Packet, World};
use crate::net::{Ecn, Shape};
use crate::tcp::Segment;

/// Ethernet and IPv4 headers.
const HEADERS: u32 = 14 + 20;

impl World {
    #[inline]
    pub(super) fn transmit(&mut self, from: EndpointId, segment: &Segment) {
        let endpoint = &self.endpoints[from.0 as usize];
        let size = HEADERS + segment.header_bytes() + segment.len;
        let shape = Shape {
            size: u16::try_from(size).expect("a segment is smaller than 64 KiB"),
            priority: endpoint.priority,
            ecn: Ecn::NotCapable,
        };
        let packet = Packet {
            to: from.peer(),
            generation: self.endpoints[from.peer().0 as usize].generation,
            segment: *segment,
        };
        let ready = self.events.now().after(self.send_latency);
        let path = endpoint.path.expect("found when it was connected");
        self.net.send(&mut self.events, path, ready, shape, Load::Plain(packet));
    }
}
