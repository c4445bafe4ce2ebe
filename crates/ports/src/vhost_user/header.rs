//! Copies of frames, with the header in front of them, out of pieces of a guest's memory.

use std::ptr::NonNull;

use super::ring::{Chain, Fault};
use crate::net_header::{HEADER_SIZE, asks_for_offload};

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
