//! The Internet checksum (RFC 1071) and its update in place (RFC 1624).

/// The checksum of `bytes`: the one's complement of their one's complement sum, in 16-bit words,
/// an odd last byte padded with zero (RFC 1071 section 1). It is what goes into a checksum field
/// that was zero while summing; over bytes whose checksum field is filled in it is zero if they
/// are whole.
#[inline]
#[must_use]
pub fn internet(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
    let last = odd.first().map_or(0, |&byte| u64::from(byte) << 8);
    !fold(sum + last)
}

/// The checksum that `checksum` becomes when one word of what it covers changes from `old` to
/// `new` (RFC 1624 section 3, equation 3). A checksum that was wrong stays wrong.
#[inline]
#[must_use]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// Adds the carries of a sum of 16-bit words back in until none is left.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the loop ends below 2^16")]
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
