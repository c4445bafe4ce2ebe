//! The worker's part in port migration: the steps that [`crate::data::rebalancer`] requests, taken
//! between two turns. `migrate.rs` of `sluice_switch` explains why no frame is lost or reordered.

use std::sync::mpsc::SyncSender;

use sluice_base::PortId;
use sluice_ports::Port;
use sluice_switch::MigratedPort;

use super::Worker;
use crate::data::handoff::Elsewhere;
use crate::sys::clock;
use crate::sys::log::say;

/// A port between two workers.
pub(in crate::data) struct Moving {
    id: PortId,
    name: String,
    port: Box<dyn Port>,
    its: MigratedPort,
}

/// A step of a port migration.
pub(in crate::data) enum MigrationStep {
    /// Do not read the port any more, and send it no more frames.
    Quiesce(PortId, SyncSender<()>),
    /// Answer when all frames from the port have left, and all remote references for it are back.
    Drain(PortId, SyncSender<()>),
    /// Give the port to another worker. `None`: not possible.
    Export(PortId, usize, SyncSender<Option<Box<Moving>>>),
    /// Take the port. It is returned if it cannot be watched here.
    Import(Box<Moving>, SyncSender<Option<Box<Moving>>>),
    /// Take the port back at its old worker. If it cannot be watched here either, its device is
    /// lost.
    Rollback(Box<Moving>, SyncSender<()>),
    /// Serve the port at this worker from now on; frames may be sent to it.
    Resume(PortId, usize, SyncSender<()>),
}

/// State of port migration at a worker.
#[derive(Default)]
pub(super) struct Migration {
    /// The port that is to leave, and the channel to answer when it has.
    leaving: Option<(PortId, SyncSender<()>)>,
}

impl Worker {
    /// Answers for a port that has left.
    #[inline]
    pub(super) fn tell_of_port(&mut self) {
        if self.migration.leaving.is_some() {
            self.answer_drained();
        }
    }

    #[cold]
    fn answer_drained(&mut self) {
        let switch = self.host.switch();
        // Another worker sends by a socket of its own: this driver's pending frames must have gone.
        let underlay = self.spread.as_ref().and_then(|spread| spread.port(&self.ports));
        let is_sent = underlay.is_none_or(|port| port.pending().frames == 0);
        let has_left = |(id, _): &mut (PortId, SyncSender<()>)| {
            let is_here = self.positions.get(id.index()).copied().flatten().is_some();
            if is_here { is_sent && switch.is_clear(*id) } else { switch.remote_refs_to(*id) == 0 }
        };
        if let Some((_, reply)) = self.migration.leaving.take_if(has_left) {
            // The thread that asked may have given up.
            _ = reply.send(());
        }
    }

    /// Executes a step. Returns true if a turn must follow.
    #[cold]
    pub(super) fn migration_step(&mut self, step: MigrationStep) -> bool {
        match step {
            MigrationStep::Quiesce(id, reply) => {
                self.hold(id, true);
                _ = reply.send(());
            }
            MigrationStep::Drain(id, reply) => self.migration.leaving = Some((id, reply)),
            MigrationStep::Export(id, to, reply) => _ = reply.send(self.give(id, to)),
            MigrationStep::Import(moving, reply) => _ = reply.send(self.take(moving)),
            MigrationStep::Rollback(moving, reply) => {
                self.take_back(*moving);
                _ = reply.send(());
            }
            MigrationStep::Resume(id, owner, reply) => {
                self.migration.leaving = None;
                if let Some(link) = self.handoffs.link_to(owner) {
                    let mut ports = self.handoffs.elsewhere.iter_mut();
                    ports.find(|other| other.port == id).into_iter().for_each(|o| o.link = link);
                }
                self.hold(id, false);
                _ = reply.send(());
            }
        }
        true
    }

    /// Holds or releases a port, at any worker.
    fn hold(&mut self, id: PortId, held: bool) {
        if let Some(at) = self.positions.get(id.index()).copied().flatten() {
            self.ports[at].held = held;
            self.ports[at].readable = true;
        }
        let others = self.handoffs.elsewhere.iter_mut();
        others.filter(|other| other.port == id).for_each(|other| other.held = held);
    }

    /// Exports a port. It stays if its device is gone, if frames of it are still under way, or if
    /// the host is being stopped.
    fn give(&mut self, id: PortId, to: usize) -> Option<Box<Moving>> {
        let at = self.positions.get(id.index()).copied().flatten()?;
        let link = self.handoffs.link_to(to)?;
        let (attached, switch) = (&self.ports[at], self.host.switch_mut());
        let is_done = attached.port.pending().frames == 0 && switch.may_export_port(id);
        if attached.gone.is_some() || !is_done || self.ending.until().is_some() {
            return None;
        }
        let its = switch.export_port(id);
        let attached = self.forget(id)?;
        for poll in attached.port.poll_fds() {
            if let Err(error) = self.poller.remove(poll.fd) {
                say!(warn: "port {}: it is watched on: {error}", attached.name);
            }
        }
        self.handoffs.elsewhere.push(Elsewhere { port: id, link, held: true });
        Some(Box::new(Moving { id, name: attached.name, port: attached.port, its }))
    }

    /// Imports a port.
    fn take(&mut self, moving: Box<Moving>) -> Option<Box<Moving>> {
        let id = moving.id;
        if let Err(error) = self.watch_all(&*moving.port, id) {
            say!(warn: "port {}: it cannot be watched here: {error}", moving.name);
            return Some(moving);
        }
        self.arrive(*moving);
        None
    }

    /// Takes back a port that the other worker could not watch. One worker must have it, or the two
    /// would send its frames to each other: if the port cannot be watched here, its frames are
    /// dropped.
    fn take_back(&mut self, moving: Moving) {
        let watched = self.watch_all(&*moving.port, moving.id);
        let at = self.arrive(moving);
        if let Err(error) = watched {
            self.lose(clock::now(), at, error);
        }
    }

    /// Adds a port that is held. Returns its position in the list.
    fn arrive(&mut self, moving: Moving) -> usize {
        let Moving { id, name, port, its } = moving;
        self.handoffs.elsewhere.retain(|other| other.port != id);
        self.host.switch_mut().import_port(id, its);
        self.serve(name, port, id);
        self.hold(id, true);
        self.ports.len() - 1
    }
}
