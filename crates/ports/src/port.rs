//! The interface of every live port.
//!
//! ```text
//!             window             batch of handles             frames
//!   switch ───────────▶ read() ──────────────────▶ switch ─────────────▶ offer() ─▶ flush()
//!                         │                           │                    │           │
//!                    slot of the pool            reclaim()           All: taken     EAGAIN:
//!                    taken first                 give_back()         No: stays      stays staged
//! ```
//!
//! Waiting is edge-triggered. After [`Port::read`] returned `more: false`, the kernel had nothing,
//! and the next frame makes a new edge on a descriptor of [`Port::poll_fds`]. As long as it returns
//! `more: true` the loop must call again by itself, for no edge may follow. A port whose queues are
//! memory always returns `more: true`, and arms an edge only when the loop is about to sleep.
//!
//! In the other direction, frames that stay staged make [`Port::wants_write`] true until the kernel
//! can take more (an edge), or give a time in [`Port::retry_after`] if the kernel sends no event.
//!
//! **Before a sleep** the loop calls [`SharedRings::arm_notifications`] of a port that has such
//! rings, which arms notifications and then looks once more. Its answer is level-triggered: it
//! compares the queues with what was *served*, that is with the frames that were read and with the
//! index at which an offer found no room, and never with what an earlier `arm_notifications` saw.
//! So it may be called any number of times before the port is served, and gives the same answer, or
//! [`ArmResult::More`] if more came. The loop keeps its part:
//!
//! * after [`ArmResult::More`] it does not sleep, and serves the port as if a descriptor had an
//!   event: `handle_events`, `read` of every queue that it named, and `offer`, at once and not
//!   after [`Port::retry_after`];
//! * [`ArmResult::Armed`] means "a descriptor signals room" only if [`Port::wants_write`] is true
//!   afterwards; otherwise the loop offers to the port once more ([`crate::TxBackoff`]);
//! * a queue that the loop did not name in the call is read by the loop itself as soon as it may.

mod outside;
mod parts;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use sluice_base::{Batch, Nanos, Priority, PriorityMask};
use sluice_switch::{Sink, Window};

use crate::buckets::Buckets;
use crate::frame::FrameBuf;
use crate::pool::Pool;

pub use outside::{Counters, DeviceState, KernelSide, Outside, OutsideState, UNREADABLE};
pub use parts::{FlowControl, Handover, ReadAhead, ReceivingSockets, RoutedUnderlay, SharedRings};

/// A descriptor to wait on, edge-triggered.
#[derive(Clone, Copy, Debug)]
pub struct PollFd<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Readable means that [`Port::read`] may find frames.
    pub read: bool,
    /// Writable means that [`Port::flush`] and `offer` may find room.
    pub write: bool,
}

/// Result of one [`Port::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Number of frames put into the batch.
    pub frames: usize,
    /// True if there may be more. False only after the kernel had nothing, and nothing is set
    /// aside.
    pub more: bool,
    /// Number of frames that were taken from the kernel and not put into the batch: set aside, or
    /// lost and counted. With one of either kind the caller reads again before it sleeps.
    pub others: usize,
}

/// Frames that a port has set aside: of closed priorities, so that they do not block the frames of
/// open ones, or those that came together with others and found no room yet. For the switch they
/// have not arrived yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Frames, now.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Maximum of `frames` since the start.
    pub frames_max: u64,
    /// Maximum of `bytes` since the start.
    pub bytes_max: u64,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Frames.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
}

impl Amount {
    /// Counts one more frame.
    pub fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }

    /// Counts one frame less.
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.frames -= 1;
        self.bytes -= bytes as u64;
    }
}

/// Frames taken by `offer` and then refused by the kernel for good, by the error it gave (such as
/// `EMSGSIZE`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    by_errno: BTreeMap<i32, Amount>,
    /// The frames among them that nobody has booked yet, by priority.
    refused: [Amount; Priority::COUNT],
    unbooked: PriorityMask,
}

impl Losses {
    /// Counts one frame under the error that the kernel gave.
    pub(crate) fn count(&mut self, errno: i32, bytes: usize) {
        self.by_errno.entry(errno).or_default().add(bytes);
    }

    /// Counts one frame of a priority that its device never takes.
    #[cold]
    pub(crate) fn refuse(&mut self, errno: i32, priority: Priority, bytes: usize) {
        self.count(errno, bytes);
        self.refused[priority.index()].add(bytes);
        self.unbooked.insert(priority);
    }

    /// Frames of a priority that devices never take; each is reported once.
    #[inline]
    pub(crate) fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        if self.unbooked.is_empty() {
            return None;
        }
        let priority = Priority::all().find(|priority| self.unbooked.contains(*priority))?;
        self.unbooked.remove(priority);
        Some((priority, std::mem::take(&mut self.refused[priority.index()])))
    }

    /// Sum over all errors.
    #[must_use]
    pub fn total(&self) -> Amount {
        self.by_errno.values().fold(Amount::default(), |sum, one| Amount {
            frames: sum.frames + one.frames,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// Each error number with its frames.
    pub fn iter(&self) -> impl Iterator<Item = (i32, Amount)> + '_ {
        self.by_errno.iter().map(|(&errno, &amount)| (errno, amount))
    }
}

/// The queue in front of [`Port::read`], which the kernel (or the peer) fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Capacity in frames; in frames of the largest size, if it is limited in bytes.
    pub capacity_frames: u64,
    /// Maximum of frames ever seen waiting; `None` if the queue cannot be inspected.
    pub waiting_frames_max: Option<u64>,
}

