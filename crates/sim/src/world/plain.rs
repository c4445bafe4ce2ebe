//! Hosts without a virtual switch: a segment goes straight to the network card.

use super::{Load, World};
use crate::ids::EndpointId;
use crate::net::{Ecn, Shape};
use crate::packets::Packet;

impl World {
    #[inline]
    pub(super) fn transmit(&mut self, from: EndpointId, packet: Packet) {
        let endpoint = &self.endpoints[from.0 as usize];
        let shape = Shape {
            size: u16::try_from(packet.body.frame_size())
                .expect("a segment is smaller than 64 KiB"),
            priority: endpoint.priority,
            ecn: Ecn::NotCapable,
        };
        let ready = self.events.now().after(self.send_latency);
        let path = endpoint.path.expect("found when it was connected");
        let load = Load { head: None, packet: self.packets.insert(&packet) };
        self.net.send(&mut self.events, path, ready, shape, load);
    }
}
