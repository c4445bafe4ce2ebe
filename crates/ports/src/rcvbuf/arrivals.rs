//! Frames that arrived at a container's card, where sending does not deliver: behind a veth pair a
//! frame passes a queueing discipline, a ring and a NAPI, which run later.
//!
//! ```text
//!   port ── sent ──▶ qdisc ─▶ ring ─▶ NAPI ─▶ batch ─▶ ingress hook ─▶ IP ─▶ socket
//!     marker: n ──▶                           of 8     counts; a marker: n - count
//! ```
//!
//! The NAPI hands packets over in batches: each of a batch passes the hook before the first one is
//! in its socket. So the program shows a count as of a batch ago. Frames that were counted for some
//! milliseconds are in their sockets, since a softirq does not wait.
//!
//! **A frame that never arrives** (an XDP program of the container drops it, say) would be under
//! way for ever, and every socket behind the card would seem full. The way keeps the order of
//! frames, so a marker behind the last one says how many are missing: a PFC frame without any
//! priority, with the number of the last frame in its padding. The switch forwards no frame to that
//! address, so that nobody else can send one. If markers do not arrive either, what is missing is
//! written off after a second of silence.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use sluice_base::{Mac, Nanos, PriorityMask};
use sluice_wire::{EtherType, mac_control};

use crate::ebpf::{
    self, EXIT, Hook, If, Insn, LOAD_BYTES, Label, MapKind, NEXT, Program, SKB_PROTOCOL,
    SKB_SEGMENTS, add, add_register, call, exchange, load16, load32, load64, mov, set, store64,
    sub_register,
};
use crate::handed::PortHandover;
use crate::shared::SharedPages;

/// Offsets in the shared array: the count, the count as of a batch ago, the counts between them,
/// the driver's number for a later process, the number of the last marker, and how many frames were
/// missing there.
const COUNT: i16 = 0;
const SHOWN: i16 = 8;
const BATCH: i16 = 16;
const SENT: usize = 512;
const MARKED: i16 = 520;
const MISSING: i16 = 528;
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
/// Time for which something has to be under way at every look, and since the last marker, until
/// one is sent.
const MARK_AFTER: Nanos = Nanos::from_millis(20);
/// Time in which nothing was sent and nothing has arrived, after which nothing is under way: what
/// is missing was dropped.
const LOST: Nanos = Nanos::from_millis(1_000);
/// Place of the number in a marker: in its padding.
const NUMBER: usize = 40;

/// Counts of frames.
#[derive(Debug)]
pub(crate) struct Arrivals {
    words: SharedPages,
    array: OwnedFd,
    /// Holds the program at its hook.
    link: OwnedFd,
    known: Known,
    /// Frames that the port has sent since it was opened, as far as they were noted.
    noted: u64,
}

/// The program's side of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    count: u64,
    /// The count as of a batch ago.
    shown: u64,
    /// Number of the last frame before the last marker.
    marked: u64,
    /// Frames that were missing there.
    missing: i64,
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
    /// Frames that were sent and dropped on their way.
    missing: i64,
    /// Frames that were written off.
    written_off: u64,
    /// Number of the last marker that has arrived.
    marked: u64,
    /// The last look at which nothing was under way, or marker.
    unmarked_since: Nanos,
    is_under_way: bool,
}

impl Known {
    /// Number of the last frame that is in its socket for certain, with all before it.
    fn arrived(&mut self, now: Nanos, seen: Seen) -> u64 {
        if seen.count != self.count {
            (self.count, self.since) = (seen.count, now);
        }
        if (seen.count, self.sent) != self.both {
            (self.both, self.silent_since) = ((seen.count, self.sent), now);
        }
        let is_settled = now.since(self.since) >= SETTLED;
        let certain = if is_settled { seen.count } else { seen.shown };
        // The shown count may be older than the marker, and what was dropped between the two must
        // not count as arrived before the frames beside it.
        let at_marker = seen.marked.saturating_add_signed(-seen.missing);
        if seen.marked != self.marked && certain >= at_marker {
            self.marked = seen.marked;
            self.miss(seen.missing);
        }
        let more = self.sent.cast_signed() - seen.count.cast_signed() - self.missing;
        if more < 0 || now.since(self.silent_since) >= LOST {
            self.miss(self.missing + more);
        }
        self.is_under_way = more > 0;
        if !self.is_under_way {
            self.unmarked_since = now;
        }
        certain.saturating_add_signed(self.missing).min(self.sent)
    }

