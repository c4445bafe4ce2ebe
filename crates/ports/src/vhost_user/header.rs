//! The header in front of every frame in a virtqueue (virtio 1.2 section 5.1.6), and copies out of
//! and into pieces of a guest's memory.

use std::ptr::NonNull;

use super::offload::NEEDS_CSUM;
use super::ring::{Chain, Fault};

/// Size of the header with `num_buffers`, as `VIRTIO_F_VERSION_1` demands.
pub(super) const HEADER_SIZE: usize = 12;
/// Offsets of `gso_type` and `num_buffers`; `flags` come first.
const GSO_TYPE: usize = 1;
pub(super) const NUM_BUFFERS: usize = 10;

/// Returns true if a frame is unfinished: it needs a checksum, or has to be cut into segments.
pub(super) const fn asks_for_offload(header: &[u8; HEADER_SIZE]) -> bool {
    header[0] & NEEDS_CSUM != 0 || header[GSO_TYPE] != 0
}

/// Makes the header of a finished frame for a guest, over `count` of its buffers.
pub(super) fn of_buffers(count: u16) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    header[NUM_BUFFERS..].copy_from_slice(&count.to_le_bytes());
    header
}

/// Copies from the front of a piece until either is used up, and shortens the piece. Returns the
/// size.
#[inline]
pub(super) fn copy_piece(at: &mut NonNull<u8>, left: &mut u32, into: &mut [u8]) -> usize {
    let size = into.len().min(*left as usize);
    // SAFETY: the piece is mapped and has `left` bytes. A guest may write to it meanwhile: then
    // some bytes are new and some old, and either is a byte.
    unsafe {
        std::ptr::copy_nonoverlapping(at.as_ptr(), into.as_mut_ptr(), size);
        *at = at.add(size);
    }
    #[expect(clippy::cast_possible_truncation, reason = "not above `left`")]
    let taken = size as u32;
    *left -= taken;
    size
}

/// Copies a finished frame without its header. `None` if it does not fit, or is unfinished.
///
/// # Errors
/// [`Fault`].
pub(super) fn skip_and_copy(chain: Chain<'_>, into: &mut [u8]) -> Result<Option<usize>, Fault> {
    let copied = copy_all(chain, into)?;
    Ok(copied.filter(|(header, _)| !asks_for_offload(header)).map(|(_, size)| size))
}

/// Copies a frame; returns its header and size. `None` if it does not fit, or has no whole header.
///
/// # Errors
/// [`Fault`].
pub(super) fn copy_all(
    mut chain: Chain<'_>,
    into: &mut [u8],
) -> Result<Option<([u8; HEADER_SIZE], usize)>, Fault> {
    let mut header = [0; HEADER_SIZE];
    let (mut header_size, mut size) = (0, 0);
    while let Some((mut at, mut left)) = chain.next()? {
        header_size += copy_piece(&mut at, &mut left, &mut header[header_size..]);
        size += copy_piece(&mut at, &mut left, &mut into[size..]);
        if left > 0 {
            // Walk to its end: a chain without one is a fault.
            while chain.next()?.is_some() {}
            return Ok(None);
        }
    }
    Ok((header_size == HEADER_SIZE).then_some((header, size)))
}
