//! The worker's part in moving a port to another worker: what [`crate::data::homes`] has it do
//! between two turns, and how busy its ports are. Why nothing is lost or overtaken stands in
//! `sluice_switch`'s `home.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use sluice_base::PortId;
use sluice_ports::Port;
use sluice_switch::Belongings;

use super::Worker;
use crate::clock;
use crate::data::crossing::Elsewhere;
use crate::log::say;

/// A port between two workers.
pub(in crate::data) struct Moving {
    id: PortId,
    name: String,
    port: Box<dyn Port>,
    its: Belongings,
}

/// A step of moving a port.
pub(in crate::data) enum HomeStep {
    /// It is not read any more, and nothing more is lent to it.
    Hold(PortId, SyncSender<()>),
    /// Answered when all that came from it has left, and all that was lent to it is back.
    Leave(PortId, SyncSender<()>),
    /// It goes to another worker. `None`: it cannot.
    Give(PortId, usize, SyncSender<Option<Box<Moving>>>),
    /// It comes. Back, if it cannot be watched here.
    Take(Box<Moving>, SyncSender<Option<Box<Moving>>>),
    /// It comes back to where it was. If it cannot be watched here either, its device is lost.
    TakeBack(Box<Moving>, SyncSender<()>),
    /// This worker has it from now on, and it may be lent to.
    Release(PortId, usize, SyncSender<()>),
}

/// What a worker has done, which it writes every turn that moved something, and anybody may read.
#[derive(Debug)]
pub(in crate::data) struct Load {
    busy_ns: AtomicU64,
    /// By number of port: frames that came and went.
    moved: Box<[AtomicU64]>,
}

impl Load {
    /// The time of turns that moved something, in nanoseconds.
    pub(in crate::data) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Frames that came and went at a port.
    pub(in crate::data) fn moved(&self, port: PortId) -> u64 {
        self.moved[port.index()].load(Ordering::Relaxed)
    }
}

/// What a worker knows of ports that move.
#[derive(Default)]
pub(super) struct Homes {
    load: Option<Arc<Load>>,
    /// The one that is to leave, and whom to tell when it has.
    leaving: Option<(PortId, SyncSender<()>)>,
}

impl Homes {
    /// What was counted of a port when it was here before.
    pub(super) fn moved(&self, port: PortId) -> u64 {
        self.load.as_ref().map_or(0, |load| load.moved(port))
    }
}

impl Worker {
    /// Counts what its ports do, of which the host has so many.
    pub(in crate::data) fn load(&mut self, ports: usize) -> Arc<Load> {
        let moved = (0..ports).map(|_| AtomicU64::new(0)).collect();
        let load = Arc::new(Load { busy_ns: AtomicU64::new(0), moved });
        self.homes.load = Some(Arc::clone(&load));
        load
    }

    /// Tells of this turn, and of a port that has left.
    #[inline]
    pub(super) fn tell_of_homes(&mut self) {
        if let Some(load) = &self.homes.load {
            load.busy_ns.store(self.watch.times().busy.0, Ordering::Relaxed);
            for attached in &self.ports {
                load.moved[attached.id.index()].store(attached.moved, Ordering::Relaxed);
            }
        }
        if self.homes.leaving.is_some() {
            self.see_port_off();
        }
    }

    #[cold]
    fn see_port_off(&mut self) {
        let switch = self.host.switch();
        // Another worker sends by a socket of its own: what this one's driver took must have gone.
        let underlay = self.spread.as_ref().and_then(|spread| spread.port(&self.ports));
        let is_sent = underlay.is_none_or(|port| port.pending().frames == 0);
        let has_left = |(id, _): &mut (PortId, SyncSender<()>)| {
            let is_here = self.positions.get(id.index()).copied().flatten().is_some();
            if is_here { is_sent && switch.is_clear(*id) } else { switch.lent_to(*id) == 0 }
        };
        if let Some((_, reply)) = self.homes.leaving.take_if(has_left) {
            // Whoever asked may have given up.
            _ = reply.send(());
        }
    }

    /// Makes a step. Returns whether a turn must follow.
    #[cold]
    pub(super) fn home_step(&mut self, step: HomeStep) -> bool {
        match step {
            HomeStep::Hold(id, reply) => {
                self.hold(id, true);
                _ = reply.send(());
            }
            HomeStep::Leave(id, reply) => self.homes.leaving = Some((id, reply)),
            HomeStep::Give(id, to, reply) => _ = reply.send(self.give(id, to)),
            HomeStep::Take(moving, reply) => _ = reply.send(self.take(moving)),
            HomeStep::TakeBack(moving, reply) => {
                self.take_back(*moving);
                _ = reply.send(());
            }
            HomeStep::Release(id, owner, reply) => {
                self.homes.leaving = None;
                if let Some(link) = self.crossings.link_to(owner) {
                    let mut ports = self.crossings.elsewhere.iter_mut();
                    ports.find(|other| other.port == id).into_iter().for_each(|o| o.link = link);
                }
                self.hold(id, false);
                _ = reply.send(());
            }
        }
        true
    }

    /// Stops or goes on with a port, wherever it is.
    fn hold(&mut self, id: PortId, held: bool) {
        if let Some(at) = self.positions.get(id.index()).copied().flatten() {
            self.ports[at].held = held;
            self.ports[at].readable = true;
        }
        let others = self.crossings.elsewhere.iter_mut();
        others.filter(|other| other.port == id).for_each(|other| other.held = held);
    }

    /// Gives a port away. It stays if its device is gone, if something of it is under way still, or
    /// if the host is being stopped.
    fn give(&mut self, id: PortId, to: usize) -> Option<Box<Moving>> {
        let at = self.positions.get(id.index()).copied().flatten()?;
        let link = self.crossings.link_to(to)?;
        let (attached, switch) = (&self.ports[at], self.host.switch_mut());
        let is_done = attached.port.pending().frames == 0 && switch.may_give_home(id);
        if attached.gone.is_some() || !is_done || self.drain_until.is_some() {
            return None;
        }
        let its = switch.give_home(id);
        let attached = self.forget(id)?;
        for poll in attached.port.poll_fds() {
            if let Err(error) = self.poller.remove(poll.fd) {
                say!(warn: "port {}: it is watched on: {error}", attached.name);
            }
        }
        self.crossings.elsewhere.push(Elsewhere { port: id, link, held: true });
        Some(Box::new(Moving { id, name: attached.name, port: attached.port, its }))
    }

    /// A port comes.
    fn take(&mut self, moving: Box<Moving>) -> Option<Box<Moving>> {
        let id = moving.id;
        if let Err(error) = self.watch_all(&*moving.port, id) {
            say!(warn: "port {}: it cannot be watched here: {error}", moving.name);
            return Some(moving);
        }
        self.arrive(*moving);
        None
    }

    /// A port comes back that the other worker could not watch. Somebody has to have it, or the two
    /// would lend its frames to each other: if it cannot be watched here, what is for it ends.
    fn take_back(&mut self, moving: Moving) {
        let watched = self.watch_all(&*moving.port, moving.id);
        let at = self.arrive(moving);
        if let Err(error) = watched {
            self.lose(clock::now(), at, error);
        }
    }

    /// A port is here from now on, and held. Its position in the list.
    fn arrive(&mut self, moving: Moving) -> usize {
        let Moving { id, name, port, its } = moving;
        self.crossings.elsewhere.retain(|other| other.port != id);
        self.host.switch_mut().take_home(id, its);
        self.serve(name, port, id);
        self.hold(id, true);
        self.ports.len() - 1
    }
}
