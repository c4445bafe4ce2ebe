//! Connections and their two ends.

use std::collections::VecDeque;
use std::hint::cold_path;
use std::sync::Arc;

use sluice_base::{Nanos, Priority};

use super::{Notice, World};
use crate::event::Event;
use crate::ids::{ConnectionId, EndpointId};
use crate::net::PathId;
use crate::overlay::{Heads, vm_head};
use crate::packets::{Body, Packet};
use crate::tcp::{Config, Connection, Role, Stats};
use crate::topology::TopologyError;

/// Settings of a connection between two stations: VMs if there are virtual networks, else hosts.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The station that connects.
    pub from: u32,
    /// The station that is connected to.
    pub to: u32,
    /// The priority of its frames, both ways.
    pub priority: Priority,
    /// Number that picks among equal paths; each way has its own. Between VMs it gives the ports of
    /// the connection, whose hash is the entropy of the outer header.
    pub flow: u64,
    /// True if the connection begins with SYN and SYN-ACK.
    pub handshake: bool,
}

/// Two stations that cannot be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// No path joins them.
    Path(TopologyError),
    /// A full segment with its headers is larger than the MTU.
    TooLarge {
        /// The size of the packet.
        packet: u32,
        /// Largest size that the network carries.
        mtu: u16,
    },
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(error) => error.fmt(f),
            Self::TooLarge { packet, mtu } => write!(
                f,
                "a full segment makes a packet of {packet} bytes, and the MTU is {mtu}: lower the \
                 MSS"
            ),
        }
    }
}

impl std::error::Error for ConnectError {}

/// An end of a connection. Its fields stand in this order so that data used for every packet lies
/// on few cache lines: ends of all hosts take turns, and none stays in the nearest cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Endpoint {
    pub(super) priority: Priority,
    /// The workload that connected.
    owner: u8,
    /// True if the acknowledgement of everything written is worth a notice.
    tell_acknowledged: bool,
    open: bool,
    /// Generation of the connection, the same at both ends.
    pub(super) generation: u32,
    /// The host, or the VM, of this end.
    pub(super) station: u32,
    /// Number of packets that this end has sent.
    sent: u32,
    /// The path of its frames; in a VM it is found when the first frame has its outer headers.
    pub(super) path: Option<PathId>,
    pub(super) heads: Option<Heads>,
    /// Time of its earliest timer event; an earlier deadline needs another event.
    pub(super) timer_at: Nanos,
    /// Number of received bytes at which the next message is whole.
    pub(super) next_message: u64,
    pub(super) written: u64,
    pub(super) tcp: Connection,
    /// The messages on their way: the end of each, and its tag.
    pub(super) messages: VecDeque<(u64, u32)>,
    /// Number of bytes that datagrams brought.
    pub(super) datagram_bytes: u64,
}

impl Endpoint {
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }
}

/// Returns the headers of one way of a connection between VMs; its ports come from the flow.
fn heads_of((from, to, _): (u32, u32, u64), with: &Connect) -> Heads {
    let [.., a, b, c, d] = with.flow.to_be_bytes();
    let ports = (u16::from_be_bytes([a, b]) | 1, u16::from_be_bytes([c, d]) | 1);
    let ports = if from == with.from { ports } else { (ports.1, ports.0) };
    Heads::new(vm_head(from, to, with.priority, ports))
}

