//! Hosts with a virtual switch: how its frames get onto the network and back.

use std::collections::VecDeque;
use std::rc::Rc;

use sluice_base::{BitRate, Nanos, Priority};

use super::{EndpointId, Load, Packet, World, WorldError};
use crate::event::Event;
use crate::net::{Ecn, Outcome, Overflow, Shape};
use crate::overlay::{
    Head, OuterHeads, Outgoing, OverlayConfig, PacketId, Packets, Parcel, VirtualHost, make_host,
};
use crate::topology::{LinkId, Routes};

/// The hosts of a data centre with virtual networks.
#[derive(Debug)]
pub(super) struct Virtual {
    pub(super) hosts: Vec<VirtualHost>,
    pub(super) packets: Packets,
    /// Per VM: packets that the switch has given it and that its TCP has not got yet. All take the
    /// same time, so that they get there in this order, whichever event comes first.
    pub(super) arriving: Vec<VecDeque<PacketId>>,
    pub(super) vms_per_host: u32,
    /// How long a host takes to hand a frame to a VM's TCP.
    pub(super) receive_latency: Nanos,
}

/// What an endpoint in a VM keeps of its frames' headers.
#[derive(Debug)]
pub(super) struct Heads {
    inner: Rc<Head>,
    outer: OuterHeads,
}

impl Heads {
    pub(super) fn new(inner: Head) -> Self {
        Self { inner: Rc::new(inner), outer: OuterHeads::default() }
    }
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
            let host = make_host(config, number, hosts, link, seed ^ u64::from(number));
            let card = routes.link_of(number);
            host.map(|host| VirtualHost::new(host, config.vms_per_host as usize, card))
        };
        Ok(Self {
            hosts: (0..hosts).map(make).collect::<Result<_, _>>().map_err(WorldError::Switch)?,
            packets: Packets::default(),
            arriving: vec![VecDeque::new(); (hosts * config.vms_per_host) as usize],
            vms_per_host: config.vms_per_host,
            receive_latency,
        })
    }
}

impl World {
    /// A segment of a VM's TCP: it is in the VM's ring after the send latency.
    pub(super) fn transmit_virtual(&mut self, from: EndpointId, packet: Packet) {
        let virt = self.virt.as_mut().expect("the endpoint is in a VM");
        let endpoint = &self.endpoints[from.0 as usize];
        let heads = endpoint.heads.as_ref().expect("the endpoint is in a VM");
        let size = packet.body.frame_size();
        let packet = virt.packets.take(packet);
        let parcel = Parcel { head: Rc::clone(&heads.inner), size, packet };
        let ready = self.events.now().after(self.send_latency);
        let host = endpoint.station / virt.vms_per_host;
        let vm = endpoint.station % virt.vms_per_host;
        virt.hosts[host as usize].send(vm as usize, ready, parcel);
        self.wake(host, ready);
    }

    /// Sees to it that a host works at `at`.
    fn wake(&mut self, host: u32, at: Nanos) {
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let due = &mut virt.hosts[host as usize].due;
        if at < *due {
            *due = at;
            self.events.push(at, Event::Host(host));
        }
    }

    /// A host's own event has come.
    pub(super) fn host_event(&mut self, host: u32) {
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        if h.due != self.events.now() {
            return;
        }
        h.due = Nanos::MAX;
        h.advance(self.events.now());
        self.work(host);
    }

    /// A frame or a pause frame has arrived at a host, or its card is free.
    pub(super) fn at_host(&mut self, outcome: Outcome<Load>) -> Option<Overflow> {
        let now = self.events.now();
        match outcome {
            Outcome::Arrived { host, shape, payload: Load::Outer { head, packet } } => {
                let parcel = Parcel { head, size: u32::from(shape.size), packet };
                self.check_arrival(host, shape);
                let virt = self.virt.as_mut().expect("there are virtual hosts");
                let h = &mut virt.hosts[host as usize];
                if !h.receive(now, parcel, &mut virt.packets) {
                    let link = h.card.reverse();
                    return Some(Overflow { link, priority: shape.priority, held: 0, limit: 0 });
                }
                self.work(host);
            }
            Outcome::Paused { host, message } => {
                let virt = self.virt.as_mut().expect("there are virtual hosts");
                virt.hosts[host as usize].receive_pause(now, message);
                self.work(host);
            }
            Outcome::Free { host } => self.work(host),
            _ => unreachable!("not for a host"),
        }
        None
    }

