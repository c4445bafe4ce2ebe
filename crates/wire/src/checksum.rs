//! The Internet checksum (RFC 1071) and its update in place (RFC 1624).

use core::net::{Ipv4Addr, Ipv6Addr};

/// Returns the checksum of `bytes`: the one's complement of their one's complement sum, in 16-bit
/// words, an odd last byte padded with zero (RFC 1071 section 1). Write it into a checksum field
/// that was zero while summing. Over bytes whose checksum field is filled in, the result is zero if
/// they are intact.
///
/// Adds two words at a time, and the carries at the end (RFC 1071 section 2 C, A).
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
    let (pairs, rest) = bytes.as_chunks::<4>();
    let sum: u64 = pairs.iter().map(|&pair| u64::from(u32::from_be_bytes(pair))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
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