    fn miss(&mut self, missing: i64) {
        self.written_off += (missing - self.missing).max(0).unsigned_abs();
        self.missing = missing;
    }

    /// Number for a marker that is to be sent now.
    fn marker(&mut self, now: Nanos) -> Option<u64> {
        let is_due = self.is_under_way && now.since(self.unmarked_since) >= MARK_AFTER;
        is_due.then(|| {
            self.unmarked_since = now;
            self.sent
        })
    }
}

/// A marker with this number: a PFC frame without any priority, from no station.
fn marker(number: u64) -> [u8; mac_control::FRAME_SIZE] {
    let mut frame = [0; mac_control::FRAME_SIZE];
    mac_control::Message::Pfc { enabled: PriorityMask::NONE, quanta: [0; 8] }
        .emit(Mac([2, 0, 0, 0, 0, 0]), &mut frame);
    frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_ne_bytes());
    frame
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
        let marked = words.word(MARKED.unsigned_abs().into()).load(Ordering::Acquire);
        let known = Known { sent, marked, ..Known::default() };
        Ok(Self { words, array, link, known, noted: 0 })
    }

    /// Number of the last frame that was sent.
    pub(crate) const fn sent(&self) -> u64 {
        self.known.sent
    }

    /// Notes how many frames the port has sent since it was opened, or will: before they can be
    /// counted, or they seem to be others' frames.
    #[inline]
    pub(crate) fn note_sent(&mut self, total: u64) {
        if total != self.noted {
            self.known.sent += total - self.noted;
            self.noted = total;
            self.words.word(SENT).store(self.known.sent, Ordering::Release);
        }
    }

    /// A marker to send now behind all frames, if some seem to be on their way for long.
    pub(crate) fn marker(&mut self, now: Nanos) -> Option<[u8; mac_control::FRAME_SIZE]> {
        self.known.marker(now).map(marker)
    }

    /// Frames that were sent and never came.
    pub(crate) const fn written_off(&self) -> u64 {
        self.known.written_off
    }

    /// Number of the last frame that is in its socket for certain, with all before it.
    pub(crate) fn arrived(&mut self, now: Nanos) -> u64 {
        // The older ones first: the count may move on meanwhile.
        let word = |at: i16| self.words.word(at.unsigned_abs().into()).load(Ordering::Acquire);
        let (marked, missing) = (word(MARKED), word(MISSING).cast_signed());
        let (shown, count) = (word(SHOWN), word(COUNT));
        self.known.arrived(now, Seen { count, shown, marked, missing })
    }
}

/// Counts the frames of an `sk_buff`, and shows the count as of a batch ago; a marker is not
/// counted. One NAPI runs it, on one processor at a time.
fn program(words: &OwnedFd, batch: i16) -> Vec<Insn> {
    let mut program = Program::default();
    let (counted, control, end) = (program.label(), program.label(), program.label());
    program.plain(&[load32(2, 1, SKB_PROTOCOL)]);
    program.jump(2, If::Is, EtherType::MAC_CONTROL.0.to_be().into(), control);
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
    program.here(control);
    note_marker(&mut program, words, end);
    program.here(end);
    program.plain(&[set(0, NEXT), EXIT]);
    program.finish()
}

