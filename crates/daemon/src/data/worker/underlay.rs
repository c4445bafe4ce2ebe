//! The device of an underlay, which may change, go away and come back.
//!
//! A port without its device stays with the switch: its next hops are gone with the device's
//! routes, and frames for them are dropped as at any tunnel that is down.

use std::io;

use std::sync::mpsc::SyncSender;

use sluice_base::{Mac, Nanos, PortId};
use sluice_ports::{Amount, FrameBuf, Port, RoutedUnderlay, TxBackoff};
use sluice_switch::{Counter, Switch};

use super::Worker;
use crate::sys::log::say;

/// Events of the device of an underlay.
pub(in crate::data) enum Device {
    /// The device has this address and this MTU now.
    Is(PortId, Mac, u16),
    /// The device has a carrier, or none.
    Carrier(PortId, bool),
    /// The device is gone, and why.
    Gone(PortId, String),
    /// Question: does this worker have the port?
    Has(PortId, SyncSender<bool>),
    /// The device is back, and its port opened anew.
    Back(PortId, Box<dyn Port>),
}

/// Reads the device's refusals: counts frames that were refused or that a socket did not take, and
/// takes a path MTU from a frame that was too large.
pub(super) fn learn(now: Nanos, switch: &mut Switch<FrameBuf>, id: PortId, port: &mut dyn Port) {
    while let Some((priority, Amount { frames, bytes })) = port.take_refused() {
        switch.refused(id, priority, Counter { frames, bytes });
    }
    if let Some(sockets) = port.receiving_sockets() {
        while let Some((priority, Amount { frames, bytes })) = sockets.take_stuck() {
            switch.socket_stuck(id, priority, Counter { frames, bytes });
        }
    }
    if let Some((remote, mtu)) = port.routed_underlay().and_then(RoutedUnderlay::path_mtu) {
        // The tunnel of that endpoint may have just gone.
        _ = switch.learn_path_mtu(now, remote, mtu);
    }
}

impl Worker {
    /// Handles an event of a device. Returns true if a turn must follow.
    #[cold]
    pub(super) fn hear_of_device(&mut self, now: Nanos, device: Device) -> bool {
        match device {
            Device::Is(port, mac, mtu) => {
                // Another worker's switch has no such port.
                _ = self.host.switch_mut().set_underlay(port, mac, mtu);
                if let Some(index) = self.position(port) {
                    self.take_from_device(index);
                }
            }
            Device::Carrier(port, has_carrier) => {
                if let Some(index) = self.position(port) {
                    self.ports[index].has_carrier = has_carrier;
                    self.ports[index].tell();
                }
                return true;
            }
            Device::Gone(port, why) => {
                if let Some(index) = self.position(port) {
                    self.lose(now, index, io::Error::other(why));
                }
            }
            // The thread that asked may be gone.
            Device::Has(port, reply) => _ = reply.send(self.position(port).is_some()),
            Device::Back(port, opened) => {
                self.underlay_back(port, opened);
                return true;
            }
        }
        false
    }

    /// Binds a socket anew that was bound to a device of the same name.
    fn take_from_device(&mut self, index: usize) {
        let attached = &mut self.ports[index];
        let Some(underlay) = attached.port.routed_underlay() else { return };
        if let Err(error) = underlay.rebind_device() {
            say!("port {}: it cannot take datagrams from its device: {error}", attached.name);
        }
    }

    fn position(&self, id: PortId) -> Option<usize> {
        self.positions.get(id.index()).copied().flatten()
    }

    /// Closes a port whose device is gone, until the device is back.
    #[cold]
    pub(super) fn wait_for_device(&mut self, index: usize, error: io::Error) {
        let attached = &mut self.ports[index];
        let (name, staged) = (&attached.name, attached.port.pending().frames);
        say!(warn: "port {name}: {error}; it waits for its device, {staged} frames ended with it");
        _ = attached.port.close();
        attached.readable = false;
        attached.gone = Some(error);
    }

    /// Serves the port with its new device.
    #[cold]
    fn underlay_back(&mut self, id: PortId, port: Box<dyn Port>) {
        let Some(index) = self.position(id) else { return };
        // The old descriptors leave the poller when they are closed.
        _ = self.ports[index].port.close();
        if let Err(error) = self.watch_all(&*port, id) {
            say!(warn: "port {}: its device cannot be watched: {error}", self.ports[index].name);
            return;
        }
        let attached = &mut self.ports[index];
        attached.port = port;
        (attached.readable, attached.has_events) = (true, true);
        (attached.room, attached.watched) = (TxBackoff::default(), false);
        attached.gone = None;
        say!("port {}: its device is back", attached.name);
    }
}
