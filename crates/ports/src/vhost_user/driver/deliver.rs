//! Delivery of frames from the switch to the guest.

use sluice_base::PriorityMask;
use sluice_switch::{Egress, Sink, Taken};

use super::{VhostUserPort, receive};
use crate::finish::finish;
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::net_header::{HEADER_SIZE, header_of};
use crate::offload::{Kind, Offload};
use crate::rcvbuf::{Admit, Waiting};
use crate::vhost_user::outgoing::{Outgoing, Placed};
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
            if self.receivers.is_active() && !is_tcp(left) {
                match self.admit_unfinished(pair, left, frame) {
                    Some(taken) => return taken,
                    None if left.is_super() => {
                        return finish(self, |own| &mut own.finisher, frame, Self::offer);
                    }
                    None => {}
                }
            }
            let Some(ring) = &mut self.outgoing[pair] else { return Taken::No };
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

    /// Writes a frame, unless the socket that it is for has no room.
    #[inline(never)]
    fn offer_admitted(&mut self, pair: usize, frame: &Egress<'_, FrameBuf>) -> Taken {
        if !self.has_room(pair) {
            return Taken::No;
        }
        match self.receivers.admit(&[0; HEADER_SIZE], frame) {
            Admit::Pass => {
                let ring = self.outgoing[pair].as_mut();
                if ring.is_some_and(|ring| ring.write_whole(frame)) {
                    self.full.found(pair);
                    return Taken::All;
                }
                self.offer_at_length(pair, frame)
            }
            Admit::Waits | Admit::Stuck => Taken::All,
            Admit::Full => Taken::Later,
        }
    }

    /// Decides about an unfinished datagram. `None`: it may be written as it is; a super-frame, in
    /// segments.
    #[cold]
    fn admit_unfinished(
        &mut self,
        pair: usize,
        left: &Offload,
        frame: &Egress<'_, FrameBuf>,
    ) -> Option<Taken> {
        if !self.has_room(pair) {
            return Some(Taken::No);
        }
        if left.is_super() {
            let Some(ring) = self.outgoing[pair].as_mut() else { return Some(Taken::No) };
            if !self.receivers.takes_whole(frame) {
                return None;
            }
            return match ring.write_unfinished(frame, left) {
                Ok(Placed::TooLarge) => None,
                placed => Some(self.settle(pair, frame, placed)),
            };
        }
        match self.receivers.admit(&header_of(left, 0), frame) {
            Admit::Pass => None,
            Admit::Waits | Admit::Stuck => Some(Taken::All),
            Admit::Full => Some(Taken::Later),
        }
    }

    /// Returns false if the guest has no buffers now. A frame is admitted once: one that is
    /// admitted and finds no room would be charged again.
    fn has_room(&mut self, pair: usize) -> bool {
        let has = self.outgoing[pair].as_mut().is_none_or(Outgoing::has_room);
        if !has {
            self.full.missed(pair);
        }
        has
    }

    /// Writes a frame that waited for its socket. Returns false if it still does.
    pub(super) fn offer_waiting(&mut self, waiting: &Waiting) -> bool {
        let frame = waiting.frame();
        let pair = self.routes.of(frame.priority);
        let usable = self.is_usable(receive(pair));
        let Some(ring) = self.outgoing[pair].as_mut().filter(|_| usable) else {
            self.lost.count(libc::ENETDOWN, waiting.bytes.len());
            return true;
        };
        let placed = ring.write_with(&frame, &waiting.header);
        self.settle(pair, &frame, placed) == Taken::All
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
        if self.receivers.is_active() {
            return self.offer_admitted(pair, frame);
        }
        if !ring.write_whole(frame) {
            return self.offer_at_length(pair, frame);
        }
        self.full.found(pair);
        Taken::All
    }

    fn hold_port(&mut self) {
        self.receivers.hold_port();
    }

    fn refuses(&self) -> PriorityMask {
        self.routes.priorities(self.full.pairs())
    }
}

/// Returns true for segments of TCP that are still to be cut, which are for no socket of UDP.
fn is_tcp(left: &Offload) -> bool {
    left.ask().cut.is_some_and(|(kind, _)| kind != Kind::Udp)
}
