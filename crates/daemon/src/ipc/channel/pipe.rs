//! One end of the connection between data and control, which never waits.
//!
//! Neither buffer grows without bound: a writer that finds the pipe full writes nothing more, and
//! every complete record that was read is taken before more is read.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::{SIZE_SIZE, Unreadable};

/// Bytes that may wait to be sent before a pipe is full.
const OUT_SIZE_MAX: usize = 256 << 10;
/// Bytes per read.
const READ_SIZE: usize = 64 << 10;

/// One end of the connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    stream: UnixStream,
    out: Vec<u8>,
    /// Number of bytes of `out` that are sent.
    sent: usize,
    /// Start of the first record that is not completely sent, as far as searched.
    record: usize,
    /// End of the records that go ahead of the others.
    ahead: usize,
    unread: Vec<u8>,
}

impl Pipe {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, out: Vec::new(), sent: 0, record: 0, ahead: 0, unread: Vec::new() })
    }

    /// Returns true if too much already waits for new records to be written.
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() - self.sent >= OUT_SIZE_MAX
    }

    /// Returns the buffer to which records are appended.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Returns true if nothing more may wait, not even records that go ahead of the others.
    pub(crate) fn is_crammed(&self) -> bool {
        self.out.len() - self.sent >= 2 * OUT_SIZE_MAX
    }

    /// Puts records ahead of all waiting ones, but after those put ahead before. A record whose
    /// first bytes are sent is sent to its end.
    pub(crate) fn put_ahead(&mut self, records: &[u8]) {
        self.find_record();
        let at = self.record.max(self.ahead);
        self.out.splice(at..at, records.iter().copied());
        self.ahead = at + records.len();
    }

    /// Finds the first record that is not completely sent, or whose sending has not begun.
    fn find_record(&mut self) {
        while self.record < self.sent {
            let size = self.out[self.record..].first_chunk().expect("records are whole");
            self.record += SIZE_SIZE + usize::from(u16::from_le_bytes(*size));
        }
    }

    /// Returns true if something waits to be sent.
    pub(crate) fn has_out(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Sends the waiting bytes, as far as the socket takes them.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.has_out() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(size) => self.sent += size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // The rest is moved only when that is less work than it saves.
        if !self.has_out() || self.sent >= OUT_SIZE_MAX {
            self.find_record();
            self.out.drain(..self.sent);
            self.record -= self.sent;
            self.ahead = self.ahead.saturating_sub(self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Reads once. Returns true if there may be more.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let at = self.unread.len();
        self.unread.resize(at + READ_SIZE, 0);
        let read = self.stream.read(&mut self.unread[at..]);
        self.unread.truncate(at + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Passes on the bytes read: `each` takes the record at the start of its argument and returns
    /// the record's size, or `None` if it is not complete.
    pub(crate) fn take(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<Option<usize>, Unreadable>,
    ) -> Result<(), Unreadable> {
        let mut used = 0;
        while let Some(size) = each(&self.unread[used..])? {
            used += size;
        }
        self.unread.drain(..used);
        Ok(())
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