impl World {
    /// Connects two stations.
    ///
    /// # Errors
    /// No path exists, or the segments would be too large for the network.
    pub fn connect(
        &mut self,
        config: &Arc<Config>,
        with: &Connect,
    ) -> Result<ConnectionId, ConnectError> {
        let packet = 20 + 20 + if config.stamps() { 12 } else { 0 } + config.mss;
        if packet > u32::from(self.mtu) {
            return Err(ConnectError::TooLarge { packet, mtu: self.mtu });
        }
        let ways = [(with.from, with.to, with.flow), (with.to, with.from, !with.flow)];
        let mut paths = [None; 2];
        if self.virt.is_none() {
            for (path, (from, to, flow)) in paths.iter_mut().zip(ways) {
                let links = self.routes.path(from, to, flow).map_err(ConnectError::Path)?;
                *path = Some(self.net.open_path(links));
            }
        }
        let roles = if with.handshake {
            [Role::Client, Role::Server]
        } else {
            [Role::Established, Role::Established]
        };
        while let Some(id) = self.packets.released() {
            self.free_place(id);
        }
        let at = self.free.pop();
        let mut ends = ways.into_iter().zip(paths).zip(roles).map(|((way, path), role)| Endpoint {
            tcp: Connection::new(config, role, self.events.now()),
            path,
            station: way.0,
            heads: self.virt.as_ref().map(|_| heads_of(way, with)),
            priority: with.priority,
            generation: 0,
            sent: 0,
            timer_at: Nanos::MAX,
            next_message: u64::MAX,
            messages: VecDeque::new(),
            datagram_bytes: 0,
            owner: self.speaker,
            tell_acknowledged: false,
            written: 0,
            open: true,
        });
        let id = match at {
            Some(at) => {
                let id = ConnectionId(at);
                for endpoint in [id.client(), id.server()] {
                    let place = &mut self.endpoints[endpoint.index()];
                    let generation = place.generation + 1;
                    // A timer event of the former connection is void: it finds another time, or
                    // nothing to do.
                    *place = Endpoint { generation, ..ends.next().expect("two ends") };
                }
                id
            }
            None => {
                let id = u32::try_from(self.endpoints.len() / 2).expect("fewer than 2^31");
                self.endpoints.extend(ends);
                ConnectionId(id)
            }
        };
        if with.handshake {
            self.pump(id.client());
        }
        Ok(id)
    }

    /// Joins two stations for datagrams only.
    ///
    /// # Errors
    /// No path exists.
    pub fn connect_datagrams(&mut self, with: &Connect) -> Result<ConnectionId, ConnectError> {
        let config = Arc::clone(&self.no_tcp);
        self.connect(&config, &Connect { handshake: false, ..with.clone() })
    }

    /// Number of frames that wait in the ring that takes an endpoint's frames in its VM; 0 without
    /// virtual networks.
    #[must_use]
    pub fn ring_frames(&self, id: EndpointId) -> usize {
        let Endpoint { station, priority, .. } = self.endpoints[id.index()];
        self.virt.as_ref().map_or(0, |virt| {
            let host = &virt.hosts[(station / virt.vms_per_host) as usize];
            host.ring_frames((station % virt.vms_per_host) as usize, priority)
        })
    }

    /// Closes a connection. Its segments that are still on their way end unseen.
    pub fn close(&mut self, id: ConnectionId) {
        for endpoint in [id.client(), id.server()] {
            let endpoint = &mut self.endpoints[endpoint.index()];
            assert!(endpoint.open, "a connection is closed once");
            endpoint.open = false;
            self.closed_tcp.add(endpoint.tcp.stats());
        }
        self.check_closed(id);
        if self.virt.is_none() || self.packets.close(id) {
            self.free_place(id);
        }
    }

    /// Frees the place of a closed connection of which nothing is left.
    fn free_place(&mut self, id: ConnectionId) {
        for endpoint in [id.client(), id.server()] {
            if let Some(path) = self.endpoints[endpoint.index()].path.take() {
                self.net.close_path(path);
            }
        }
        self.free.push(id.0);
    }

    /// Sends `bytes` more of an endpoint.
    pub fn write(&mut self, id: EndpointId, bytes: u64) {
        let now = self.now();
        let endpoint = &mut self.endpoints[id.index()];
        endpoint.written += bytes;
        endpoint.tcp.write(now, bytes);
        self.pump(id);
    }

    /// Sends a message of an endpoint; a [`Notice::Message`] with this tag reports that it has
    /// arrived whole.
    pub fn send(&mut self, id: EndpointId, bytes: u64, tag: u32) {
        let end = self.endpoints[id.index()].written + bytes;
        let peer = &mut self.endpoints[id.peer().index()];
        if peer.messages.is_empty() {
            peer.next_message = end;
        }
        peer.messages.push_back((end, tag));
        let to = (id.peer(), peer.generation);
        let now = self.now();
        if let Some(ledger) = &mut self.ledger {
            ledger.message_sent(now, to, bytes);
        }
        self.write(id, bytes);
    }

    /// Sends a datagram to the other end of a connection.
    pub fn send_datagram(&mut self, id: EndpointId, bytes: u32) {
        self.put_on_wire(id, Body::Datagram(bytes));
    }

    /// Asks for a [`Notice::Acknowledged`] when all that the endpoint has written is acknowledged.
    pub fn tell_acknowledged(&mut self, id: EndpointId) {
        self.endpoints[id.index()].tell_acknowledged = true;
    }

