//! The packets of endpoints, each stored once for any number of handles.
//!
//! At the beginning of a wave thousands of packets are on their way, each is looked at several
//! times between its two ends, and their memory is a large part of the memory that a run touches.
//! So a place is three quarters of a cache line, and fields that few packets have lie elsewhere.

mod packet;

use std::num::NonZeroU32;

use crate::ids::{ConnectionId, EndpointId};
use crate::tcp::{Flags, SackBlocks, Segment};
pub(crate) use packet::{Body, Packet};

/// A packet, by number; one more than its place, so that an optional number fits into four bytes as
/// well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketId(NonZeroU32);

impl PacketId {
    /// The number for frames that carry no packet: flow control.
    pub(crate) const NONE: Self = Self(NonZeroU32::MAX);

    #[inline]
    fn of(place: u32) -> Self {
        Self(NonZeroU32::new(place + 1).expect("one more than zero"))
    }

    #[inline]
    const fn place(self) -> u32 {
        self.0.get() - 1
    }
}

/// No place.
const NIL: u32 = u32::MAX;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Segment,
    /// A segment whose SACK blocks are beside its place.
    WithSack,
    /// A datagram; `len` is its size.
    Datagram,
}

/// A packet: the fields of [`Packet`] and of its [`Segment`].
#[derive(Clone, Copy, Debug)]
struct Place {
    seq: u64,
    ack: u64,
    window: u32,
    len: u32,
    stamp: u32,
    echo: u32,
    to: EndpointId,
    generation: u32,
    number: u32,
    handles: u16,
    flags: Flags,
    what: What,
}

const _: () = assert!(size_of::<Place>() == 48, "four packets are three cache lines");

impl Place {
    /// Creates the place of a packet, with one handle.
    #[inline]
    fn new(packet: &Packet) -> Self {
        let (segment, what) = match &packet.body {
            Body::Tcp(segment) if segment.sack.is_empty() => (segment, What::Segment),
            Body::Tcp(segment) => (segment, What::WithSack),
            Body::Datagram(len) => (&Segment { len: *len, ..Segment::default() }, What::Datagram),
        };
        Self {
            seq: segment.seq,
            ack: segment.ack,
            window: segment.window,
            len: segment.len,
            stamp: segment.stamp,
            echo: segment.echo,
            to: packet.to,
            generation: packet.generation,
            number: packet.number,
            handles: 1,
            flags: segment.flags,
            what,
        }
    }

    #[inline]
    fn body(&self, sack: SackBlocks) -> Body {
        if self.what == What::Datagram {
            return Body::Datagram(self.len);
        }
        let Self { seq, ack, window, len, stamp, echo, flags, .. } = *self;
        Body::Tcp(Segment { seq, ack, window, len, stamp, echo, sack, flags })
    }
}

/// Packets of one connection that are on their way.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    packets: u32,
    /// True if the connection is closed; its place is free again when the last packet has ended.
    closing: bool,
}

/// All packets between two endpoints.
#[derive(Debug)]
pub(crate) struct Packets {
    places: Vec<Place>,
    /// SACK blocks by place, up to the last place that had some.
    sacks: Vec<SackBlocks>,
    /// The place that was freed last; the `number` of a free place is the next one.
    free: u32,
    taken: usize,
    /// By connection: the number of packets of [`Self::depart`].
    flights: Vec<Flight>,
    /// Closed connections without packets, to be taken by [`Self::released`].
    released: Vec<ConnectionId>,
}

impl Default for Packets {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            sacks: Vec::new(),
            free: NIL,
            taken: 0,
            flights: Vec::new(),
            released: Vec::new(),
        }
    }
}

