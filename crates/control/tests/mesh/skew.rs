//! A version of the protocol that does not exist yet.

use sluice_wire::fabric::{FRAME_SIZE_MAX, HEADER_SIZE};

/// The frames as a version with more fields sends them: more at the end of each body.
pub(crate) fn with_more_fields(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(size) = bytes.first_chunk::<2>() {
        let size = usize::from(u16::from_be_bytes(*size));
        let (frame, rest) = bytes.split_at(HEADER_SIZE + size);
        let more = if frame.len() + 3 <= FRAME_SIZE_MAX { 3_u8 } else { 0 };
        out.extend(u16::try_from(size + usize::from(more)).unwrap().to_be_bytes());
        out.extend(&frame[2..]);
        out.extend(std::iter::repeat_n(0xee, usize::from(more)));
        bytes = rest;
    }
    out
}