/// Notes the number of a marker, and how many frames are missing. Probes have none.
fn note_marker(program: &mut Program, words: &OwnedFd, end: Label) {
    const STACK: i16 = -48;
    let size = i32::try_from(NUMBER + 8).expect("a short frame");
    program.plain(&[set(2, 0), mov(3, 10), add(3, STACK.into()), set(4, size), call(LOAD_BYTES)]);
    program.jump(0, If::IsNot, 0, end);
    let number = STACK + i16::try_from(NUMBER).expect("a short frame");
    let [a, b, c, d, e, f] = Mac::PAUSE.0;
    program.plain(&[load32(2, 10, STACK), load16(3, 10, STACK + 4), load64(4, 10, number)]);
    program.jump(2, If::IsNot, i32::from_ne_bytes([a, b, c, d]), end);
    program.jump(3, If::IsNot, u16::from_ne_bytes([e, f]).into(), end);
    program.jump(4, If::Null, 0, end);
    program.map_value(1, words.as_fd());
    program.plain(&[load64(2, 1, COUNT), mov(3, 4), sub_register(3, 2)]);
    program.plain(&[store64(1, MISSING, 3), exchange(1, MARKED, 4)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(sent: u64) -> Known {
        Known { sent, ..Known::default() }
    }

    fn seen(count: u64, shown: u64) -> Seen {
        Seen { count, shown, ..Seen::default() }
    }

    #[test]
    fn counted_frames_arrived_a_batch_or_milliseconds_later() {
        let mut known = known(20);
        assert_eq!(known.arrived(Nanos(1), seen(20, 12)), 12);
        assert_eq!(known.arrived(Nanos(SETTLED.0), seen(20, 12)), 12);
        assert_eq!(known.arrived(Nanos(1 + SETTLED.0), seen(20, 12)), 20);
        known.sent = 30;
        assert_eq!(known.arrived(Nanos(2 + SETTLED.0), seen(25, 17)), 17);
    }

    #[test]
    fn dropped_frames_end_after_silence() {
        let mut known = known(20);
        assert_eq!(known.arrived(Nanos(1), seen(15, 7)), 7);
        assert_eq!(known.arrived(Nanos(LOST.0), seen(15, 7)), 15);
        assert_eq!(known.arrived(Nanos(1 + LOST.0), seen(15, 7)), 20, "five never come");
        known.sent = 40;
        let mut now = 9 * LOST.0;
        assert_eq!(known.arrived(Nanos(now), seen(15, 7)), 20, "twenty were sent just now");
        assert_eq!(known.arrived(Nanos(now + LOST.0 - 1), seen(15, 7)), 20);
        now += LOST.0;
        assert_eq!(known.arrived(Nanos(now), seen(30, 22)), 27);
        assert_eq!(known.arrived(Nanos(now + SETTLED.0), seen(30, 22)), 35);
        assert_eq!(known.written_off, 5);
    }

    #[test]
    fn frames_of_others_are_not_counted() {
        let mut known = known(10);
        assert_eq!(known.arrived(Nanos(1), seen(13, 5)), 2, "three are not the driver's");
        known.sent = 20;
        assert_eq!(known.arrived(Nanos(2), seen(23, 15)), 12);
    }

    #[test]
    fn marker_tells_dropped_frames_amid_others() {
        let mut known = known(20);
        let mut now = 0;
        let number = loop {
            assert!(now <= MARK_AFTER.0, "five of twenty are under way for long");
            known.arrived(Nanos(now), seen(15, 7));
            if let Some(number) = known.marker(Nanos(now)) {
                break number;
            }
            now += 1_000_000;
        };
        assert_eq!((now, number, known.marker(Nanos(now))), (MARK_AFTER.0, 20, None));
        // Others are sent behind the marker, and arrive: there is no silence.
        known.sent = 50;
        let at = |count, shown| Seen { count, shown, marked: 20, missing: 5 };
        assert_eq!(known.arrived(Nanos(now + 1), at(22, 14)), 14, "the batch of the marker");
        assert_eq!(known.arrived(Nanos(now + 2), at(23, 15)), 20);
        assert_eq!(known.arrived(Nanos(now + 3), at(45, 37)), 42);
        assert_eq!((known.written_off, known.marker(Nanos(now + 3))), (5, None));
    }

    #[test]
    fn nothing_under_way_needs_no_marker() {
        let mut known = known(20);
        for now in 0..100 {
            known.arrived(Nanos::from_millis(now), seen(20, 12));
            assert_eq!(known.marker(Nanos::from_millis(now)), None);
        }
    }
}
