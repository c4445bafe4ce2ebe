//! The window of an input: room that the switch promises before a frame is read.

use sluice_base::{Buf, ByteCount, InputId, PriorityMask};

use crate::place::{Full, Held, NO_PORT};
use crate::sizes::BATCH_MAX;
use crate::surface::Window;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Returns the frames and bytes that the switch promises to take from an input now.
    #[must_use]
    pub fn window(&self, input: InputId) -> Window {
        let at = input.0;
        let i = self.ingress.input(at);
        // Frames beyond their share and frames that wait to be replicated are among the held ones.
        let needs_copy = i.held().frames > 0
            && (!i.awaiting().is_empty()
                || i.needs_sweep()
                || (i.has_over() && self.pool.takes(i)));
        let none =
            Window { frames: 0, bytes: ByteCount::ZERO, closed: PriorityMask::NONE, needs_copy };
        if i.port() == NO_PORT || self.egress.port(usize::from(i.port())).is_detached() {
            return none;
        }
        if !i.deferred().is_empty() {
            // The next frame might belong to the pair of one that could not be queued.
            let closed = match i.full() {
                Full::Pause(_) => PriorityMask::ALL,
                Full::Wait | Full::Drop => PriorityMask::NONE,
            };
            return Window { closed, ..none };
        }
        let mut closed = PriorityMask::NONE;
        let (frames, bytes) = match i.full() {
            Full::Drop => {
                ((i.limit().frames + BATCH_MAX).saturating_sub(i.held().frames), u64::MAX)
            }
            Full::Wait => {
                let frames = i.limit().frames.saturating_sub(i.held().frames);
                (frames, i.limit().bytes.0.saturating_sub(i.held().bytes))
            }
            Full::Pause(priorities) if i.holding().and(priorities).is_empty() => {
                (i.limit().frames, i.limit().bytes.0)
            }
            Full::Pause(priorities) => self.pause_window(at, priorities, &mut closed),
        };
        let frames = if bytes == 0 { 0 } else { frames.saturating_sub(i.unreclaimed()) };
        Window { frames, bytes: ByteCount(bytes), closed, needs_copy }
    }

    /// Returns true if a frame of an input waits to be copied, so that it may go to several
    /// outputs.
    #[inline]
    #[must_use]
    pub fn replicates(&self, input: InputId) -> bool {
        !self.ingress.input(input.0).awaiting().is_empty()
    }

    /// Returns the window of an input that pauses and holds frames, for each priority that is not
    /// `closed`. Each paused priority has the whole buffer to itself, so that one that is held back
    /// does not close the window for the others. The promise must hold whatever priority comes
    /// next.
    #[inline(never)]
    fn pause_window(
        &self,
        input: u16,
        priorities: PriorityMask,
        closed: &mut PriorityMask,
    ) -> (u32, u64) {
        let i = self.ingress.input(input);
        let mut held = Held::default();
        let mut holding = i.holding().and(priorities).0;
        while holding != 0 {
            let one = self.ledger.held(input.into(), holding.trailing_zeros() as usize);
            if one.frames >= i.limit().frames || one.bytes >= i.limit().bytes.0 {
                closed.0 |= holding & holding.wrapping_neg();
            } else {
                held.frames = held.frames.max(one.frames);
                held.bytes = held.bytes.max(one.bytes);
            }
            holding &= holding - 1;
        }
        let frames = i.limit().frames - held.frames;
        let bytes = i.limit().bytes.0 - held.bytes;
        let Some(pause) = self.egress.pause_of(i.port()) else { return (frames, bytes) };
        let below = pause.xoff().saturating_sub(pause.weight(held.frames, held.bytes));
        if below == 0 || !self.pool.takes(i) {
            return (frames, bytes);
        }
        // One large batch must not cause XOFF for frames that can still be copied to the shared
        // buffer. The last frame may exceed the bytes.
        let last = u64::from(self.egress.port(usize::from(i.port())).frame_size_max()) + 4;
        (frames, bytes.min(below.saturating_sub(last).max(1)))
    }
}
