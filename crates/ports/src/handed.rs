//! A port on its way from one process to another: descriptors, and numbers beside them.
//!
//! Both have names, so that a process of another version finds those that it knows and can report
//! missing ones. The kernel keeps the contents behind a descriptor during the hand-over: datagrams
//! in a socket, frames in a ring.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Name of the number of ports that share it.
pub(crate) const SHARERS: &str = "sharers";

/// State that a port hands over.
#[derive(Debug, Default)]
pub struct PortHandover {
    /// Descriptors.
    pub files: BTreeMap<String, OwnedFd>,
    /// Sizes and positions.
    pub numbers: BTreeMap<String, u64>,
    /// Bytes, such as a table.
    pub bytes: Vec<u8>,
}

impl PortHandover {
    /// Returns true if several workers share the port's resource.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.numbers.get(SHARERS).is_some_and(|sharers| *sharers > 1)
    }

    /// Adds a copy of a descriptor.
    pub(crate) fn file(&mut self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.files.insert(name.to_owned(), fd.try_clone_to_owned()?);
        Ok(())
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.numbers.insert(name.to_owned(), value);
    }

    /// Removes a descriptor and returns it.
    pub(crate) fn take_file(&mut self, name: &str) -> Option<OwnedFd> {
        self.files.remove(name)
    }
}