    /// All that a host can do now: read rings, deliver to VMs, feed the card; until nothing more
    /// opens.
    fn work(&mut self, host: u32) {
        let now = self.events.now();
        loop {
            let virt = self.virt.as_mut().expect("there are virtual hosts");
            let h = &mut virt.hosts[host as usize];
            h.read_rings(now);
            let at = now.after(virt.receive_latency);
            let first = host * virt.vms_per_host;
            let (events, packets) = (&mut self.events, &mut virt.packets);
            let arriving = &mut virt.arriving;
            h.serve_vms(now, |vm, packet: PacketId| {
                packets.share(packet);
                let station = first + vm;
                arriving[station as usize].push_back(packet);
                events.push(at, Event::Packet(station));
            });
            self.feed_card(host);
            let virt = self.virt.as_mut().expect("there are virtual hosts");
            let h = &mut virt.hosts[host as usize];
            // What ended may have opened a window for what waits in a ring.
            if !h.reclaim(&mut virt.packets) || !h.has_ready(now) {
                break;
            }
        }
        let virt = self.virt.as_ref().expect("there are virtual hosts");
        if let Some(at) = virt.hosts[host as usize].next_time(now) {
            self.wake(host, at);
        }
    }

    /// Gives the network card its next frame, if it is free.
    fn feed_card(&mut self, host: u32) {
        let now = self.events.now();
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let h = &mut virt.hosts[host as usize];
        let card = h.card;
        if !self.net.is_idle(card) {
            return;
        }
        let (endpoints, packets) = (&mut self.endpoints, &virt.packets);
        let out = h.next_out(now, |frame, parcel| {
            let from = packets.get(parcel.packet).to.peer();
            let heads = endpoints[from.0 as usize].heads.as_mut().expect("in a VM");
            heads.outer.get(frame.header, &parcel.head.shown(parcel.size)[frame.strip.into()..])
        });
        match out {
            None => {}
            Some(Outgoing::Pause(message)) => self.net.send_pause(&mut self.events, card, message),
            Some(Outgoing::Frame { head, size, packet, priority }) => {
                virt.packets.share(packet);
                self.send_outer(card, head, size, packet, priority);
            }
        }
    }

    fn send_outer(
        &mut self,
        card: LinkId,
        head: Rc<Head>,
        size: u32,
        packet: PacketId,
        priority: Priority,
    ) {
        let virt = self.virt.as_ref().expect("there are virtual hosts");
        let from = virt.packets.get(packet).to.peer();
        let vms = virt.vms_per_host;
        let (station, to) = (
            self.endpoints[from.0 as usize].station,
            self.endpoints[from.peer().0 as usize].station,
        );
        let path = match self.endpoints[from.0 as usize].path {
            Some(path) => path,
            None => {
                let path = self
                    .routes
                    .path(station / vms, to / vms, head.flow())
                    .expect("checked when it was connected");
                let path = self.net.open_path(path);
                self.endpoints[from.0 as usize].path = Some(path);
                path
            }
        };
        debug_assert_eq!(self.routes.link_of(station / vms), card);
        let shape = Shape {
            size: u16::try_from(size).expect("a frame is smaller than 64 KiB"),
            priority,
            ecn: Ecn::NotCapable,
        };
        let now = self.events.now();
        self.net.send(&mut self.events, path, now, shape, Load::Outer { head, packet });
    }

    /// A VM's TCP gets a packet.
    pub(super) fn deliver_packet(&mut self, station: u32) {
        let virt = self.virt.as_mut().expect("there are virtual hosts");
        let id = virt.arriving[station as usize].pop_front().expect("each has its event");
        let packet = *virt.packets.get(id);
        virt.packets.give_back(id);
        self.deliver(&packet);
    }

    /// A physical switch had no room for a frame.
    pub(super) fn dropped_on_wire(&mut self, load: &Load) {
        let packet = match load {
            Load::Plain(packet) => *packet,
            Load::Outer { packet, .. } => {
                let virt = self.virt.as_mut().expect("there are virtual hosts");
                let gone = *virt.packets.get(*packet);
                virt.packets.give_back(*packet);
                gone
            }
        };
        if let Some(ledger) = &mut self.ledger {
            ledger.dropped(&packet);
        }
    }
}
