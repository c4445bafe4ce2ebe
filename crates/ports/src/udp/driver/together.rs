//! Segments that are given to the kernel as one, from where they lie, and those that come as one.

use std::net::Ipv4Addr;

use sluice_base::Mac;
use sluice_switch::{Egress, Taken};

use super::{UdpPort, Waits, send_staged};
use crate::frame::FrameBuf;
use crate::gro;
use crate::pool::Pool;
use crate::series::taken;
use crate::udp::inbox::Inbox;
use crate::udp::outer::{target, write_headers};

/// Takes the next datagrams as one frame, at most `most`, if they are segments of one flow that
/// came together. Returns it and their number. `place` is the address, the port and the MAC here.
pub(super) fn join_next(
    inbox: &mut Inbox,
    most: usize,
    place: (Ipv4Addr, u16, Mac),
    pool: &mut Pool,
) -> Option<(FrameBuf, usize)> {
    let (run, first) = inbox.run()?;
    let outer = |to: &mut [u8], _| write_headers(&first, place, to);
    let (buf, count) = gro::join(run, most, pool, outer)?;
    inbox.skip(count);
    Some((buf, count))
}

impl UdpPort {
    /// Gives the segments of a super-frame to the kernel from where they lie. `None` if they have
    /// to be staged: they cannot go so, or the kernel does not take them so.
    pub(super) fn offer_series(&mut self, frame: &Egress<'_, FrameBuf>) -> Option<Taken> {
        let Self { open, waits, lost, series_headers, config, .. } = self;
        let (target, skip, port) = target(frame.header, config.port)?;
        let senders = &mut open.as_mut()?.senders;
        let which = usize::from(port) % senders.len();
        let sender = &mut senders[which];
        if !sender.staging.is_empty() && *waits == Waits::default() {
            let refused = send_staged(sender, waits, lost);
            self.too_large = refused.or(self.too_large);
        }
        let mut next = frame.first;
        while sender.staging.is_empty()
            && let Some(series) = series_headers.make(frame, next, skip)
        {
            match sender.send_series(&series, target).map_err(|error| error.raw_os_error()) {
                Ok(()) => next += series.count,
                Err(Some(libc::EINTR)) => {}
                Err(Some(libc::EAGAIN)) => {
                    waits.for_writable = true;
                    return Some(taken(frame, next));
                }
                // Staged, it is parted, tried again or counted.
                Err(_) => break,
            }
        }
        (next > frame.first).then(|| taken(frame, next))
    }
}
