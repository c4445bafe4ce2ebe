//! Parts of a port that only some kinds have, each reached by an accessor of
//! [`Port`](super::Port).
//!
//! ```text
//!                      memory  tap  veth  vhost-user  udp  l2  l2 with VLAN
//!   SharedRings                              ×
//!   Buckets                                            ×
//!   FlowControl                                             ×       ×
//!   ReadAhead                                          ×    ×       ×
//!   ReceivingSockets            ×    ×
//!   RoutedUnderlay                                     ×
//!   Handover                         ×       ×         ×    ×
//! ```
//!
//! The loop asks for a part once a burst, never once a frame.

use std::io;
use std::net::Ipv4Addr;

use sluice_base::{Batch, Nanos, Priority};
use sluice_switch::{Classifier, Window};

use super::{Amount, ArmResult, HeldBack, PortRequest, Queues, Read};
use crate::frame::FrameBuf;
use crate::handed::PortHandover;
use crate::pool::Pool;
use crate::rcvbuf::{SocketHolds, SocketsShot};

/// Queues of a port that are rings in its peer's memory: inspecting them is no system call, and
/// frames lie there until their handles are back.
pub trait SharedRings {
    /// Number of queues it reads, each an input of its own.
    fn queues(&self) -> u8;

    /// Reads from one of its queues, as [`Port::read`](super::Port::read) does from the first one.
    ///
    /// # Errors
    /// As `read`.
    fn read_from(
        &mut self,
        queue: u8,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read>;

    /// Moves a frame that this port read into the pool, and takes its handle back.
    ///
    /// # Errors
    /// The same handle, if the pool has no slot for it.
    fn copy_to_pool(&mut self, buf: FrameBuf, pool: &mut Pool) -> Result<FrameBuf, FrameBuf>;

    /// Handles events of [`Port::poll_fds`](super::Port::poll_fds) other than frames and room.
    fn handle_events(&mut self) -> PortRequest;

    /// Arms notifications for frames in these queues and for room, and looks once more. Called
    /// before a sleep, with the queues that the loop would read if they had frames. `port.rs` has
    /// the contract of both sides.
    fn arm_notifications(&mut self, reads: Queues) -> ArmResult;
}

/// Flow control of a link: pause frames apart from data, and priorities apart from each other.
pub trait FlowControl {
    /// Passes on the neighbour's flow-control frames: whole frames, each once. No window is needed,
    /// and waiting data does not delay them. Returns their number; there may be more if it is not
    /// zero.
    fn receive_control(&mut self, tell: &mut dyn FnMut(&[u8])) -> usize;

    /// Sets the rule that gives a frame its priority. The port reads priorities apart by it, and
    /// honours `window.closed`.
    fn classify_by(&mut self, classifier: &Classifier);
}

/// Frames that a port takes from the kernel before the switch has room for them.
pub trait ReadAhead {
    /// Frames it has set aside.
    fn aside(&self) -> HeldBack;

    /// Stops taking frames from the kernel; `read` hands over only frames that were set aside.
    fn stop_reading(&mut self);

    /// Resumes reading after [`Self::stop_reading`].
    fn resume_reading(&mut self);
}

/// UDP sockets behind a port whose receive buffers the port watches.
pub trait ReceivingSockets {
    /// Holds datagrams for sockets that have no room, for so long by priority.
    fn hold(&mut self, holds: SocketHolds);

    /// Writes datagrams that were held for a socket which has room again. The loop calls it in
    /// every turn in which the port may be offered to. Returns true if one left.
    fn resume(&mut self, now: Nanos) -> bool;

    /// State of the sockets.
    fn shot(&self) -> SocketsShot;

    /// Frames of one priority that ended because their socket was beyond its hold, each reported
    /// once: they end under [`DropReason::ReceiverStuck`](sluice_base::DropReason::ReceiverStuck).
    fn take_stuck(&mut self) -> Option<(Priority, Amount)>;
}

/// An underlay whose frames the kernel routes.
pub trait RoutedUnderlay {
    /// The path MTU to a host, if the kernel refused a frame as too large for it since the last
    /// call.
    fn path_mtu(&mut self) -> Option<(Ipv4Addr, u16)>;

    /// Binds to its device again, which is there, perhaps anew under the same name.
    ///
    /// # Errors
    /// The kernel's error.
    fn rebind_device(&mut self) -> io::Result<()>;
}

/// A port that another process can take over with its device.
pub trait Handover {
    /// Returns the state that another process needs to take the port over; `None` if the port is
    /// closed. The port stays as it is; the caller uses it no more after a hand-over.
    ///
    /// # Errors
    /// The kernel's error, if a descriptor cannot be duplicated.
    fn hand_over(&mut self) -> io::Result<Option<PortHandover>>;

    /// Takes the port back that the other process did not take.
    fn take_back(&mut self) {}
}
