//! Upper bounds of `truesize`: bytes that a datagram takes of its socket's receive buffer, in the
//! kernel's accounting.
//!
//! An `sk_buff` and its shared info are counted with the memory of the frame, which the allocator
//! rounds up: to a power of two below a page, to whole pages above. Too much costs a question more;
//! too little loses a datagram.

use crate::offload::Offload;

/// `struct sk_buff` and `struct skb_shared_info` with the room in front of a frame, on any
/// architecture: 256, 320 and at most 384 bytes of headroom on x86-64.
const OVERHEAD: u32 = 1024;
/// Largest frame whose memory is one block of less than a page.
const BLOCK_MAX: u32 = 4096 - OVERHEAD;
/// Pages are taken this many bytes at a time at most.
const PAGES: u32 = 4096;

/// Upper bound for one frame of this size.
pub(super) const fn of_frame(bytes: u32) -> u32 {
    if bytes <= BLOCK_MAX {
        (bytes + OVERHEAD / 2).next_power_of_two() + OVERHEAD / 2
    } else {
        2 * bytes + OVERHEAD + PAGES
    }
}

/// Upper bound for a super-frame, whose segments the kernel may give to the socket one by one.
pub(super) fn of_super(left: &Offload) -> u32 {
    of_frame(left.segment_size()).saturating_mul(u32::from(left.segments()).max(1))
}
