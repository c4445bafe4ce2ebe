//! Passing of descriptors from one process to another through a Unix socket (`SCM_RIGHTS`,
//! unix(7)).
//!
//! ```text
//!   ["web","db"] LF + 2 descriptors     as many names as descriptors, at most 64 at a time
//!   [] LF                               the end
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors per message; the kernel accepts 253 (`SCM_MAX_FD`).
const FILES_MAX: usize = 64;
const READ_SIZE: usize = 16 << 10;
/// The longest line: the names of all descriptors, each escaped.
const LINE_SIZE_MAX: usize = 64 << 10;

/// A descriptor with the name of its port.
pub(crate) type Named = (String, OwnedFd);

/// Sends descriptors; the sender keeps its own.
///
/// # Errors
/// If the stream fails.
pub(crate) fn send(mut stream: &UnixStream, files: &[Named]) -> io::Result<()> {
    for files in files.chunks(FILES_MAX) {
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let fds: Vec<BorrowedFd<'_>> = files.iter().map(|(_, file)| file.as_fd()).collect();
        let mut line = serde_json::to_vec(&names)?;
        line.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(&line)];
        let sent = sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
        // The descriptors went with the first byte.
        stream.write_all(&line[sent..])?;
    }
    stream.write_all(b"[]\n")
}

/// Receives descriptors from [`send`]. The caller must not have read ahead in the stream:
/// descriptors arrive with the bytes with which they were sent.
///
/// # Errors
/// If the stream fails, ends too early, or carries something else.
pub(crate) fn receive(stream: &UnixStream) -> io::Result<Vec<Named>> {
    let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
    let (mut bytes, mut files, mut named) = (Vec::new(), VecDeque::new(), Vec::new());
    loop {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            let rest = bytes.split_off(end + 1);
            let names: Vec<String> = serde_json::from_slice(&bytes)?;
            bytes = rest;
            if names.is_empty() {
                return Ok(named);
            }
            for name in names {
                let file = files.pop_front().ok_or_else(|| wrong("a name without a descriptor"))?;
                named.push((name, file));
            }
        }
        if bytes.len() > LINE_SIZE_MAX {
            return Err(wrong("a line of names that does not end"));
        }
        if receive_some(stream, &mut bytes, &mut files)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

fn receive_some(
    stream: &UnixStream,
    bytes: &mut Vec<u8>,
    files: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = vec![0; READ_SIZE];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let got = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            files.extend(fds);
        }
    }
    bytes.extend_from_slice(&buffer[..got.bytes]);
    Ok(got.bytes)
}

#[cfg(test)]
mod tests;
