//! The device of an underlay, which may change, go away and come back.
//!
//! A port without its device stays with the switch: its next hops are gone with the device's
//! routes, and what waits for them ends as at any tunnel that is down.

use std::io;

use sluice_base::{Mac, Nanos, PortId};
use sluice_ports::Port;
use sluice_switch::Command;

use super::Worker;
use crate::log::say;

impl Worker {
    fn position(&self, id: PortId) -> Option<usize> {
        self.positions.get(id.index()).copied().flatten()
    }

    /// Its address or MTU is another.
    pub(super) fn underlay_changed(&mut self, now: Nanos, port: PortId, mac: Mac, mtu: u16) {
        // Another worker's switch has no such port.
        _ = self.host.switch_mut().command(now, Command::Underlay { port, mac, mtu });
    }

    /// It is gone.
    pub(super) fn underlay_gone(&mut self, now: Nanos, port: PortId, why: String) {
        if let Some(index) = self.position(port) {
            self.lose(now, index, io::Error::other(why));
        }
    }

    /// Closes a port whose device is gone, until that is back.
    #[cold]
    pub(super) fn wait_for_device(&mut self, index: usize, error: io::Error) {
        let attached = &mut self.ports[index];
        let (name, staged) = (&attached.name, attached.port.pending().frames);
        say!("port {name}: {error}; it waits for its device, {staged} frames ended with it");
        _ = attached.port.close();
        attached.readable = false;
        attached.blocked = Some(Nanos::MAX);
        attached.gone = Some(error);
    }

    /// It is back.
    #[cold]
    pub(super) fn underlay_back(&mut self, id: PortId, port: Box<dyn Port>) {
        let Some(index) = self.position(id) else { return };
        // Its descriptors leave the poller with it.
        _ = self.ports[index].port.close();
        if let Err(error) = self.watch_all(&*port, id) {
            say!("port {}: its device cannot be watched: {error}", self.ports[index].name);
            return;
        }
        let attached = &mut self.ports[index];
        attached.port = port;
        (attached.readable, attached.told) = (true, true);
        (attached.blocked, attached.watched) = (None, false);
        attached.gone = None;
        say!("port {}: its device is back", attached.name);
    }
}
