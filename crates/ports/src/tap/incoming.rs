//! Frames from a container, finished or with offloads to be performed.
//!
//! ```text
//!   read:  | header |  slot: room for offloads | frame ... |  large slot: .. | rest of the frame |
//! ```
//!
//! A frame is read into a slot. What does not fit there, a super-frame, goes on in a large slot, at
//! the place where it would lie if all of it were there; then its first part is copied in front.

use super::rings::{Found, Tap};
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
    let Some(mut room) = Room::take(tap, pool) else { return Ok(Came::NoMemory) };
    let (first, rest) = room.parts();
    let size = first.len() + rest.len();
    let found = match tap.read(first, rest) {
        Ok(Some(found)) => found,
        nothing => {
            room.give_back(pool);
            return nothing.map(|_| Came::Nothing);
        }
    };
    Ok(match judge(&found, room.first(), size) {
        Judged::Finished => Came::Frame(room.keep_first(pool).freeze_frame(found.size)),
        Judged::Unfinished(left) => Came::Frame(room.keep_first(pool).freeze_unfinished(&left)),
        Judged::Super(left) => Came::Frame(room.keep_whole(pool).freeze(&left)),
        Judged::Oversize => room.lose(pool, Came::Oversize),
        Judged::Invalid => room.lose(pool, Came::Invalid),
    })
}

/// Kind of a frame.
enum Judged {
    /// All of it lies in the slot.
    Finished,
    /// The same, with offloads to be performed.
    Unfinished(Offload),
    /// It goes on in the large slot.
    Super(Offload),
    Oversize,
    Invalid,
}

/// Judges a frame whose first part is in `first`, in a room of `size` bytes.
fn judge(found: &Found, first: &[u8], size: usize) -> Judged {
    // The kernel truncates a frame to the room without a report.
    if found.size >= size {
        return Judged::Oversize;
    }
    let is_first = found.size <= first.len();
    if !asks_for_offload(&found.header) {
        // No frame on a wire is larger than the slot.
        return if is_first { Judged::Finished } else { Judged::Oversize };
    }
    let head = &first[..found.size.min(first.len())];
    let checked =
        ask_of(&found.header, OFFERED).and_then(|ask| Offload::check(ask, head, found.size));
    match checked {
        Ok(left) if is_first => Judged::Unfinished(left),
        Ok(left) if left.is_super() => Judged::Super(left),
        Ok(_) => Judged::Oversize,
        Err(_invalid) => Judged::Invalid,
    }
}

/// Memory for one frame: a slot, and a large one where a super-frame may come.
struct Room {
    slot: SlotMut,
    large: Option<LargeSlot>,
}

impl Room {
    fn take(tap: &Tap, pool: &mut Pool) -> Option<Self> {
        let slot = pool.take()?;
        // One that came before offloads were switched off is large, too.
        if !tap.has_net_header || pool.large_slots() == 0 {
            return Some(Self { slot, large: None });
        }
        match pool.take_large() {
            Some(large) => Some(Self { slot, large: Some(large) }),
            None => {
                pool.cancel(slot);
                None
            }
        }
    }

    /// The slot, and the part of the large one in which a frame goes on.
    fn parts(&mut self) -> (&mut [u8], &mut [u8]) {
        let first = self.slot.frame_mut();
        let at = first.len();
        (first, self.large.as_mut().map_or(&mut [][..], |large| &mut large.bytes_mut()[at..]))
    }

    fn first(&mut self) -> &[u8] {
        self.slot.frame_mut()
    }

    /// The slot; the large one goes back.
    fn keep_first(self, pool: &mut Pool) -> SlotMut {
        if let Some(large) = self.large {
            pool.cancel_large(&large);
        }
        self.slot
    }

    /// The large slot with all of the frame; the other one goes back.
    fn keep_whole(mut self, pool: &mut Pool) -> LargeSlot {
        let mut large = self.large.expect("the rest lies there");
        let first = self.slot.frame_mut();
        large.bytes_mut()[..first.len()].copy_from_slice(first);
        pool.cancel(self.slot);
        large
    }

    fn give_back(self, pool: &mut Pool) {
        let slot = self.keep_first(pool);
        pool.cancel(slot);
    }

    fn lose(self, pool: &mut Pool, came: Came) -> Came {
        self.give_back(pool);
        came
    }
}
