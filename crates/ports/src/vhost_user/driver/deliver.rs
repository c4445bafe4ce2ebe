//! Delivery of frames from the switch to the guest.

use sluice_base::PriorityMask;
use sluice_switch::{Egress, Sink, Taken};

use super::{VhostUserPort, receive};
use crate::finish::finish;
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::vhost_user::outgoing::Placed;
use crate::vhost_user::ring::Fault;

impl VhostUserPort {
    /// Offers an unfinished frame: as it is, if the guest finishes it.
    #[cold]
    fn offer_unfinished(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        let is_untouched = frame.first == 0 && frame.header.is_empty() && frame.strip == 0;
        let pair = self.routes.of(frame.priority);
        let usable = is_untouched && self.is_usable(receive(pair));
        if let Some(ring) = self.outgoing[pair].as_mut().filter(|_| usable)
            && let Some(left) = frame.buf.and_then(FrameBuf::offload)
            && ring.takes(left)
        {
            match ring.write_unfinished(frame, left) {
                // Its segments may fit.
                Ok(Placed::TooLarge) if left.is_super() => {}
                placed => return self.settle(pair, frame, placed),
            }
        }
        finish(self, |own| &mut own.finisher, frame, Self::offer)
    }

    /// Writes a frame for which the next buffer is too small, or not of the usual kind.
    #[inline(never)]
    fn offer_at_length(&mut self, pair: usize, frame: &Egress<'_, FrameBuf>) -> Taken {
        let Some(ring) = &mut self.outgoing[pair] else { return Taken::No };
        let placed = ring.write(frame);
        self.settle(pair, frame, placed)
    }

    /// Converts the result of a write for the switch.
    fn settle(
        &mut self,
        pair: usize,
        frame: &Egress<'_, FrameBuf>,
        placed: Result<Placed, Fault>,
    ) -> Taken {
        match placed {
            Ok(Placed::Written) => {
                self.full.found(pair);
                Taken::All
            }
            Ok(Placed::NoRoom) => {
                self.full.missed(pair);
                Taken::No
            }
            Ok(Placed::TooLarge) => {
                self.lost.refuse(libc::EMSGSIZE, frame.priority, frame_size(frame));
                Taken::All
            }
            Err(fault) => {
                self.fail(receive(pair), fault);
                self.lost.count(libc::EFAULT, frame_size(frame));
                Taken::All
            }
        }
    }
}

impl Sink<FrameBuf> for VhostUserPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if is_unfinished(frame) {
            return self.offer_unfinished(frame);
        }
        let pair = self.routes.of(frame.priority);
        let usable = self.is_usable(receive(pair));
        let Some(ring) = self.outgoing[pair].as_mut().filter(|_| usable) else {
            if !self.open {
                return Taken::No;
            }
            // As on a wire without a cable. A guest that comes later has not asked for the frame.
            self.lost.count(libc::ENETDOWN, frame_size(frame));
            return Taken::All;
        };
        if !ring.write_whole(frame) {
            return self.offer_at_length(pair, frame);
        }
        self.full.found(pair);
        Taken::All
    }

    fn refuses(&self) -> PriorityMask {
        self.routes.priorities(self.full.pairs())
    }
}
