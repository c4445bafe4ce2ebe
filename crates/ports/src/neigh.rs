//! The next hop of a tunnel, as the kernel knows it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sluice_base::{Mac, Nanos};

use crate::error::OpenError;

/// A next hop that became known, or is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The destination that was asked for.
    pub destination: Ipv4Addr,
    /// The MAC that frames to it must carry; `None`: there is none now.
    pub mac: Option<Mac>,
}

/// Follows the next hops of a few destinations over one device.
#[derive(Debug)]
pub struct Neighbours {
    fd: OwnedFd,
}

impl Neighbours {
    /// Follows destinations over `device`.
    ///
    /// # Errors
    /// [`OpenError`] if there is no such device or netlink cannot be used.
    pub fn open(_device: &str) -> Result<Self, OpenError> {
        todo!()
    }

    /// Adds a destination. Its next hop comes out of [`Self::poll`].
    pub fn watch(&mut self, _destination: Ipv4Addr) {}

    /// The descriptor that is readable when the kernel has changes.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes in the kernel's changes, asks again for what is due at `now`, and returns what became
    /// different since the last call.
    ///
    /// # Errors
    /// If netlink cannot be used any more.
    pub fn poll(&mut self, _now: Nanos) -> io::Result<Vec<NextHop>> {
        todo!()
    }

    /// When [`Self::poll`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        Nanos::MAX
    }
}
