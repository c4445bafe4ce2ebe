//! Programs that choose the frames of a packet socket.
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use super::{Insn, load_as};
use crate::sys;

/// Loads a program that returns how many bytes of a frame a socket keeps.
pub(crate) fn load_filter(program: &[Insn], name: &str) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    load_as(program, name, (BPF_PROG_TYPE_SOCKET_FILTER, 0, 0), c"Apache-2.0")
}

/// Has a socket keep what the program says, in the place of an earlier one.
pub(crate) fn filter(socket: BorrowedFd<'_>, program: &OwnedFd) -> io::Result<()> {
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_raw_fd())
}
