//! Ports that are added to the worker, and deleted.

use std::io;

use sluice_base::{Batch, InputId, Nanos, PortId};
use sluice_ports::{FrameBuf, Pool, Port, TxBackoff};
use sluice_switch::{AttachError, PortState, Switch};

use super::{Attached, BATCH, TAP_BATCH, Worker};
use crate::data::ports::{AddResult, PendingPort, no_place};
use crate::sys::log::say;

impl Worker {
    /// Watches a port that the switch knows by `id`, and serves it from now on.
    pub(super) fn adopt(
        &mut self,
        name: String,
        port: Box<dyn Port>,
        id: PortId,
    ) -> io::Result<()> {
        self.watch_all(&*port, id)?;
        self.serve(name, port, id);
        Ok(())
    }

    /// Watches the descriptors of a port, all or none.
    pub(super) fn watch_all(&self, port: &dyn Port, id: PortId) -> io::Result<()> {
        let fds = port.poll_fds();
        for (at, poll) in fds.iter().enumerate() {
            if let Err(error) = self.poller.add(id.index(), poll.fd, poll.read) {
                fds[..at].iter().for_each(|poll| _ = self.poller.remove(poll.fd));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops watching the descriptors of a port. Another process may have copies of them, so they
    /// stay open.
    fn unwatch(&self, port: &dyn Port) {
        port.poll_fds().iter().for_each(|poll| _ = self.poller.remove(poll.fd));
    }

    /// Serves a port that is watched.
    pub(super) fn serve(&mut self, name: String, mut port: Box<dyn Port>, id: PortId) {
        let input = self.host.switch().input(id, 0);
        let tells_apart = port.classify_by(&self.host.switch().classifier(input));
        port.hold_for_sockets(self.host.switch().holds_of(id));
        let batch = if port.kind() == "tap" { TAP_BATCH } else { BATCH };
        self.positions.resize(self.positions.len().max(id.index() + 1), None);
        self.positions[id.index()] = Some(self.ports.len());
        let (is_memory, queues) = (port.shared_rings().is_some(), port.queues());
        self.ports.push(Attached {
            name,
            port,
            id,
            input,
            queues,
            batch,
            is_memory,
            readable: true,
            has_events: true,
            room: TxBackoff::default(),
            watched: false,
            gone: None,
            tells_apart,
            has_carrier: true,
            held: false,
            moved: self.moved_before(id),
        });
    }

    /// Adds a port.
    pub(super) fn add(&mut self, now: Nanos, coming: Box<PendingPort>) -> AddResult {
        let switch = self.host.switch_mut();
        let id = match switch.attach(now, &coming.config) {
            Ok(id) => id,
            Err(AttachError::Busy) => return Err((Some(coming), no_place(&AttachError::Busy))),
            Err(error) => return Err((None, no_place(&error))),
        };
        // The new port may have taken the place, and number, of one whose device went away.
        self.forget(id);
        let PendingPort { name, port, bound, .. } = *coming;
        if let Err(error) = self.adopt(name, port, id) {
            self.detach(now, id);
            return Err((None, format!("cannot watch its device: {error}")));
        }
        if let Some(bound) = bound {
            let switch = self.host.switch_mut();
            let mut allowed = bound.allowed().iter();
            let done = switch
                .bind(id, bound.mac, bound.senders())
                .and_then(|()| allowed.try_for_each(|&prefix| switch.allow(id, prefix)));
            if let Err(error) = done {
                self.delete(now, id);
                return Err((None, format!("it cannot be bound: {error:?}")));
            }
        }
        Ok(id)
    }

    /// Deletes a port, with its device. Returns the number of frames that ended with it.
    pub(super) fn delete(&mut self, now: Nanos, id: PortId) -> u64 {
        let Some(mut attached) = self.forget(id) else { return 0 };
        let dropped = self.detach(now, id);
        // The port's frames lie in memory that goes away with it.
        let (switch, pool) = (self.host.switch_mut(), &mut self.pool);
        for input in attached.inputs() {
            hand_back(switch, input, &mut attached.port, pool, &mut self.batch);
        }
        self.unwatch(&*attached.port);
        if let Err(error) = attached.port.close() {
            say!(warn: "port {}: while closing: {error}", attached.name);
        }
        dropped
    }

    /// Notes that the device of a port went away: frames for it and from it are dropped under
    /// `stopped`.
    #[cold]
    pub(super) fn lose(&mut self, now: Nanos, index: usize, error: io::Error) {
        let attached = &mut self.ports[index];
        if attached.gone.is_some() {
            return;
        }
        if self.host.switch().is_underlay(attached.id) && attached.port.kind() == "l2" {
            return self.wait_for_device(index, error);
        }
        let detached = self.host.switch_mut().detach(now, attached.id);
        let (name, frames) = (&attached.name, detached.dropped);
        say!(error: "port {name}: {error}; it is closed, {frames} frames ended with it");
        // Another process may have a copy of the descriptors, so they stay open.
        attached.port.poll_fds().iter().for_each(|poll| _ = self.poller.remove(poll.fd));
        _ = attached.port.close();
        attached.readable = false;
        attached.gone = Some(error);
    }

    pub(super) fn is_open(&self, id: PortId) -> bool {
        let position = self.positions.get(id.index()).copied().flatten();
        position.is_some_and(|position| self.ports[position].gone.is_none())
    }

    /// Takes a port out of the list. Later events of the poller for it are ignored.
    pub(super) fn forget(&mut self, id: PortId) -> Option<Attached> {
        let position = self.positions.get_mut(id.index())?.take()?;
        let attached = self.ports.swap_remove(position);
        if let Some(moved) = self.ports.get(position) {
            self.positions[moved.id.index()] = Some(position);
            if let Some(spread) = &mut self.spread {
                spread.follow(self.ports.len(), position);
            }
        }
        self.first = 0;
        Some(attached)
    }

    fn detach(&mut self, now: Nanos, id: PortId) -> u64 {
        let switch = self.host.switch_mut();
        let is_attached = switch.port_state(id) == PortState::Attached;
        if is_attached { switch.detach(now, id).dropped.into() } else { 0 }
    }
}

/// Returns the handles of freed frames to a port.
pub(super) fn hand_back(
    switch: &mut Switch<FrameBuf>,
    input: InputId,
    port: &mut Box<dyn Port>,
    pool: &mut Pool,
    batch: &mut Batch<FrameBuf>,
) {
    while switch.has_ended(input) {
        switch.reclaim(input, batch);
        port.give_back(batch, pool);
    }
}
