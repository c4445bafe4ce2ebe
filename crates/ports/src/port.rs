//! What every live port can do.
//!
//! ```text
//!             window             batch of handles             frames
//!   switch ───────────▶ read() ──────────────────▶ switch ─────────────▶ offer() ─▶ flush()
//!                         │                           │                    │           │
//!                    slot of the pool            reclaim()           All: taken     EAGAIN:
//!                    taken first                 give_back()         No: stays      stays staged
//! ```
//!
//! Waiting is edge-triggered. After [`Port::read`] said `more: false`, the kernel had nothing, and
//! the next frame makes a new edge on a descriptor of [`Port::poll_fds`]; as long as it says `more:
//! true` the loop must come again by itself, for no edge may follow. A port whose queues are memory
//! says so always, and asks for an edge only when the loop is about to sleep.
//! In the other direction, frames
//! that stay staged make [`Port::wants_write`] true until the kernel can take more (an edge), or
//! give a time in [`Port::retry_after`] if the kernel will not tell.
//!
//! **Before a sleep** the loop calls [`Port::rest`], which arms and then looks once more. Its
//! answer is about levels, not about news: what is there is compared with what was *served*, with
//! the frames that were read and with the index at which an offer found no room, and never with
//! what an earlier `rest` saw. So it may be called any number of times before the port is served,
//! and says the same, or [`Rest::More`] if more came. The loop keeps its part:
//!
//! * after [`Rest::More`] it does not sleep, and serves the port as if a descriptor had told:
//!   `attend`, `read` of every queue that it named, and `offer`, at once and not after
//!   [`Port::retry_after`];
//! * [`Rest::Armed`] is taken for "a descriptor tells of room" only if [`Port::wants_write`] says
//!   so afterwards; otherwise the port is offered to once more ([`crate::Room`]);
//! * a queue that it did not name it reads by itself as soon as it may.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use sluice_base::{Batch, Nanos, Priority, PriorityMask};
use sluice_switch::{Classifier, Sink, Window};

use crate::frame::FrameBuf;
use crate::handed::Handed;
use crate::pool::Pool;
use crate::udp::Buckets;

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

/// What one [`Port::read`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// How many frames it put into the batch.
    pub frames: usize,
    /// Whether there may be more. Only false after the kernel said that there is nothing, and
    /// nothing is set aside.
    pub more: bool,
    /// How many frames of closed priorities it set aside.
    pub aside: usize,
}

/// Frames of priorities that the switch takes nothing of, which a port has set aside so that they
/// do not stand in the way of the others. For the switch they have not come yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aside {
    /// Frames, now.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most frames that there ever were.
    pub frames_max: u64,
    /// The most bytes that there ever were.
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

    /// Counts one frame less.
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.frames -= 1;
        self.bytes -= bytes as u64;
    }
}

/// Frames that were taken by `offer` and then refused by the kernel for good, by the error it gave
/// (such as `EMSGSIZE`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    by_errno: BTreeMap<i32, Amount>,
    /// Of those the ones that nobody has booked, by priority.
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

    /// Frames of a priority that devices never take, each told once.
    #[inline]
    pub(crate) fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        if self.unbooked.is_empty() {
            return None;
        }
        let priority = Priority::all().find(|priority| self.unbooked.contains(*priority))?;
        self.unbooked.remove(priority);
        Some((priority, std::mem::take(&mut self.refused[priority.index()])))
    }

    /// All of them together.
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

/// Counters by name. Every one counts frames that were lost outside the switch, since the port was
/// opened.
pub type Counters = BTreeMap<&'static str, u64>;

/// The queue in front of [`Port::read`], which the kernel (or the peer) fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// How many frames it can hold; of the largest size, if it is limited in bytes.
    pub capacity_frames: u64,
    /// The most frames ever seen waiting; `None` where nobody can look.
    pub waiting_frames_max: Option<u64>,
}

/// Whether a port keeps the promise of no loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lossless {
    /// It does.
    Yes,
    /// It does only if something else is so.
    No {
        /// What it needs.
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

/// What a port asks of whoever drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// Every handle that it gave away of this queue, and then to be asked again: the memory in
    /// which those frames lie goes away ([`sluice_switch::Switch::evacuate`]).
    Handles(u8),
}

/// What [`Port::rest`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing changes: descriptors tell of everything, or [`Port::retry_after`] says when to look.
    Told,
    /// Nothing is there that was not served. From now on a descriptor tells, of frames and of room.
    Armed,
    /// Frames or room are there that were not served.
    More,
}

/// Queues of a port, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues(u8);

impl Queues {
    /// Adds a queue, of which a port has eight at most.
    pub fn insert(&mut self, queue: u8) {
        self.0 |= 1 << queue;
    }

    /// Whether a queue is among them.
    pub(crate) const fn has(self, queue: usize) -> bool {
        self.0 >> queue & 1 == 1
    }
}

/// A live port. See the module's page for the order of the calls.
pub trait Port: Sink<FrameBuf> + Send {
    /// The kind, as written in a configuration: `memory`, `tap`, `vhost-user`,
    /// `udp` or `l2`.
    fn kind(&self) -> &'static str;

    /// The descriptors to wait on.
    fn poll_fds(&self) -> Vec<PollFd<'_>>;

    /// Reads at most `min(window.frames, limit)` frames into `batch`, in the order in which they
    /// came, and stops when they reach `window.bytes` (the last one may exceed it). It reads no
    /// frame that it could not hand over: without a free slot in `pool` or room in `batch` it
    /// reads nothing and says `more`.
    ///
    /// One that [tells priorities apart](Self::tells_apart) hands over none of `window.closed`, and
    /// sets aside what stands in the way. Order is kept within each priority. Any other is given
    /// [`Window::of_any`].
    ///
    /// # Errors
    /// What the kernel said, when the device or its namespace is gone. Frames that were read
    /// before are in `batch`.
    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read>;

