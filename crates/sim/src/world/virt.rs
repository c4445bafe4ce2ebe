//! Hosts with a virtual switch: the way of its frames onto the network and back.

use std::collections::VecDeque;

use sluice_base::{BitRate, Nanos, PortId};

use super::leaving::{Leaving, Outgoing};
use super::room::Rooms;
use super::{Load, World, WorldError};
use crate::event::Event;
use crate::ids::EndpointId;
use crate::net::{Ecn, Outcome, Overflow, PathId, Shape};
use crate::overlay::{Head, OverlayConfig, Parcel, VirtualHost, make_host};
use crate::packets::{Packet, PacketId};
use crate::topology::Routes;

/// The hosts of a data centre with virtual networks.
#[derive(Debug)]
pub(super) struct Virtual {
    pub(super) hosts: Vec<VirtualHost>,
    /// Per VM: packets that the switch has given it and that its TCP has not got yet. All take the
    /// same time, so that they arrive in this order, for any order of events.
    pub(super) arriving: Vec<VecDeque<PacketId>>,
    /// Packets that a switch has just given its VMs.
    arrived: Vec<(u16, PacketId)>,
    pub(super) vms_per_host: u32,
    /// Time that a host takes to hand a frame to a VM's TCP.
    pub(super) receive_latency: Nanos,
    /// Workloads that wait for a ring to have room.
    pub(super) rooms: Rooms,
}

impl Virtual {
    pub(super) fn new(
        config: &OverlayConfig,
        routes: &Routes,
        hosts: u32,
        link: BitRate,
        receive_latency: Nanos,
        seed: u64,
    ) -> Result<Self, WorldError> {
        let make = |number: u32| {
            let seed = seed ^ u64::from(number);
            let card = routes.link_of(number);
            VirtualHost::new(config, card, || make_host(config, number, hosts, link, seed))
        };
        Ok(Self {
            hosts: (0..hosts).map(make).collect::<Result<_, _>>().map_err(WorldError::Switch)?,
            arriving: vec![VecDeque::new(); (hosts * config.vms_per_host) as usize],
            arrived: Vec::new(),
            vms_per_host: config.vms_per_host,
            receive_latency,
            rooms: Rooms::new((hosts * config.vms_per_host) as usize),
        })
    }
}

impl World {
    /// Sends a segment of a VM's TCP: it is in the VM's ring after the send latency.
    #[inline(never)]
    pub(super) fn transmit_virtual(&mut self, from: EndpointId, packet: Packet) {
        let virt = self.virt.as_mut().expect("the endpoint is in a VM");
        let endpoint = &self.endpoints[from.0 as usize];
        let heads = endpoint.heads.as_ref().expect("the endpoint is in a VM");
        let size = packet.body.frame_size();
        let size = u16::try_from(size).expect("a frame is smaller than 64 KiB");
        let packet = self.packets.depart(&packet);
        let parcel = Parcel { head: heads.inner(), size, is_outer: false, packet };
        let ready = self.events.now().after(self.send_latency);
        let host = endpoint.station / virt.vms_per_host;
        let vm = endpoint.station % virt.vms_per_host;
        let h = &mut virt.hosts[host as usize];
        h.send(vm as usize, endpoint.priority, ready, parcel);
        if ready < h.due {
            self.wake(host, ready);
        }
    }

    /// Schedules work of a host at `at`.
    #[cold]
    fn wake(&mut self, host: u32, at: Nanos) {
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let due = &mut virt.hosts[host as usize].due;
        if at < *due {
            *due = at;
            self.events.push(at, Event::Host(host));
        }
    }

    /// Handles a host's own event.
    #[inline(never)]
    pub(super) fn host_event(&mut self, host: u32) {
        let now = self.events.now();
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        if h.due != now {
            return;
        }
        h.due = Nanos::MAX;
        h.advance(now);
        self.work(host);
        let virt = self.virt.as_ref().expect("there are virtual hosts");
        if let Some(at) = virt.hosts[host as usize].next_ready(now) {
            self.wake(host, at);
        }
    }

    /// Handles a frame or a pause frame that has arrived at a host, or a free card.
    #[inline(never)]
    pub(super) fn at_host(&mut self, outcome: Outcome<Load>) -> Option<Overflow> {
        let now = self.events.now();
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let host = match outcome {
            Outcome::Arrived { host, shape, payload: Load { head, packet } } => {
                let head = head.expect("a host with a virtual switch sends no other frames");
                let parcel = Parcel { head, size: shape.size, is_outer: true, packet };
                let h = &mut virt.hosts[host as usize];
                if !h.receive(now, parcel, &mut self.packets) {
                    let link = h.card.reverse();
                    return Some(Overflow { link, priority: shape.priority, held: 0, limit: 0 });
                }
                self.check_arrival(host, shape);
                host
            }
            Outcome::Paused { host, message } => {
                virt.hosts[host as usize].receive_pause(now, message);
                host
            }
            // A card is asked only if the switch had more for it. Otherwise a free card changes
            // nothing: the frames of a ring were read when they came, unless the switch had no
            // room, and then it has frames.
            Outcome::Free { host } => {
                if !virt.hosts[host as usize].has_out() {
                    return None;
                }
                host
            }
            _ => unreachable!("not for a host"),
        };
        self.work(host);
        None
    }

