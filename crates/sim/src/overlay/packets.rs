//! The packets of tenants, each once, however many handles speak of it.

use crate::world::{ConnectionId, Packet};

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

/// Packets of one connection that are on their way.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    packets: u32,
    /// The connection is closed; its place is free again when the last packet has ended.
    closing: bool,
}

/// All packets that are somewhere between two VMs.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    places: Vec<Place>,
    free: Vec<u32>,
    /// By connection.
    flights: Vec<Flight>,
    /// Closed connections without packets, to be taken by [`Self::released`].
    released: Vec<ConnectionId>,
}

impl Packets {
    /// A packet with one handle.
    pub(crate) fn take(&mut self, packet: Packet) -> PacketId {
        let connection = packet.to.connection().0 as usize;
        if connection >= self.flights.len() {
            self.grow_flights(connection);
        }
        self.flights[connection].packets += 1;
        let place = Place { packet, handles: 1 };
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = place;
                PacketId(at)
            }
            None => self.grow_places(place),
        }
    }

    #[cold]
    fn grow_flights(&mut self, connection: usize) {
        self.flights.resize(connection + 1, Flight::default());
    }

    #[cold]
    fn grow_places(&mut self, place: Place) -> PacketId {
        self.places.push(place);
        PacketId(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 packets"))
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
            let connection = place.packet.to.connection();
            let flight = &mut self.flights[connection.0 as usize];
            flight.packets -= 1;
            if flight.closing && flight.packets == 0 {
                flight.closing = false;
                self.released.push(connection);
            }
        }
    }

    /// A connection is closed. True if no packet of it is on its way; otherwise it comes out of
    /// [`Self::released`] later. Its place must not be used before: headers and path of a packet
    /// are those of its connection.
    pub(crate) fn close(&mut self, connection: ConnectionId) -> bool {
        match self.flights.get_mut(connection.0 as usize) {
            Some(flight) if flight.packets > 0 => {
                flight.closing = true;
                false
            }
            _ => true,
        }
    }

    /// The next closed connection whose last packet has ended.
    pub(crate) fn released(&mut self) -> Option<ConnectionId> {
        self.released.pop()
    }

    pub(crate) fn get(&self, id: PacketId) -> &Packet {
        &self.places[id.0 as usize].packet
    }

    /// Packets that are somewhere.
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
