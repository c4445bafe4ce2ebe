//! The parts of the port that only some kinds have: frames set aside, the hand-over, the kernel's
//! routes.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::{SOCKET, UdpPort};
use crate::handed::{PortHandover, SHARERS};
use crate::port::{Handover, HeldBack, ReadAhead, RoutedUnderlay};
use crate::udp::rings::path_mtu;

impl ReadAhead for UdpPort {
    fn aside(&self) -> HeldBack {
        // Of several sockets, none has datagrams in its inbox between calls.
        self.buckets.as_ref().map_or(self.inbox.left(), |buckets| buckets.aside())
    }

    fn stop_reading(&mut self) {
        self.stopped = true;
        if let Some(buckets) = &mut self.buckets {
            buckets.release_all();
        }
    }

    fn resume_reading(&mut self) {
        self.stopped = false;
    }
}

impl Handover for UdpPort {
    /// For a shared socket the thread that moves buckets fills `bytes` with its table.
    fn hand_over(&mut self) -> io::Result<Option<PortHandover>> {
        let Some(open) = &self.open else { return Ok(None) };
        let mut handed = PortHandover::default();
        handed.file(SOCKET, open.receiver.fd())?;
        handed.number(SHARERS, self.config.sharers.max(1) as u64);
        Ok(Some(handed))
    }
}

impl RoutedUnderlay for UdpPort {
    fn path_mtu(&mut self) -> Option<(Ipv4Addr, u16)> {
        let remote = self.too_large.take()?;
        let to = SocketAddrV4::new(remote, self.config.port);
        Some((remote, path_mtu(self.config.local, to).ok()?))
    }

    fn rebind_device(&mut self) -> io::Result<()> {
        match (&self.open, &self.config.device) {
            (Some(open), Some(device)) => open.receiver.take_from_anew(device),
            _ => Ok(()),
        }
    }
}
