//! Frames that arrived at a container's card, where sending does not deliver: behind a veth pair a
//! frame passes a queueing discipline, a ring and a NAPI, which run later.
//!
//! ```text
//!   port ── sent ──▶ qdisc ─▶ ring ─▶ NAPI ─▶ batch ─▶ ingress hook ─▶ IP ─▶ socket
//!                                             of 8     counts
//! ```
//!
//! The NAPI hands packets over in batches: each of a batch passes the hook before the first one is
//! in its socket. So the program shows a count as of a batch ago. Frames that were counted for some
//! milliseconds are in their sockets, since a softirq does not wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use sluice_base::Nanos;

use crate::ebpf::{
    self, EXIT, Hook, If, Insn, MapKind, NEXT, Program, SKB_SEGMENTS, add_register, load32, load64,
    set, store64,
};
use crate::handed::PortHandover;
use crate::shared::SharedPages;

/// Offsets in the shared array: the count, the count as of a batch ago, the counts between them,
/// and the driver's number for a later process.
const COUNT: i16 = 0;
const SHOWN: i16 = 8;
const BATCH: i16 = 16;
const SENT: usize = 512;
const WORDS_SIZE: u32 = 576;
/// Packets of a batch (`net.core.gro_normal_batch`), at least and at most.
const BATCH_MIN: i16 = 8;
const BATCH_MAX: i16 = 60;
const BATCH_SIZE: &str = "/proc/sys/net/core/gro_normal_batch";
/// Names of the descriptors when they are handed over.
const WORDS_FILE: &str = "arrivals";
const LINK_FILE: &str = "arrivals-hook";

/// Time after which a counted packet is in its socket: a batch takes microseconds, and a processor
/// that is taken away some milliseconds.
const SETTLED: Nanos = Nanos::from_millis(5);
/// Time in which nothing was sent and nothing has arrived, after which nothing is under way: what
/// is missing was dropped.
const LOST: Nanos = Nanos::from_millis(1_000);

/// Counts of frames.
#[derive(Debug)]
pub(crate) struct Arrivals {
    words: SharedPages,
    array: OwnedFd,
    /// Holds the program at its hook.
    link: OwnedFd,
    known: Known,
}

/// The driver's side of the counts.
#[derive(Debug, Default)]
struct Known {
    /// Number of the last frame that was sent.
    sent: u64,
    /// The last count, and when it was seen first.
    count: u64,
    since: Nanos,
    /// The last count and number of both sides, and when they were seen first.
    both: (u64, u64),
    silent_since: Nanos,
    /// Frames that were sent and dropped on their way; below 0 for those that came beside.
    missing: i64,
}

impl Known {
    /// Number of the last frame that is in its socket for certain, with all before it.
    fn arrived(&mut self, now: Nanos, (count, shown): (u64, u64)) -> u64 {
        if count != self.count {
            (self.count, self.since) = (count, now);
        }
        if (count, self.sent) != self.both {
            (self.both, self.silent_since) = ((count, self.sent), now);
        }
        let more = self.sent.cast_signed() - count.cast_signed() - self.missing;
        if more < 0 || now.since(self.silent_since) >= LOST {
            self.missing += more;
        }
        let certain = if now.since(self.since) >= SETTLED { count } else { shown };
        certain.saturating_add_signed(self.missing).min(self.sent)
    }
}

impl Arrivals {
    /// Loads the program, and attaches it to the container's device, in the namespace of the
    /// calling thread.
    pub(crate) fn attach(index: u32) -> io::Result<Self> {
        let array = ebpf::create_map(MapKind::SharedArray(WORDS_SIZE))?;
        // Another namespace does not show it; a host whose batches are larger says so.
        let batch = std::fs::read_to_string(BATCH_SIZE).unwrap_or_default();
        let batch = batch.trim().parse().unwrap_or(BATCH_MIN).clamp(BATCH_MIN, i16::MAX);
        if batch > BATCH_MAX {
            return Err(io::Error::other(format!(
                "net.core.gro_normal_batch of at most {BATCH_MAX}, not {batch}"
            )));
        }
        let program = ebpf::load(&program(&array, batch), "sluice_arrived", Hook::Ingress)?;
        let link = ebpf::attach(&program, index, Hook::Ingress)?;
        Self::map(array, link)
    }

    /// Takes up the program of an earlier process; `None` if that had none.
    pub(crate) fn adopt(handed: &mut PortHandover) -> Option<io::Result<Self>> {
        let array = handed.take_file(WORDS_FILE)?;
        Some(Self::map(array, handed.take_file(LINK_FILE)?))
    }

