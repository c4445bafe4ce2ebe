//! Finishes frames of guests for a driver whose peer does not: checksums, and segments.
//!
//! Each finished frame is made in a buffer of the finisher and offered like a frame that the switch
//! made, so that a driver need not know its origin.

use sluice_switch::{Egress, Taken, resize_outer};

use crate::frame::{FrameBuf, frame_size, gather, is_unfinished};
use crate::offload::Offload;

/// Size of the largest frame that is finished, with the outer headers that the switch adds.
const FRAME_SIZE_MAX: usize = (1 << 16) + 256;
/// Number of segments offered before the switch schedules again.
const TOGETHER_MAX: u16 = 64;

/// The buffer in which frames are finished.
#[derive(Debug, Default)]
pub(crate) struct Finisher {
    frame: Box<[u8]>,
}

impl Finisher {
    pub(crate) fn new() -> Self {
        Self { frame: vec![0; FRAME_SIZE_MAX].into_boxed_slice() }
    }

    /// Offers the wire frames of an unfinished frame, one after the other.
    fn offer(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        mut offer: impl FnMut(&Egress<'_, FrameBuf>) -> Taken,
    ) -> Taken {
        let Some((buf, left)) = frame.buf.and_then(|buf| Some((buf, buf.offload()?))) else {
            return offer(frame);
        };
        if !left.is_super() {
            return offer(&self.finished(frame, left));
        }
        let segments = left.segments();
        let end = segments.min(frame.first.saturating_add(TOGETHER_MAX));
        let mut nth = frame.first;
        let mut refusal = Taken::No;
        while nth < end {
            match offer(&self.segment(frame, buf, left, nth)) {
                Taken::All => nth += 1,
                refused => {
                    refusal = refused;
                    break;
                }
            }
        }
        match nth - frame.first {
            _ if nth == segments => Taken::All,
            0 => refusal,
            count => Taken::Segments(count),
        }
    }

    fn finished<'a>(
        &'a mut self,
        frame: &Egress<'_, FrameBuf>,
        left: &Offload,
    ) -> Egress<'a, FrameBuf> {
        debug_assert!(frame.strip == 0, "what came out of a tunnel is finished");
        let size = frame_size(frame);
        let into = &mut self.frame[..size];
        gather(frame, 0, into);
        left.finish(&mut into[frame.header.len()..]);
        whole(&self.frame[..size], frame)
    }

    fn segment<'a>(
        &'a mut self,
        frame: &Egress<'_, FrameBuf>,
        buf: &FrameBuf,
        left: &Offload,
        nth: u16,
    ) -> Egress<'a, FrameBuf> {
        let strip = tunnel_strip(frame);
        let (outer, changed) =
            if frame.tunnel.is_some() { (frame.header, &[][..]) } else { (&[][..], frame.header) };
        let inner_left = left.without(strip);
        let headers = usize::from(inner_left.header_size());
        let (at, payload) = left.part(nth);
        let size = outer.len() + headers + payload;
        let (front, inner) = self.frame[..size].split_at_mut(outer.len());
        front.copy_from_slice(outer);
        if frame.tunnel.is_some() {
            resize_outer(front, u16::try_from(headers + payload).expect("it fits into a tunnel"));
        }
        buf.copy_part(strip.into(), &mut inner[..headers]);
        inner[..changed.len()].copy_from_slice(changed);
        buf.copy_part(at, &mut inner[headers..]);
        inner_left.make(nth, inner);
        whole(&self.frame[..size], frame)
    }
}

/// Bytes of outer headers in the buffer of a frame that came out of a tunnel. What the switch
/// changed stands in its header, and is skipped as well.
pub(crate) fn tunnel_strip(frame: &Egress<'_, FrameBuf>) -> u16 {
    if frame.tunnel.is_some() {
        debug_assert!(frame.strip == 0, "nothing goes from tunnel to tunnel");
        return 0;
    }
    let changed = u16::try_from(frame.header.len()).expect("at most 128");
    frame.strip.checked_sub(changed).expect("what is changed is skipped")
}

/// A finished copy of `frame`, all in `header`.
fn whole<'a>(bytes: &'a [u8], frame: &Egress<'_, FrameBuf>) -> Egress<'a, FrameBuf> {
    Egress {
        header: bytes,
        buf: None,
        strip: 0,
        size: u32::try_from(bytes.len()).expect("not above `FRAME_SIZE_MAX`"),
        first: 0,
        priority: frame.priority,
        tunnel: frame.tunnel,
    }
}

/// Offers an unfinished frame, through a finisher, to a driver that takes only finished frames.
#[cold]
pub(crate) fn finish<D>(
    driver: &mut D,
    finisher: impl Fn(&mut D) -> &mut Finisher,
    frame: &Egress<'_, FrameBuf>,
    mut offer: impl FnMut(&mut D, &Egress<'_, FrameBuf>) -> Taken,
) -> Taken {
    debug_assert!(is_unfinished(frame));
    let mut own = std::mem::take(finisher(driver));
    let taken = own.offer(frame, |finished| offer(driver, finished));
    *finisher(driver) = own;
    taken
}

#[cfg(test)]
pub(crate) mod tests;
