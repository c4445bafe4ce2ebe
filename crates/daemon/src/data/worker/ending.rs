//! The end of a worker: what is left of its frames, and its ports.

use sluice_ports::Port;

use super::{Left, Worker};
use crate::log::say;

impl Worker {
    /// Frames that have not left yet.
    pub(super) fn left(&self) -> Left {
        Left {
            resident: self.host.switch().audit().total(|row| row.frames.resident),
            pending: self.ports.iter().map(|attached| pending(&*attached.port)).sum(),
        }
    }

    /// Closes every port, and says what the kernel had against it.
    pub(in crate::data) fn close(&mut self) {
        for attached in &mut self.ports {
            if let Err(error) = attached.port.close() {
                say!(warn: "port {}: while closing: {error}", attached.name);
            }
        }
    }
}

fn pending(port: &dyn Port) -> u64 {
    port.pending().frames + port.aside().frames
}