    /// Adds copies of the descriptors.
    pub(crate) fn hand_over(&self, handed: &mut PortHandover) -> io::Result<()> {
        handed.file(WORDS_FILE, self.array.as_fd())?;
        handed.file(LINK_FILE, self.link.as_fd())
    }

    fn map(array: OwnedFd, link: OwnedFd) -> io::Result<Self> {
        let words = SharedPages::map(array.as_fd(), 0, true)?;
        let sent = words.word(SENT).load(Ordering::Acquire);
        let known = Known { sent, ..Known::default() };
        Ok(Self { words, array, link, known })
    }

    /// Number of the last frame that was sent.
    pub(crate) const fn sent(&self) -> u64 {
        self.known.sent
    }

    /// Notes that so many more frames were sent, or will be.
    #[inline]
    pub(crate) fn send(&mut self, frames: u64) {
        if frames > 0 {
            self.known.sent += frames;
            self.words.word(SENT).store(self.known.sent, Ordering::Release);
        }
    }

    /// Notes that so many more frames come which are not counted as sent.
    #[inline]
    pub(crate) fn come_beside(&mut self, frames: u64) {
        self.known.missing -= frames.cast_signed();
    }

    /// Number of the last frame that is in its socket for certain, with all before it.
    pub(crate) fn arrived(&mut self, now: Nanos) -> u64 {
        // The older one first: the count may move on meanwhile.
        let word = |offset: i16| self.words.word(offset.unsigned_abs().into());
        let shown = word(SHOWN).load(Ordering::Acquire);
        let count = word(COUNT).load(Ordering::Acquire);
        self.known.arrived(now, (count, shown))
    }
}

/// Counts the frames of an `sk_buff`, and shows the count as of a batch ago. One NAPI runs it, on
/// one processor at a time.
fn program(words: &OwnedFd, batch: i16) -> Vec<Insn> {
    let mut program = Program::default();
    let counted = program.label();
    program.plain(&[load32(2, 1, SKB_SEGMENTS)]);
    program.jump(2, If::IsNot, 0, counted);
    program.plain(&[set(2, 1)]);
    program.here(counted);
    program.map_value(1, words.as_fd());
    let place = |nth: i16| BATCH + 8 * nth;
    program.plain(&[load64(3, 1, place(0)), store64(1, SHOWN, 3)]);
    for nth in 1..batch {
        program.plain(&[load64(3, 1, place(nth)), store64(1, place(nth - 1), 3)]);
    }
    program.plain(&[load64(3, 1, COUNT), add_register(3, 2)]);
    program.plain(&[store64(1, place(batch - 1), 3), store64(1, COUNT, 3)]);
    program.plain(&[set(0, NEXT), EXIT]);
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(sent: u64) -> Known {
        Known { sent, ..Known::default() }
    }

    #[test]
    fn counted_frames_arrived_a_batch_or_milliseconds_later() {
        let mut known = known(20);
        assert_eq!(known.arrived(Nanos(1), (20, 12)), 12);
        assert_eq!(known.arrived(Nanos(SETTLED.0), (20, 12)), 12);
        assert_eq!(known.arrived(Nanos(1 + SETTLED.0), (20, 12)), 20);
        known.sent = 30;
        assert_eq!(known.arrived(Nanos(2 + SETTLED.0), (25, 17)), 17);
    }

    #[test]
    fn dropped_frames_end_after_silence() {
        let mut known = known(20);
        assert_eq!(known.arrived(Nanos(1), (15, 7)), 7);
        assert_eq!(known.arrived(Nanos(LOST.0), (15, 7)), 15);
        assert_eq!(known.arrived(Nanos(1 + LOST.0), (15, 7)), 20, "five never come");
        known.sent = 40;
        let mut now = 9 * LOST.0;
        assert_eq!(known.arrived(Nanos(now), (15, 7)), 20, "twenty were sent just now");
        assert_eq!(known.arrived(Nanos(now + LOST.0 - 1), (15, 7)), 20);
        now += LOST.0;
        assert_eq!(known.arrived(Nanos(now), (30, 22)), 27);
        assert_eq!(known.arrived(Nanos(now + SETTLED.0), (30, 22)), 35);
    }

    #[test]
    fn frames_that_came_beside_are_not_counted() {
        let mut known = known(10);
        assert_eq!(known.arrived(Nanos(1), (13, 5)), 2, "three are not the driver's");
        known.sent = 20;
        assert_eq!(known.arrived(Nanos(2), (23, 15)), 12);
    }
}
