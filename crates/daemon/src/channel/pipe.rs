//! One end of the connection between data and control, which never waits.
//!
//! Neither buffer grows without end: who finds the pipe full writes nothing more, and every whole
//! record that was read is taken before more is read.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::{SIZE_SIZE, Unreadable};

/// What may wait to be sent before a pipe is full.
const OUT_SIZE_MAX: usize = 256 << 10;
/// What is read at a time.
const READ_SIZE: usize = 64 << 10;

/// One end.
#[derive(Debug)]
pub(crate) struct Pipe {
    stream: UnixStream,
    out: Vec<u8>,
    /// How much of `out` is sent.
    sent: usize,
    /// Where the first record begins that is not sent whole, as far as that was looked for.
    record: usize,
    /// Where what goes ahead of the others ends.
    ahead: usize,
    unread: Vec<u8>,
}

impl Pipe {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, out: Vec::new(), sent: 0, record: 0, ahead: 0, unread: Vec::new() })
    }

    /// Whether what is written now would wait behind too much.
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() - self.sent >= OUT_SIZE_MAX
    }

    /// Where records to be sent are appended.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether nothing more may wait, not even what goes ahead of the others.
    pub(crate) fn is_crammed(&self) -> bool {
        self.out.len() - self.sent >= 2 * OUT_SIZE_MAX
    }

    /// Puts records ahead of all that wait, but behind those that were put there before: a record
    /// whose first bytes are sent is sent to its end.
    pub(crate) fn put_ahead(&mut self, records: &[u8]) {
        self.find_record();
        let at = self.record.max(self.ahead);
        self.out.splice(at..at, records.iter().copied());
        self.ahead = at + records.len();
    }

    /// Looks for the first record that is not sent whole, or whose sending has not begun.
    fn find_record(&mut self) {
        while self.record < self.sent {
            let size = self.out[self.record..].first_chunk().expect("records are whole");
            self.record += SIZE_SIZE + usize::from(u16::from_le_bytes(*size));
        }
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_out(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Sends what waits, as far as the socket takes it.
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
        // What is left is moved only when that is less work than it saves.
        if !self.has_out() || self.sent >= OUT_SIZE_MAX {
            self.find_record();
            self.out.drain(..self.sent);
            self.record -= self.sent;
            self.ahead = self.ahead.saturating_sub(self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Reads once. Returns whether there may be more.
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

    /// Hands on what was read: `each` takes the record at the start of what it gets and returns its
    /// size, or `None` if it is not whole.
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
