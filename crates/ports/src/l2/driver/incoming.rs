//! Frames from the ring of a port, and those that came as one.

use sluice_base::{Priority, VlanTag};
use sluice_switch::Classifier;

use super::{ASIDE_MAX, L2Port, copy_out, frame_size, frame_size_max};
use crate::l2::aside::Taker;
use crate::pool::Pool;
use crate::port::Read;

impl L2Port {
    /// Reads while a priority is closed, or frames are set aside.
    #[cold]
    pub(super) fn read_apart(&mut self, mut taker: Taker<'_>, pool: &mut Pool) -> Read {
        taker.serve(&mut self.store, &mut self.room, pool);
        let (mut aside, mut is_empty) = (0, false);
        while aside < ASIDE_MAX && !taker.is_done() && !is_empty {
            let mut scratch = std::mem::take(&mut self.scratch);
            let next = self.next_into(&mut scratch);
            self.scratch = scratch;
            let Some(copied) = next else {
                is_empty = true;
                break;
            };
            let Some(size) = copied else { continue };
            let frame = &self.scratch[..size];
            let of = |by: &Classifier| by.priority(frame, frame_size(frame), VlanTag::AsIs);
            let priority = self.classifier.as_ref().map_or(Priority::ZERO, of);
            if !taker.take(&self.store, priority, frame, VlanTag::AsIs, pool) {
                self.store.push(&mut self.room, priority, frame, VlanTag::AsIs);
                aside += 1;
            }
        }
        let more = !is_empty || !self.store.waiting().is_empty();
        Read { frames: taker.frames(), more, others: aside }
    }

    /// Copies the next frame to the front of `to`, one of those that came together or that at the
    /// head of the ring, whose place is free then. Returns its size, if it fits; `None` if there is
    /// no frame.
    #[inline]
    pub(super) fn next_into(&mut self, to: &mut [u8]) -> Option<Option<usize>> {
        if let Some(next) = self.joined.next(to) {
            return Some(self.or_truncated(next));
        }
        let open = self.open.as_mut().filter(|_| !self.stopped)?;
        let frame = open.ring.front()?;
        if frame.size > frame.bytes.len() && frame.is_in_socket {
            let is_series = self.joined.fetch(open.ring.fd(), &frame);
            open.ring.release();
            let next = self.joined.next(to).filter(|_| is_series).unwrap_or(Err(()));
            return Some(self.or_truncated(next));
        }
        let copied = copy_out(&frame, to, &mut self.own);
        open.ring.release();
        Some(copied)
    }

    /// Number of frames that surely do not exceed so many bytes by more than the last one.
    pub(super) fn fitting(&self, bytes: u64) -> usize {
        let frames = bytes.div_ceil(frame_size_max(self.mtu) as u64);
        usize::try_from(frames).unwrap_or(usize::MAX)
    }

    /// Counts a frame that does not fit.
    fn or_truncated(&mut self, copied: Result<usize, ()>) -> Option<usize> {
        self.own.truncated += u64::from(copied.is_err());
        copied.ok()
    }
}