impl Packets {
    /// Adds a packet with one owner, which will [`Self::remove`] it.
    #[inline]
    pub(crate) fn insert(&mut self, packet: &Packet) -> PacketId {
        self.taken += 1;
        let at = self.free;
        let id = match self.places.get_mut(at as usize) {
            Some(place) => {
                self.free = place.number;
                *place = Place::new(packet);
                PacketId::of(at)
            }
            None => self.grow_places(packet),
        };
        if let Body::Tcp(segment) = &packet.body
            && !segment.sack.is_empty()
        {
            self.keep_sack(id, segment.sack);
        }
        id
    }

    /// Adds a packet with one handle, to be given back; meanwhile its connection keeps its place.
    #[inline]
    pub(crate) fn depart(&mut self, packet: &Packet) -> PacketId {
        let connection = packet.to.connection().0 as usize;
        if connection >= self.flights.len() {
            self.grow_flights(connection);
        }
        self.flights[connection].packets += 1;
        self.insert(packet)
    }

    /// Takes out a packet that has one owner.
    #[inline]
    pub(crate) fn remove(&mut self, id: PacketId) -> Packet {
        let packet = self.get(id);
        self.free_place(id);
        packet
    }

    #[inline]
    fn free_place(&mut self, id: PacketId) {
        self.taken -= 1;
        self.places[id.place() as usize].number = self.free;
        self.free = id.place();
    }

    #[cold]
    fn keep_sack(&mut self, id: PacketId, sack: SackBlocks) {
        let at = id.place() as usize;
        if at >= self.sacks.len() {
            self.sacks.resize(at + 1, SackBlocks::NONE);
        }
        self.sacks[at] = sack;
    }

    #[cold]
    fn grow_flights(&mut self, connection: usize) {
        self.flights.resize(connection + 1, Flight::default());
    }

    #[cold]
    fn grow_places(&mut self, packet: &Packet) -> PacketId {
        self.places.push(Place::new(packet));
        PacketId::of(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 packets"))
    }

    /// Adds a handle.
    pub(crate) fn share(&mut self, id: PacketId) {
        self.places[id.place() as usize].handles += 1;
    }

    /// Takes away a handle; without handles the packet is gone.
    pub(crate) fn give_back(&mut self, id: PacketId) {
        if id == PacketId::NONE {
            return;
        }
        let place = &mut self.places[id.place() as usize];
        place.handles -= 1;
        if place.handles == 0 {
            let connection = place.to.connection();
            self.free_place(id);
            let flight = &mut self.flights[connection.0 as usize];
            flight.packets -= 1;
            if flight.closing && flight.packets == 0 {
                flight.closing = false;
                self.released.push(connection);
            }
        }
    }

    /// Closes a connection. True if no packet of it is on its way; otherwise it comes out of
    /// [`Self::released`] later. Its place must not be used before: a packet uses the headers and
    /// the path of its connection.
    pub(crate) fn close(&mut self, connection: ConnectionId) -> bool {
        match self.flights.get_mut(connection.0 as usize) {
            Some(flight) if flight.packets > 0 => {
                flight.closing = true;
                false
            }
            _ => true,
        }
    }

    /// Returns the next closed connection whose last packet has ended.
    pub(crate) fn released(&mut self) -> Option<ConnectionId> {
        self.released.pop()
    }

    /// Returns the packet itself.
    #[inline]
    pub(crate) fn get(&self, id: PacketId) -> Packet {
        let place = &self.places[id.place() as usize];
        let sack = if place.what == What::WithSack { self.sack(id) } else { SackBlocks::NONE };
        let Place { to, generation, number, .. } = *place;
        Packet { to, generation, number, body: place.body(sack) }
    }

    #[cold]
    fn sack(&self, id: PacketId) -> SackBlocks {
        self.sacks[id.place() as usize]
    }

    /// Returns the endpoint that a packet is for.
    #[inline]
    pub(crate) fn to(&self, id: PacketId) -> EndpointId {
        self.places[id.place() as usize].to
    }

    /// Number of packets.
    pub(crate) const fn count(&self) -> usize {
        self.taken
    }
}