    /// Number of bytes that an endpoint has received in order.
    #[must_use]
    pub fn delivered(&self, id: EndpointId) -> u64 {
        self.endpoints[id.index()].tcp.delivered()
    }

    /// Number of payload bytes that datagrams have brought to an endpoint.
    #[must_use]
    pub fn datagram_bytes(&self, id: EndpointId) -> u64 {
        self.endpoints[id.index()].datagram_bytes
    }

    /// Returns the congestion window of an endpoint, in bytes.
    #[must_use]
    pub fn congestion_window(&self, id: EndpointId) -> u64 {
        self.endpoints[id.index()].tcp.cwnd()
    }

    /// Returns the counters of an endpoint's TCP.
    #[must_use]
    pub fn tcp_stats(&self, id: EndpointId) -> Stats {
        *self.endpoints[id.index()].tcp.stats()
    }

    /// Delivers a segment to its endpoint.
    #[inline]
    pub(super) fn deliver(&mut self, packet: &Packet) {
        let now = self.now();
        if let Some(ledger) = &mut self.ledger {
            ledger.delivered(now, packet);
        }
        let endpoint = &mut self.endpoints[packet.to.index()];
        if endpoint.generation != packet.generation || !endpoint.open {
            self.stale += 1;
            return;
        }
        match &packet.body {
            Body::Tcp(segment) => endpoint.tcp.receive(now, segment),
            Body::Datagram(bytes) => {
                cold_path();
                endpoint.datagram_bytes += u64::from(*bytes);
                return;
            }
        }
        if endpoint.tcp.delivered() >= endpoint.next_message {
            self.messages_arrived(packet.to);
        }
        let endpoint = &mut self.endpoints[packet.to.index()];
        if endpoint.tell_acknowledged && endpoint.tcp.acknowledged() >= endpoint.written {
            endpoint.tell_acknowledged = false;
            self.notices.push_back((endpoint.owner, Notice::Acknowledged(packet.to)));
        }
        self.pump(packet.to);
    }

    #[inline(never)]
    fn messages_arrived(&mut self, to: EndpointId) {
        self.check_messages(to);
        let endpoint = &mut self.endpoints[to.index()];
        let delivered = endpoint.tcp.delivered();
        while let Some(&(end, tag)) = endpoint.messages.front() {
            if end > delivered {
                endpoint.next_message = end;
                return;
            }
            endpoint.messages.pop_front();
            self.notices.push_back((endpoint.owner, Notice::Message { to, tag }));
        }
        endpoint.next_message = u64::MAX;
    }

    #[inline]
    fn put_on_wire(&mut self, from: EndpointId, body: Body) {
        let endpoint = &mut self.endpoints[from.index()];
        endpoint.sent = endpoint.sent.wrapping_add(1);
        let (to, generation) = (from.peer(), endpoint.generation);
        let packet = Packet { to, generation, number: endpoint.sent, body };
        if let Some(ledger) = &mut self.ledger {
            ledger.sent(&packet);
        }
        if self.virt.is_some() {
            self.transmit_virtual(from, packet);
        } else {
            self.transmit(from, packet);
        }
    }

    /// Handles a timer event of an endpoint.
    pub(super) fn timer(&mut self, id: EndpointId) {
        let now = self.now();
        let endpoint = &mut self.endpoints[id.index()];
        if endpoint.timer_at != now || !endpoint.open {
            return;
        }
        endpoint.timer_at = Nanos::MAX;
        if endpoint.tcp.deadline().is_some_and(|at| at <= now) {
            endpoint.tcp.expire(now);
        }
        self.pump(id);
    }

    /// Sends all pending segments of an endpoint, and schedules its next timer. A deadline that has
    /// moved to a later time keeps its event, which will find that it came too early.
    #[inline]
    fn pump(&mut self, id: EndpointId) {
        let now = self.now();
        while let Some(segment) = self.endpoints[id.index()].tcp.poll(now) {
            self.put_on_wire(id, Body::Tcp(segment));
        }
        let endpoint = &mut self.endpoints[id.index()];
        if let Some(deadline) = endpoint.tcp.deadline()
            && deadline < endpoint.timer_at
        {
            let at = deadline.max(now);
            endpoint.timer_at = at;
            self.events.push(at, Event::Timer(id.0));
        }
    }
}
