//! Wake-ups of a port whose NAPI no interrupt runs: a program at the container's egress counts what
//! passes, and wakes the driver if it asked for that.
//!
//! ```text
//!   container's sender                      driver
//!   sent += frames                          takes what came: up to `received`
//!   full fence                              wanted = 1
//!   if wanted, exchange it for 0:           full fence
//!     wake the driver                       is `sent` still `received`?
//!   qdisc, ring of the veth
//! ```
//!
//! The program runs *before* the frame is in the ring, so an empty ring proves nothing: a driver
//! that armed and saw it empty could sleep beside a frame on its way. The count does prove it. In
//! the single order of both fences either the sender sees that the driver wants to be woken, or the
//! driver sees the count and does not sleep ([`arm`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::ebpf::{
    self, EXIT, Hook, If, Insn, MapKind, NEXT, Program, RING_OUTPUT, SKB_SEGMENTS, add, call,
    exchange, fetch_add, load32, load64, mov, set, store32,
};
use crate::handed::PortHandover;
use crate::shared::SharedPages;

/// The words that sender and driver share: of a BPF array, or of the model that tries every order.
pub(super) trait Words {
    /// Asks for a wake-up with the next frame.
    fn ask(&self);

    /// Orders earlier writes before later reads.
    fn fence(&self);

    /// Number of frames that the sender gave to its device.
    fn sent(&self) -> u64;
}

/// Asks for a wake-up, and looks once more. Returns true if nothing is on its way, so that the next
/// frame wakes.
#[inline]
pub(super) fn arm(words: &impl Words, received: u64) -> bool {
    words.ask();
    words.fence();
    words.sent() == received
}

/// Offsets in the shared array. The words of the program lie in cache lines of their own; the
/// others are the driver's, and tell a later process where it goes on.
const SENT: i16 = 0;
const WANTED: i16 = 64;
const RECEIVED: usize = 128;
const ABSENT: usize = 136;
const NAMESPACE: [usize; 2] = [144, 152];
const WORDS_SIZE: u32 = 192;
/// Names of the descriptors when they are handed over.
const WORDS_FILE: &str = "words";
const RING_FILE: &str = "wakeups";
const LINK_FILE: &str = "hint";

/// The program at its hook, with its maps.
#[derive(Debug)]
pub(super) struct Hint {
    /// Holds the program at its hook, also when the device moves to another namespace.
    link: OwnedFd,
    ring: OwnedFd,
    array: OwnedFd,
    words: SharedPages,
    /// Positions up to which the ring was read, and written.
    read: SharedPages,
    written: SharedPages,
}

impl Hint {
    /// Loads the program, and attaches it to the container's device, in the namespace of the
    /// calling thread.
    pub(super) fn attach(index: u32) -> io::Result<Self> {
        let array = ebpf::create_map(MapKind::SharedArray(WORDS_SIZE))?;
        // The ring that carries wake-ups: the smallest one.
        let ring = ebpf::create_map(MapKind::Ring(page()?))?;
        let program = ebpf::load(&program(&array, &ring), "sluice_hint", Hook::Egress)?;
        let link = ebpf::attach(&program, index, Hook::Egress)?;
        Self::map(array, ring, link)
    }

    /// Takes up the program of an earlier process.
    pub(super) fn adopt(handed: &mut PortHandover) -> io::Result<Self> {
        let mut file = |name| handed.take_file(name).ok_or(io::ErrorKind::NotFound);
        Self::map(file(WORDS_FILE)?, file(RING_FILE)?, file(LINK_FILE)?)
    }

    /// Adds copies of the descriptors.
    pub(super) fn hand_over(&self, handed: &mut PortHandover) -> io::Result<()> {
        handed.file(WORDS_FILE, self.array.as_fd())?;
        handed.file(RING_FILE, self.ring.as_fd())?;
        handed.file(LINK_FILE, self.link.as_fd())
    }

