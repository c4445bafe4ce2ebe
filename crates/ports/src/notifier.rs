//! Notification eventfd, by which one thread wakes another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

/// A notification eventfd. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(Arc<OwnedFd>);

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    /// Wakes the thread that waits on it.
    pub(crate) fn notify(&self) {
        notify(self.fd());
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds one to the count of an `eventfd`, possibly of another process.
pub(crate) fn notify(fd: BorrowedFd<'_>) {
    // It fails only when 2^64 - 2 kicks wait to be read, and then it is readable anyway.
    let _full = rustix::io::write(fd, &1u64.to_ne_bytes());
}
