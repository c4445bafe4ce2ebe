//! One direction of a cable: its sending end.

use sluice_base::{ByteCount, DropReason, Nanos, PriorityMask};

use super::config::NetConfig;
use crate::ids::FrameId;
use crate::topology::{Cable, Node};

/// Data that the sending end of a link needs for every frame, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Link {
    /// Time at which the last bit of the frame in transmission leaves; [`Nanos::MAX`] if there is
    /// none.
    pub(super) end_at: Nanos,
    /// Time at which its first bit leaves: it may be later than now.
    pub(super) start_at: Nanos,
    /// The frame in transmission, [`Link::PAUSE`] for a pause frame.
    pub(super) current: FrameId,
    /// Time of a byte in picoseconds.
    byte_ps: u32,
    overhead: u16,
    /// Time from the last bit sent to the last bit received.
    pub(super) delay: u32,
    /// Time from there to the moment when the frame may leave the node.
    pub(super) latency: u32,
    /// Number of bytes of settled frames in its queues.
    pub(super) queued: u32,
    /// Largest number of bytes that can be on their way into the switch that it leaves.
    pub(super) may_come: u32,
    pub(super) to: Node,
    /// Priorities with frames in their queue.
    pub(super) backlog: PriorityMask,
    pub(super) paused: PriorityMask,
    /// True if a pause frame has to go before the next frame.
    pub(super) pause_due: bool,
    /// True if an arrival at the end of this link has an event of its own.
    pub(super) late: bool,
    /// True if the sender is asked for its frames.
    pub(super) asks: bool,
    /// True if the sender has a frame, so that it is worth asking.
    pub(super) is_wanted: bool,
    pub(super) sent_frames: u64,
}

const _: () = assert!(size_of::<Link>() == 64, "a link is one cache line");

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames sent, without pause frames.
    pub frames: u64,
    /// Frames dropped at its end, because the buffer there was full.
    pub input_full: u64,
    /// Frames dropped at its end, because the queue they were to go to was full.
    pub output_full: u64,
    /// XOFF and XON sent for the buffer at its end.
    pub pauses: (u64, u64),
    /// The most bytes that the buffer at its end held, in one priority. Below the thresholds, bytes
    /// that were still on the cable may count as well; from XOFF on the value is exact.
    pub held_max: ByteCount,
    /// Time for which the link was paused in all, in any priority.
    pub paused: Nanos,
}

impl LinkCounters {
    /// Returns the frames dropped at its end, by reason.
    #[must_use]
    pub const fn drops(&self) -> [(DropReason, u64); 2] {
        [(DropReason::InputFull, self.input_full), (DropReason::OutputFull, self.output_full)]
    }
}

/// Frames that wait for a link in one priority, first one first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) head: FrameId,
    pub(super) tail: FrameId,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { head: FrameId::NIL, tail: FrameId::NIL };
}

impl Link {
    pub(super) const PAUSE: FrameId = FrameId(u32::MAX - 1);

    /// Creates a link that ends at `to`; for the rest see the fields.
    pub(super) fn new(
        to: Node,
        cable: &Cable,
        config: &NetConfig,
        latency: Nanos,
        asks: bool,
        late: bool,
        may_come: u32,
    ) -> Self {
        let nanos = |span: Nanos| u32::try_from(span.0).expect("a delay of less than 4 s");
        let byte_ps = 8_000_000_000_000_u64.div_ceil(cable.rate.0);
        Self {
            end_at: Nanos::MAX,
            start_at: Nanos::MAX,
            current: FrameId::NIL,
            byte_ps: u32::try_from(byte_ps).expect("a rate of 2 kbit/s or more"),
            overhead: config.overhead,
            delay: nanos(cable.delay),
            latency: nanos(latency),
            queued: 0,
            may_come,
            to,
            backlog: PriorityMask::NONE,
            paused: PriorityMask::NONE,
            pause_due: false,
            late,
            asks,
            is_wanted: false,
            sent_frames: 0,
        }
    }

    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.current == FrameId::NIL
    }

    /// Returns true if its next frame has been chosen but has not begun.
    #[inline]
    pub(super) fn has_not_begun(&self, now: Nanos) -> bool {
        !self.is_idle() && self.start_at > now
    }

    /// Returns true if a frame has been chosen of which no bit has left, even if it begins now.
    #[inline]
    pub(super) fn has_sent_nothing(&self, now: Nanos) -> bool {
        !self.is_idle() && self.current != Self::PAUSE && self.start_at >= now
    }

    /// Returns the time of a byte in picoseconds.
    pub(super) const fn byte_ps(&self) -> u32 {
        self.byte_ps
    }

    /// Returns the time of a frame, rounded up to whole nanoseconds.
    #[inline]
    pub(super) fn time_for(&self, size: u16) -> Nanos {
        let bytes = u64::from(size) + u64::from(self.overhead);
        Nanos((bytes * u64::from(self.byte_ps)).div_ceil(1000))
    }
}