    fn map(array: OwnedFd, ring: OwnedFd, link: OwnedFd) -> io::Result<Self> {
        // The consumer's page of a ring is the first one, and the producer's follows.
        Ok(Self {
            read: SharedPages::map(ring.as_fd(), 0, true)?,
            written: SharedPages::map(ring.as_fd(), page()?.into(), false)?,
            words: SharedPages::map(array.as_fd(), 0, true)?,
            array,
            ring,
            link,
        })
    }

    /// Index of the device that has the program; 0 if none has it any more.
    pub(super) fn device(&self) -> io::Result<u32> {
        ebpf::device_of(&self.link)
    }

    /// Keeps the driver's counts for a later process. A process that is killed leaves too few
    /// received frames here at most, for which the next one looks in vain.
    #[inline]
    pub(super) fn keep_counts(&self, received: u64, absent: u64) {
        self.words.word(RECEIVED).store(received, Ordering::Release);
        self.words.word(ABSENT).store(absent, Ordering::Relaxed);
    }

    /// The counts of frames that were received, and that are absent.
    pub(super) fn counts(&self) -> (u64, u64) {
        let word = |offset| self.words.word(offset).load(Ordering::Acquire);
        (word(RECEIVED), word(ABSENT))
    }

    /// Keeps the identity of the container's namespace for a later process.
    pub(super) fn keep_namespace(&self, (device, inode): (u64, u64)) {
        for (offset, value) in NAMESPACE.into_iter().zip([device, inode]) {
            self.words.word(offset).store(value, Ordering::Release);
        }
    }

    /// The identity of the container's namespace.
    pub(super) fn namespace(&self) -> (u64, u64) {
        let [device, inode] =
            NAMESPACE.map(|offset| self.words.word(offset).load(Ordering::Acquire));
        (device, inode)
    }

    /// The descriptor that a wake-up makes readable.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Drops the wake-ups that came, so that the next one finds room and makes an edge.
    pub(super) fn clear(&self) {
        let written = self.written.word(0).load(Ordering::Acquire);
        self.read.word(0).store(written, Ordering::Release);
    }

    fn wanted(&self) -> &AtomicU64 {
        self.words.word(WANTED.unsigned_abs().into())
    }
}

impl Words for Hint {
    fn ask(&self) {
        self.wanted().store(1, Ordering::Relaxed);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn sent(&self) -> u64 {
        self.words.word(SENT.unsigned_abs().into()).load(Ordering::Acquire)
    }
}

fn page() -> io::Result<u32> {
    u32::try_from(rustix::param::page_size()).map_err(io::Error::other)
}

/// Counts the frames of an `sk_buff`, and wakes the driver if it asked for that.
fn program(words: &OwnedFd, ring: &OwnedFd) -> Vec<Insn> {
    const RECORD: i16 = -8;
    const RECORD_SIZE: i32 = 8;
    const BPF_RB_FORCE_WAKEUP: i32 = 2;
    let mut program = Program::default();
    let p = &mut program;
    let (counted, asleep) = (p.label(), p.label());
    p.plain(&[load32(2, 1, SKB_SEGMENTS)]);
    p.jump(2, If::IsNot, 0, counted);
    p.plain(&[set(2, 1)]);
    p.here(counted);
    p.map_value(1, words.as_fd());
    p.plain(&[fetch_add(1, SENT, 2), load64(3, 1, WANTED)]);
    p.jump(3, If::Null, 0, asleep);
    p.plain(&[set(2, 0), exchange(1, WANTED, 2)]);
    p.jump(2, If::Null, 0, asleep);
    p.map(1, ring.as_fd());
    p.plain(&[set(0, 0), store32(10, RECORD, 0), store32(10, RECORD + 4, 0)]);
    p.plain(&[mov(2, 10), add(2, RECORD.into()), set(3, RECORD_SIZE)]);
    p.plain(&[set(4, BPF_RB_FORCE_WAKEUP), call(RING_OUTPUT)]);
    p.here(asleep);
    p.plain(&[set(0, NEXT), EXIT]);
    program.finish()
}

#[cfg(test)]
mod tests;