    /// How many queues it reads, each an input of its own.
    fn queues(&self) -> u8 {
        1
    }

    /// As [`Self::read`], from one of its queues; `read` is the first one's.
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
    ) -> io::Result<Read> {
        debug_assert_eq!(queue, 0, "it has one queue");
        self.read(window, limit, pool, batch)
    }

    /// Tells what the neighbour said of flow control, if the port keeps that apart from data:
    /// whole frames, each once. It needs no window, and what waits to be read is not before it.
    /// Returns how many there were; there may be more if there were any.
    fn hear(&mut self, tell: &mut dyn FnMut(&[u8])) -> usize {
        let _ = tell;
        0
    }

    /// Takes the rule by which priorities are told apart.
    fn classify_by(&mut self, classifier: &Classifier) {
        let _ = classifier;
    }

    /// Whether it reads priorities apart, and keeps `window.closed`.
    fn tells_apart(&self) -> bool {
        false
    }

    /// What it has set aside.
    fn aside(&self) -> Aside {
        Aside::default()
    }

    /// From now on `read` takes nothing from the kernel, and hands over what was set aside.
    fn stop_reading(&mut self) {}

    /// Takes [`Self::stop_reading`] back.
    fn go_on_reading(&mut self) {}

    /// What another process needs to go on with it, if it can be handed over. The port stays as it
    /// is; whoever hands it over uses it no more.
    ///
    /// # Errors
    /// What the kernel said, if a descriptor cannot be duplicated.
    fn hand_over(&mut self) -> io::Result<Option<Handed>> {
        Ok(None)
    }

    /// Sees to what a descriptor of [`Self::poll_fds`] told of, beside frames and room.
    fn attend(&mut self) -> Wanted {
        Wanted::Nothing
    }

    /// The buckets of what it reads, if it is one of several ports at an address.
    fn buckets(&mut self) -> Option<&mut Buckets> {
        None
    }

    /// Whether its queues are memory, so that to look at them is no system call.
    fn is_memory(&self) -> bool {
        false
    }

    /// Arms what tells of frames in these queues and of room, and looks once more: whoever drives
    /// it is about to sleep, and would read these queues if frames were there. See the module's
    /// page for what both owe each other.
    fn rest(&mut self, reads: Queues) -> Rest {
        let _ = reads;
        Rest::Told
    }

    /// Takes back handles of frames that ended.
    fn give_back(&mut self, bufs: &mut Batch<FrameBuf>, pool: &mut Pool) {
        for buf in bufs.drain() {
            pool.give_back(buf);
        }
    }

    /// Moves a frame that this port read into the pool, and takes its handle back.
    ///
    /// # Errors
    /// The same handle, if the pool has no slot for it.
    fn spill(&mut self, buf: FrameBuf, pool: &mut Pool) -> Result<FrameBuf, FrameBuf> {
        // It lies there already.
        let _ = pool;
        Ok(buf)
    }

    /// Hands staged frames to the kernel, as many as it takes.
    ///
    /// # Errors
    /// What the kernel said, when the device is gone. A kernel that has no room is no error.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether the kernel had no room, so that a writable descriptor means "go on".
    fn wants_write(&self) -> bool;

    /// The time after which to `flush` again, although no descriptor will tell.
    fn retry_after(&self) -> Option<Nanos> {
        None
    }

    /// Frames that were taken by `offer` and not yet by the kernel.
    fn pending(&self) -> Amount;

    /// Frames that were taken by `offer` and then refused by the kernel for good.
    fn lost(&self) -> &Losses;

    /// Frames of one priority that the device never takes, each told once: they end under
    /// [`DropReason::Refused`](sluice_base::DropReason::Refused).
    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        None
    }

    /// Counters of the kernel, and of this driver, behind which a loss on the way of this port's
    /// frames could hide, counted from when it was opened.
    ///
    /// # Errors
    /// What the kernel said, when it cannot be asked.
    fn kernel_counters(&self) -> io::Result<Counters>;

    /// Whether the device behind it is set up; `None` if that is not known.
    fn is_up(&self) -> Option<bool> {
        None
    }

    /// Why nothing passes, if the port knows.
    fn problem(&self) -> Option<String> {
        None
    }

    /// The MTU of the way to a host, if the kernel refused a frame as too large for it since this
    /// was asked last.
    fn path_mtu(&mut self) -> Option<(Ipv4Addr, u16)> {
        None
    }

    /// Its device is there, perhaps anew under the same name: what was bound to the old one is
    /// bound to it.
    ///
    /// # Errors
    /// What the kernel said.
    fn device_is(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The queue in front of [`Self::read`].
    fn ring(&self) -> Ring;

    /// Whether nothing is lost between the sender behind this port and the switch.
    fn lossless(&self) -> Lossless;

    /// The largest layer-3 packet it carries.
    fn mtu(&self) -> u16;

    /// Closes every descriptor, gives up what is staged and undoes what opening did: afterwards
    /// nothing is read or taken, a device that the port made is gone, and one that was there
    /// before has its offloads back. Dropping a port does the same.
    ///
    /// # Errors
    /// What the kernel said. The port is closed all the same.
    fn close(&mut self) -> io::Result<()>;
}

impl Sink<FrameBuf> for Box<dyn Port> {
    fn offer(&mut self, frame: &sluice_switch::Egress<'_, FrameBuf>) -> sluice_switch::Taken {
        (**self).offer(frame)
    }

    fn refuses(&self) -> PriorityMask {
        (**self).refuses()
    }
}
