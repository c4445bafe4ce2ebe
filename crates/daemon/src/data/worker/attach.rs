//! Ports that are added to the worker, and deleted.

use std::io;

use sluice_base::{Batch, InputId, Nanos, PortId};
use sluice_ports::{FrameBuf, Pool, Port, PortRequest, Read, TxBackoff};
use sluice_switch::{AttachError, Command, PortState, PortValues, Switch, Window};

use super::{Attached, BATCH, TAP_BATCH, Worker};
use crate::config::BoundTo;
use crate::data::ports::{AddResult, PendingPort, no_place};
use crate::sys::log::say;

impl Attached {
    /// Reads from one of its queues.
    pub(super) fn read(
        &mut self,
        queue: u8,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        if queue == 0 {
            return self.port.read(window, limit, pool, batch);
        }
        let rings = self.port.shared_rings().expect("a port with several queues has rings");
        rings.read_from(queue, window, limit, pool, batch)
    }
}

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
        let switch = self.host.switch();
        let flow_control = port.flow_control();
        let tells_apart = flow_control.is_some();
        if let Some(flow_control) = flow_control {
            flow_control.classify_by(&switch.classifier(input));
        }
        if let Some(sockets) = port.receiving_sockets() {
            sockets.hold(switch.holds_of(id));
        }
        let batch = if port.kind() == "tap" { TAP_BATCH } else { BATCH };
        self.positions.resize(self.positions.len().max(id.index() + 1), None);
        self.positions[id.index()] = Some(self.ports.len());
        let rings = port.shared_rings();
        let (is_memory, queues) = (rings.is_some(), rings.map_or(1, |rings| rings.queues()));
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

    /// Gives the machine of a port other addresses. Frames that wait have passed.
    pub(super) fn rebind(
        &mut self,
        now: Nanos,
        id: PortId,
        bound: &BoundTo,
        values: &PortValues,
    ) -> Result<(), String> {
        let switch = self.host.switch_mut();
        let unbind = Command::Unbind { port: id, mac: bound.mac, ip: None };
        switch.command(now, unbind).map_err(|error| format!("it cannot be unbound: {error:?}"))?;
        switch
            .bind(id, bound.mac, bound.senders())
            .map_err(|error| format!("it cannot be bound: {error:?}"))?;
        switch.set_port(id, values).map_err(|error| format!("it cannot be changed: {error:?}"))
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

    /// Handles the events of a port. If memory goes away in which frames lie, they move into the
    /// pool, and the port gets all its handles.
    #[cold]
    pub(super) fn handle_events(&mut self, index: usize) {
        self.ports[index].has_events = false;
        loop {
            let attached = &mut self.ports[index];
            let Some(rings) = attached.port.shared_rings() else { return };
            let PortRequest::Handles(queue) = rings.handle_events() else { return };
            let (switch, pool) = (self.host.switch_mut(), &mut self.pool);
            let input = InputId(attached.input.0 + u16::from(queue));
            switch.migrate_buffers(input, |buf| rings.copy_to_pool(buf, pool));
            if !self.revoke(input) {
                return;
            }
            let attached = &mut self.ports[index];
            let (switch, pool) = (self.host.switch_mut(), &mut self.pool);
            hand_back(switch, input, &mut attached.port, pool, &mut self.batch);
        }
    }

    fn detach(&mut self, now: Nanos, id: PortId) -> u64 {
        let switch = self.host.switch_mut();
        let is_attached = switch.port_state(id) == PortState::Attached;
        if is_attached { switch.detach(now, id).dropped.into() } else { 0 }
    }
}

/// Copies frames of an input to the shared buffer, if the port that read them must get their
/// handles back.
pub(super) fn copy_to_shared(
    switch: &mut Switch<FrameBuf>,
    input: InputId,
    port: &mut Box<dyn Port>,
    pool: &mut Pool,
) {
    let mut rings = port.shared_rings();
    switch.copy_to_shared(input, |buf| match &mut rings {
        Some(rings) => rings.copy_to_pool(buf, pool),
        // The frame lies in the pool already.
        None => Ok(buf),
    });
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
