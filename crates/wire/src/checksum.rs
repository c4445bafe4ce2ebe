//! The Internet checksum (RFC 1071) and its update in place (RFC 1624).

use core::net::{Ipv4Addr, Ipv6Addr};

/// Returns the checksum of `bytes`: the one's complement of their one's complement sum, in 16-bit
/// words, an odd last byte padded with zero (RFC 1071 section 1). Write it into a checksum field
/// that was zero while summing. Over bytes whose checksum field is filled in, the result is zero if
/// they are intact.
///
/// Adds several words at a time, and the carries at the end (RFC 1071 section 2 C, A).
#[inline]
#[must_use]
pub fn internet(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Returns the checksum of `message`, the whole payload of an IPv6 packet, and of the pseudo-header
/// in front of it: both addresses, its size and its protocol (RFC 8200 section 8.1, RFC 4443 clause
/// 2.3). Zero if the message carries the right one.
#[inline]
#[must_use]
pub fn over_ipv6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, message: &[u8]) -> u16 {
    let size = u64::try_from(message.len()).expect("a size has at most 64 bits");
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    !fold(addresses + size + u64::from(protocol) + sum(message))
}

/// Returns the checksum of `message`, the whole payload of an IPv4 packet, and of the pseudo-header
/// in front of it (RFC 9293 section 3.1, RFC 768). Zero if the message carries the right one.
#[inline]
#[must_use]
pub fn over_ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, message: &[u8]) -> u16 {
    let size = u64::try_from(message.len()).expect("a size has at most 64 bits");
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    !fold(addresses + size + u64::from(protocol) + sum(message))
}

/// Returns the checksum of a message as [`over_ipv4`], whose `header` and `payload` lie apart.
///
/// # Panics
/// If the header ends inside a word, in a debug build.
#[inline]
#[must_use]
pub fn parts_over_ipv4(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    (header, payload): (&[u8], &[u8]),
) -> u16 {
    let size = u64::try_from(header.len() + payload.len()).expect("a size has at most 64 bits");
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    !fold(addresses + size + u64::from(protocol) + sum_parts(header, payload))
}

/// Returns the checksum of a message as [`over_ipv6`], whose `header` and `payload` lie apart.
///
/// # Panics
/// If the header ends inside a word, in a debug build.
#[inline]
#[must_use]
pub fn parts_over_ipv6(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    protocol: u8,
    (header, payload): (&[u8], &[u8]),
) -> u16 {
    let size = u64::try_from(header.len() + payload.len()).expect("a size has at most 64 bits");
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    !fold(addresses + size + u64::from(protocol) + sum_parts(header, payload))
}

#[inline]
fn sum_parts(header: &[u8], payload: &[u8]) -> u64 {
    debug_assert!(header.len().is_multiple_of(2), "a header ends with a word");
    sum(header) + sum(payload)
}

/// Returns the sum of the pseudo-header of an IPv4 packet whose payload has `size` bytes (RFC 9293
/// section 3.1). A checksum field that holds it is finished by the checksum of the payload.
#[must_use]
pub fn pseudo_ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, size: u16) -> u16 {
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    fold(addresses + u64::from(size) + u64::from(protocol))
}

/// Returns the sum of the pseudo-header of an IPv6 packet whose payload has `size` bytes (RFC 8200
/// section 8.1). A checksum field that holds it is finished by the checksum of the payload.
#[must_use]
pub fn pseudo_ipv6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, size: u16) -> u16 {
    let addresses = sum(&src.octets()) + sum(&dst.octets());
    fold(addresses + u64::from(size) + u64::from(protocol))
}

/// Returns the sum of `bytes` with all its carries, to be folded.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() >= LONG_SIZE_MIN {
        return sum_long(bytes);
    }
    let (pairs, rest) = bytes.as_chunks::<4>();
    let sum: u64 = pairs.iter().map(|&pair| u64::from(u32::from_be_bytes(pair))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// Size from which on one exchange of the two bytes at the end costs less than one for each word.
const LONG_SIZE_MIN: usize = 128;

/// Returns the sum of many bytes as [`sum`], or a number with the same remainder. Adds words in the
/// machine's own order, and exchanges the bytes of the result (RFC 1071 section 2 B): so a compiler
/// adds as many at a time as a register holds.
fn sum_long(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut low, mut high) = (0_u64, 0_u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        low += word & u64::from(u32::MAX);
        high += word >> u32::BITS;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = u64::from_ne_bytes(last);
    // Each is below 2^32 times the number of words.
    let sum = low + high + (last & u64::from(u32::MAX)) + (last >> u32::BITS);
    u64::from(u16::from_be(fold(sum)))
}

/// Returns the new value of `checksum` after one word that it covers changes from `old` to `new`
/// (RFC 1624 section 3, equation 3). A checksum that was wrong stays wrong.
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
