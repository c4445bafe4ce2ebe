//! A port on its way from one process to another: descriptors, and numbers beside them.
//!
//! Both are told by name, so that a process of another version finds what it knows and can say what
//! it misses. The kernel keeps what stands behind a descriptor while it changes hands: datagrams in
//! a socket, frames in a ring.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// How many ports share it.
pub(crate) const SHARERS: &str = "sharers";

/// What a port hands over.
#[derive(Debug, Default)]
pub struct Handed {
    /// Descriptors.
    pub files: BTreeMap<String, OwnedFd>,
    /// Sizes and positions.
    pub numbers: BTreeMap<String, u64>,
    /// Bytes, such as a table.
    pub bytes: Vec<u8>,
}

impl Handed {
    /// Whether several workers share what it leads to.
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

    /// Takes a descriptor out.
    pub(crate) fn take_file(&mut self, name: &str) -> Option<OwnedFd> {
        self.files.remove(name)
    }
}
