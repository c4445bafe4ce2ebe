//! Errors between a guest and its switch.

use std::io;
use std::path::PathBuf;

/// An operation of a guest that failed.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Memory of the guest cannot be made or mapped; huge pages may be used up.
    #[error("cannot {what} {bytes} bytes of guest memory")]
    Memory {
        /// The step.
        what: &'static str,
        /// Bytes that were asked for.
        bytes: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The memory of a guest is used up.
    #[error("{bytes} bytes do not fit into the rest of the guest's memory")]
    NoRoom {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The socket cannot be used.
    #[error("{}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No switch connected in time.
    #[error("nobody connects to {}", path.display())]
    Nobody {
        /// Path at which the guest listens.
        path: PathBuf,
    },
    /// A request of the protocol failed.
    #[error("{request} failed")]
    Request {
        /// Its name in the vhost-user specification.
        request: &'static str,
        /// The error of the `vhost` crate.
        source: vhost::Error,
    },
    /// The back end lacks required features.
    #[error("the back end lacks features {missing:#x}, it offers {offered:#x}")]
    Features {
        /// Bits that it must have.
        missing: u64,
        /// Bits that it has.
        offered: u64,
    },
    /// Another system call.
    #[error("cannot {what}")]
    System {
        /// The step.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The guest has no connection.
    #[error("the guest is not connected")]
    NotConnected,
}

/// Something that a device must never do (virtio 1.2, 2.7 and 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More buffers came back than were out.
    UsedAhead {
        /// Buffers that came back.
        used: u16,
        /// Buffers that were out.
        out: u16,
    },
    /// A buffer came back that was not out.
    NotOut {
        /// The head that the device wrote.
        head: u32,
    },
    /// Buffers came back in another order although order was agreed.
    OutOfOrder {
        /// The head that the device wrote.
        head: u32,
        /// The head that was due.
        due: u32,
    },
    /// A length that the buffer does not have, or no room for the header.
    Length {
        /// The head that the device wrote.
        head: u32,
        /// The length that it wrote.
        bytes: u32,
    },
    /// A frame of no buffers, or of more than there are.
    Buffers {
        /// `num_buffers` of its header.
        buffers: u16,
    },
}
