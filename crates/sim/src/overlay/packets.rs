//! The packets of tenants, each once, however many handles speak of it.

use crate::world::Packet;

/// A packet, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketId(pub(crate) u32);

impl PacketId {
    /// That of a frame which carries no packet: flow control.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[derive(Debug)]
struct Place {
    packet: Packet,
    handles: u32,
}

/// All packets that are somewhere between two VMs.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Packets {
    /// A packet with one handle.
    pub(crate) fn take(&mut self, packet: Packet) -> PacketId {
        let place = Place { packet, handles: 1 };
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = place;
                PacketId(at)
            }
            None => {
                self.places.push(place);
                PacketId(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 packets"))
            }
        }
    }

    /// One handle more.
    pub(crate) fn share(&mut self, id: PacketId) {
        self.places[id.0 as usize].handles += 1;
    }

    /// One handle less; without handles it is gone.
    pub(crate) fn give_back(&mut self, id: PacketId) {
        if id == PacketId::NONE {
            return;
        }
        let place = &mut self.places[id.0 as usize];
        place.handles -= 1;
        if place.handles == 0 {
            self.free.push(id.0);
        }
    }

    pub(crate) fn get(&self, id: PacketId) -> &Packet {
        &self.places[id.0 as usize].packet
    }

    /// Packets that are somewhere.
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
