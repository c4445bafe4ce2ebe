//! Upper bounds of `truesize`: bytes that a datagram takes of its socket's receive buffer, in the
//! kernel's accounting.
//!
//! An `sk_buff` and its shared info are counted with the memory of the frame, which the allocator
//! rounds up: to a power of two below a page, to whole pages above. Too much costs a question more;
//! too little loses a datagram.

/// `struct sk_buff` and `struct skb_shared_info` with the room in front of a frame, on any
/// architecture: 256, 320 and at most 384 bytes of headroom on x86-64.
const OVERHEAD: u32 = 1024;
/// Largest frame whose memory is one block of less than a page.
const BLOCK_MAX: u32 = 4096 - OVERHEAD;
/// Pages are taken this many bytes at a time at most.
const PAGES: u32 = 4096;
/// Bytes in front of a frame in a guest's buffer, at most.
const GUEST_HEADER: u32 = 64;

/// Upper bound for one frame of this size.
pub(super) const fn of_frame(bytes: u32) -> u32 {
    if bytes <= BLOCK_MAX {
        (bytes + OVERHEAD / 2).next_power_of_two() + OVERHEAD / 2
    } else {
        2 * bytes + OVERHEAD + PAGES
    }
}

/// Upper bound for one frame of this size in a guest, whose card may have whole pages as receive
/// buffers: virtio-net sizes them by the average frame, and counts a buffer as a whole.
pub(super) const fn of_guest_frame(bytes: u32) -> u32 {
    let pages = (bytes + GUEST_HEADER).div_ceil(PAGES);
    let (in_pages, in_block) = (pages * PAGES + OVERHEAD, of_frame(bytes));
    if in_pages > in_block { in_pages } else { in_block }
}
