//! Counters behind which a loss on the port's way could hide.
//!
//! Those of the container's end are read inside its namespace, by name, each time: a socket that
//! stays there would keep the namespace, and so the container's card, after the container is gone.

use std::io;

use super::pair::Place;
use super::rings::Xsk;
use crate::device::{DeviceCounters, DeviceStart};
use crate::error::OpenError;
use crate::port::{Counters, DeviceState, KernelSide, UNREADABLE};
use crate::sockets::SocketCounters;

/// Counters of the container's end, since this was made.
#[derive(Debug)]
pub(super) struct ContainerCounters {
    place: Place,
    index: u32,
    start: Option<(DeviceStart, [u64; 4])>,
}

impl ContainerCounters {
    /// Begins to count for a device of a namespace, or for none if that has lost its path.
    pub(super) fn new(place: Place, index: u32) -> Self {
        let work = || {
            let device = DeviceCounters::new(index).map_err(Self::failed(index))?.start();
            let sockets = SocketCounters::new().map_err(Self::failed(index))?.start();
            Ok((device, sockets))
        };
        let start = place.within(work).ok();
        Self { place, index, start }
    }

    fn failed(index: u32) -> impl FnOnce(io::Error) -> OpenError {
        OpenError::device(&index.to_string(), "read its counters")
    }

    /// Adds the rows.
    pub(super) fn read(&self, rows: &mut Counters) -> io::Result<()> {
        let failed = || Self::failed(self.index);
        let Some((device, sockets)) = &self.start else {
            return Err(io::Error::other("the container's namespace has lost its path"));
        };
        self.place
            .within(|| {
                let device = DeviceCounters::since(self.index, device.clone());
                device.and_then(|device| device.read(rows)).map_err(failed())?;
                let sockets = SocketCounters::since(*sockets);
                sockets.and_then(|sockets| sockets.read(rows)).map_err(failed())
            })
            .map_err(io::Error::other)
    }
}

/// The kernel's part of a port's state.
#[derive(Debug)]
pub(super) struct KernelCounters {
    pub(super) container: ContainerCounters,
    /// Counters of the switch's end, which tells of the carrier.
    pub(super) switch_end: DeviceCounters,
}

impl KernelCounters {
    /// Returns true if the switch's end has a carrier; `None` if it is gone.
    pub(super) fn carrier(&self) -> io::Result<Option<bool>> {
        Ok(self.switch_end.link()?.map(|link| link.carrier))
    }
}

impl KernelSide for KernelCounters {
    fn read(&self, rows: &mut Counters) -> io::Result<()> {
        self.container.read(rows)
    }

    fn device(&self) -> DeviceState {
        let carrier = self.carrier().ok();
        DeviceState { up: carrier.map(|carrier| carrier.unwrap_or(false)), problem: None }
    }
}

/// Returns the rows of an AF_XDP socket.
pub(super) fn of_xsk(xsk: &Xsk) -> Counters {
    let Ok(statistics) = xsk.statistics() else { return [UNREADABLE].into() };
    [
        ("xdp.rx_dropped", statistics.rx_dropped),
        ("xdp.rx_ring_full", statistics.rx_ring_full),
        ("xdp.fill_ring_empty", statistics.rx_fill_ring_empty_descs),
    ]
    .into()
}