/// The promise of no loss, as far as a port keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lossless {
    /// The port keeps it.
    Yes,
    /// The port keeps it only under a condition.
    No {
        /// The condition.
        needs: &'static str,
    },
}

impl fmt::Display for Lossless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No { needs } => write!(f, "no, needs {needs}"),
        }
    }
}

/// Request of a port to its driving loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Nothing.
    Nothing,
    /// Return every handle of this queue, then call `handle_events` again: the memory of those
    /// frames goes away ([`sluice_switch::Switch::migrate_buffers`]).
    Handles(u8),
}

/// Result of [`SharedRings::arm_notifications`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmResult {
    /// Everything was served. From now on a descriptor signals frames and room.
    Armed,
    /// There are frames or room that were not served.
    More,
}

/// Set of a port's queues, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues(u8);

impl Queues {
    /// Adds a queue; a port has eight at most.
    pub fn insert(&mut self, queue: u8) {
        self.0 |= 1 << queue;
    }

    /// Returns true if the set has this queue.
    pub(crate) const fn has(self, queue: usize) -> bool {
        self.0 >> queue & 1 == 1
    }
}

/// A live port: everything that all kinds share. See the module's page for the order of the calls.
/// Parts that only some kinds have are traits of their own, each reached by an
/// accessor at the end.
pub trait Port: Sink<FrameBuf> + Send {
    /// The kind, as written in a configuration: `memory`, `tap`, `vhost-user`,
    /// `udp` or `l2`.
    fn kind(&self) -> &'static str;

    /// The descriptors to wait on.
    fn poll_fds(&self) -> Vec<PollFd<'_>>;

    /// Reads at most `min(window.frames, limit)` frames into `batch`, in order of arrival, and
    /// stops when they reach `window.bytes` (the last one may exceed it). Without a free slot in
    /// `pool` or room in `batch` it reads nothing and returns `more: true`.
    ///
    /// A port that [tells priorities apart](FlowControl::classify_by) hands over no frame of
    /// `window.closed`, and sets aside the frames that block others. Order is kept within each
    /// priority. Any other port is given [`Window::of_any`].
    ///
    /// # Errors
    /// The kernel's error, when the device or its namespace is gone. Frames read before it are in
    /// `batch`.
    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read>;

    /// Takes back handles of frames that ended.
    fn give_back(&mut self, bufs: &mut Batch<FrameBuf>, pool: &mut Pool) {
        for buf in bufs.drain() {
            pool.give_back(buf);
        }
    }

    /// Hands staged frames to the kernel, as many as it takes.
    ///
    /// # Errors
    /// The kernel's error, when the device is gone. A kernel without room is no error.
    fn flush(&mut self) -> io::Result<()>;

    /// Returns true if the kernel had no room, so that a writable descriptor means "go on".
    fn wants_write(&self) -> bool;

    /// The time after which to `flush` again although no descriptor has an event.
    fn retry_after(&self) -> Option<Nanos> {
        None
    }

    /// Frames taken by `offer` and not yet by the kernel.
    fn pending(&self) -> Amount;

    /// Frames taken by `offer` and then refused by the kernel for good.
    fn lost(&self) -> &Losses;

    /// Frames of one priority that the device never takes, each reported once: they end under
    /// [`DropReason::Refused`](sluice_base::DropReason::Refused).
    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        None
    }

    /// The state of its device, and the counters of the kernel, and of this driver, behind which a
    /// loss of this port's frames could hide, counted from its opening. The call does not wait for
    /// the kernel: the result does, when it is read.
    fn outside(&self) -> Outside;

    /// The queue in front of [`Self::read`].
    fn ring(&self) -> Ring;

    /// Tells if nothing is lost between the sender behind this port and the switch.
    fn lossless(&self) -> Lossless;

    /// The largest layer-3 packet it carries.
    fn mtu(&self) -> u16;

    /// Closes every descriptor, gives up staged frames and undoes the changes of opening:
    /// afterwards nothing is read or taken, a device that the port made is gone, and one that was
    /// there before has its offloads back. Dropping a port does the same.
    ///
    /// # Errors
    /// The kernel's error. The port is closed all the same.
    fn close(&mut self) -> io::Result<()>;

    /// Its queues, if they are rings in memory that it shares with its peer.
    fn shared_rings(&mut self) -> Option<&mut dyn SharedRings> {
        None
    }

    /// The flow buckets of its input, if it is one of several ports at an address.
    fn buckets(&mut self) -> Option<&mut Buckets> {
        None
    }

    /// Its flow control, if it hears the neighbour's pause frames.
    fn flow_control(&mut self) -> Option<&mut dyn FlowControl> {
        None
    }

    /// The frames that it sets aside, if it takes any from the kernel before the switch has room.
    fn read_ahead(&mut self) -> Option<&mut dyn ReadAhead> {
        None
    }

    /// The UDP sockets behind it, if it knows their memory.
    fn receiving_sockets(&mut self) -> Option<&mut dyn ReceivingSockets> {
        None
    }

    /// The kernel's routes under it, if its frames follow them.
    fn routed_underlay(&mut self) -> Option<&mut dyn RoutedUnderlay> {
        None
    }

    /// Its hand-over to another process, if it can be handed over.
    fn handover(&mut self) -> Option<&mut dyn Handover> {
        None
    }
}

impl Sink<FrameBuf> for Box<dyn Port> {
    fn offer(&mut self, frame: &sluice_switch::Egress<'_, FrameBuf>) -> sluice_switch::Taken {
        (**self).offer(frame)
    }

    fn refuses(&self) -> PriorityMask {
        (**self).refuses()
    }

    fn hold_port(&mut self) {
        (**self).hold_port();
    }
}
