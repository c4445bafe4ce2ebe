//! Frames from a container, finished or with offloads to be performed.
//!
//! ```text
//!   read:  | header |  slot: room for offloads | frame ... |  large slot: .. | rest of the frame |
//! ```
//!
//! A frame is read into a slot. What does not fit there, a super-frame, goes on in a large slot, at
//! the place where it would lie if all of it were there; then its first part is copied in front.

use super::rings::Tap;
use crate::frame::FrameBuf;
use crate::net_header::{OFFERED, ask_of, asks_for_offload};
use crate::offload::Offload;
use crate::pool::{LargeSlot, Pool, SlotMut};

/// Result of one read.
pub(super) enum Came {
    Frame(FrameBuf),
    /// There is none.
    Nothing,
    /// The pool has no memory for one.
    NoMemory,
    /// It is larger than its device's MTU allows, and was dropped.
    Oversize,
    /// It requests what cannot be done, and was dropped.
    Invalid,
}

/// Reads one frame.
///
/// # Errors
/// The kernel's error; the device is gone.
pub(super) fn read(tap: &Tap, pool: &mut Pool) -> std::io::Result<Came> {
    let Some(mut slot) = pool.take() else { return Ok(Came::NoMemory) };
    // One that came before offloads were switched off is large, too.
    let wants_large = tap.has_net_header && pool.large_slots() > 0;
    let mut large = if wants_large { pool.take_large() } else { None };
    if wants_large && large.is_none() {
        pool.cancel(slot);
        return Ok(Came::NoMemory);
    }
    let first_size = slot.frame_mut().len();
    let rest = large.as_mut().map_or(&mut [][..], |large| &mut large.bytes_mut()[first_size..]);
    let room = first_size + rest.len();
    let found = tap.read(slot.frame_mut(), rest);
    let came = match &found {
        Ok(Some(found)) if found.size < room => {
            let request = asks_for_offload(&found.header).then(|| ask_of(&found.header, OFFERED));
            match request.transpose() {
                Ok(None) if found.size <= first_size => {
                    return Ok(keep(slot, large, pool, |slot| slot.freeze_frame(found.size)));
                }
                // No frame on a wire is as large.
                Ok(None) => Came::Oversize,
                Ok(Some(request)) => {
                    let head_size = found.size.min(first_size);
                    match Offload::check(request, &slot.frame_mut()[..head_size], found.size) {
                        Ok(left) if found.size <= first_size => {
                            return Ok(keep(slot, large, pool, |slot| {
                                slot.freeze_unfinished(&left)
                            }));
                        }
                        Ok(left) if left.is_super() => {
                            let mut large = large.expect("the rest lies there");
                            large.bytes_mut()[..first_size].copy_from_slice(slot.frame_mut());
                            pool.cancel(slot);
                            return Ok(Came::Frame(large.freeze(&left)));
                        }
                        Ok(_) => Came::Oversize,
                        Err(_invalid) => Came::Invalid,
                    }
                }
                Err(_invalid) => Came::Invalid,
            }
        }
        // The kernel truncates a frame to the room without a report.
        Ok(Some(_)) => Came::Oversize,
        Ok(None) | Err(_) => Came::Nothing,
    };
    cancel(slot, large, pool);
    found.map(|_| came)
}

fn keep(
    slot: SlotMut,
    large: Option<LargeSlot>,
    pool: &mut Pool,
    freeze: impl FnOnce(SlotMut) -> FrameBuf,
) -> Came {
    if let Some(large) = large {
        pool.cancel_large(&large);
    }
    Came::Frame(freeze(slot))
}

fn cancel(slot: SlotMut, large: Option<LargeSlot>, pool: &mut Pool) {
    pool.cancel(slot);
    if let Some(large) = large {
        pool.cancel_large(&large);
    }
}