    /// Does all that a host can do with the frames in its switch and its VMs' rings: deliver to
    /// VMs, read rings, feed the card; and again as far as that opens the rings' windows.
    #[inline(never)]
    fn work(&mut self, host: u32) {
        let now = self.events.now();
        loop {
            self.serve_vms(host);
            if self.read_rings(host) {
                continue;
            }
            self.feed_card(host);
            if !self.read_rings(host) {
                break;
            }
        }
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        h.reclaim(&mut self.packets);
        if let Some(at) = h.deadline(now) {
            self.wake(host, at);
        }
    }

    /// Reads the VMs' rings of a host; true if its switch has read a frame.
    #[inline(always)]
    fn read_rings(&mut self, host: u32) -> bool {
        let now = self.events.now();
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        let any = h.has_waiting() && h.read_rings(now, &mut self.packets);
        if any && !virt.rooms.is_empty() {
            self.tell_rooms(host);
        }
        any
    }

    /// Delivers the frames that the switch has for VMs.
    fn serve_vms(&mut self, host: u32) {
        let now = self.events.now();
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        let mut next = h.busy_vm(PortId(0));
        if next.is_none() {
            return;
        }
        while let Some(port) = next {
            let mut sink = Leaving {
                vm: Some(port.0),
                arrived: &mut virt.arrived,
                out: None,
                endpoints: &mut self.endpoints,
                packets: &self.packets,
            };
            h.transmit(now, port, &mut sink);
            next = h.busy_vm(PortId(port.0 + 1));
        }
        if virt.receive_latency == Nanos::ZERO {
            self.deliver_at_once(host);
        } else {
            self.deliver_later(host);
        }
    }

    /// Delivers packets that have just left the switch to the VMs' TCP, when the receive latency is
    /// over.
    #[inline(never)]
    fn deliver_later(&mut self, host: u32) {
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let at = self.events.now().after(virt.receive_latency);
        let first = host * virt.vms_per_host;
        for (vm, packet) in virt.arrived.drain(..) {
            self.packets.share(packet);
            let station = first + u32::from(vm);
            virt.arriving[station as usize].push_back(packet);
            self.events.push(at, Event::Packet(station));
        }
    }

    /// Delivers packets that have just left the switch, which still holds the handles, to the VMs'
    /// TCP. Answers that are in a ring at once are read in the same turn, and need no event for
    /// that.
    fn deliver_at_once(&mut self, host: u32) {
        let now = self.events.now();
        let reads = self.send_latency == Nanos::ZERO;
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let due = virt.hosts[host as usize].due;
        if reads {
            virt.hosts[host as usize].due = now;
        }
        let mut at = 0;
        while let Some(virt) = &mut self.virt
            && let Some(&(_, id)) = virt.arrived.get(at)
        {
            let packet = self.packets.get(id);
            self.deliver(&packet);
            at += 1;
        }
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        virt.arrived.clear();
        if reads {
            virt.hosts[host as usize].due = due;
        }
    }

    /// Gives the network card its next frame, if it is free.
    fn feed_card(&mut self, host: u32) {
        let now = self.events.now();
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        let card = h.card;
        if !h.has_out() {
            return;
        }
        if !self.net.is_idle(card) {
            self.net.want(card);
            return;
        }
        let mut sink = Leaving {
            vm: None,
            arrived: &mut virt.arrived,
            out: None,
            endpoints: &mut self.endpoints,
            packets: &self.packets,
        };
        h.transmit(now, h.underlay(), &mut sink);
        let out = sink.out;
        if out.is_some() && h.has_out() {
            self.net.want(card);
        }
        match out {
            None => {}
            Some(Outgoing::Pause(message)) => self.net.send_pause(&mut self.events, card, message),
            Some(Outgoing::Frame { from, head, size, packet, priority }) => {
                self.packets.share(packet);
                let shape = Shape {
                    size: u16::try_from(size).expect("a frame is smaller than 64 KiB"),
                    priority,
                    ecn: Ecn::NotCapable,
                };
                let path = match self.endpoints[from.0 as usize].path {
                    Some(path) => path,
                    None => self.open_path_of(from, &head),
                };
                let load = Load { head: Some(head), packet };
                self.net.send(&mut self.events, path, now, shape, load);
            }
        }
    }

    /// Opens the path of an endpoint whose first frame has got its outer headers.
    #[cold]
    fn open_path_of(&mut self, from: EndpointId, head: &Head) -> PathId {
        let virt = self.virt.as_ref().expect("there are virtual hosts");
        let host_of = |end: EndpointId| self.endpoints[end.0 as usize].station / virt.vms_per_host;
        let path = self
            .routes
            .path(host_of(from), host_of(from.peer()), head.flow())
            .expect("checked when it was connected");
        let path = self.net.open_path(path);
        self.endpoints[from.0 as usize].path = Some(path);
        path
    }

    /// Gives back every handle that has ended, so that the remaining packets are the ones that
    /// still wait somewhere.
    pub(crate) fn settle(&mut self) {
        let Some(virt) = &mut self.virt else { return };
        for host in &mut virt.hosts {
            host.reclaim(&mut self.packets);
        }
    }

    /// Delivers a packet to a VM's TCP.
    pub(super) fn deliver_packet(&mut self, station: u32) {
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let id = virt.arriving[station as usize].pop_front().expect("each has its event");
        let packet = self.packets.get(id);
        self.packets.give_back(id);
        self.deliver(&packet);
    }

    /// Notes that a physical switch had no room for a frame.
    pub(super) fn dropped_on_wire(&mut self, load: &Load) {
        let packet = self.packets.get(load.packet);
        if load.head.is_some() {
            self.packets.give_back(load.packet);
        } else {
            self.packets.remove(load.packet);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.dropped(&packet);
        }
    }
}
