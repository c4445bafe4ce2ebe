//! Segments out of a tunnel that came together: they become one frame before the switch sees them,
//! so that their number costs neither it nor what comes behind it.
//!
//! ```text
//!   came:    | VXLAN, headers 0 | payload 0 | VXLAN, headers 1 | payload 1 | ...
//!   becomes: | outer headers, VXLAN, headers | payload 0 | payload 1 | ...
//! ```
//!
//! The outer headers are those of each segment and belong to what the driver of the output makes
//! anew for each: a frame counts with the bytes of all its segments, outer headers included, which
//! is what was on the wire.

use sluice_base::Priority;

use super::Flow;
use super::segment::Segment;
use crate::frame::FrameBuf;
use crate::pool::Pool;

/// Size of the header of VXLAN, and of the outer headers in front of it.
const VXLAN_SIZE: usize = 8;
const OUTER_SIZE: usize = 42;
const STRIP: u16 = 50;
const _: () = assert!(VXLAN_SIZE + OUTER_SIZE == STRIP as usize);

/// Datagrams that came together, each of one size but for the last one, which may be smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) each: usize,
}

/// Joins the datagrams at the front of a run, at most `most`, if they are segments of one flow.
/// `outer` writes the outer headers in front of the first one, whose size it is told. Returns the
/// frame, and the number of datagrams in it.
pub(crate) fn join(
    run: Run<'_>,
    most: usize,
    pool: &mut Pool,
    outer: impl FnOnce(&mut [u8], usize),
) -> Option<(FrameBuf, usize)> {
    let mut datagrams = run.bytes.chunks(run.each).take(most);
    let first = datagrams.next().filter(|_| run.bytes.len() > run.each && most > 1)?;
    let (vxlan, inner) = first.split_at_checked(VXLAN_SIZE)?;
    let segment = Segment::parse(inner).filter(|first| first.begins && !first.is_pushed())?;
    let mut slot = pool.take_large_to_spare()?;
    let (front, memory) = slot.bytes_mut().split_at_mut(STRIP.into());
    let mut flow = Flow::over(memory);
    flow.begin(&segment, Priority::ZERO);
    for datagram in datagrams {
        let next = datagram.strip_prefix(vxlan).and_then(Segment::parse);
        let Some(next) = next.filter(|next| flow.is_same_flow(next) && flow.takes(next)) else {
            break;
        };
        flow.append(&next);
    }
    let count = usize::from(flow.segments);
    let Some(left) = flow.finish() else {
        pool.cancel_large(&slot);
        return None;
    };
    let (headers, in_front) = front.split_at_mut(OUTER_SIZE);
    outer(headers, first.len());
    in_front.copy_from_slice(vxlan);
    Some((slot.freeze(&left.behind(STRIP)), count))
}

#[cfg(test)]
mod tests;
