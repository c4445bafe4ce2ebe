//! Explicit Congestion Notification: the low two bits of the IPv4 type of service and the IPv6
//! traffic class (RFC 3168 section 5), and their treatment at the end of a tunnel (RFC 6040).

/// The transport does not understand ECN.
pub const NOT_ECT: u8 = 0b00;
/// ECN-capable transport, ECT(1).
pub const ECT_1: u8 = 0b01;
/// ECN-capable transport, ECT(0).
pub const ECT_0: u8 = 0b10;
/// Congestion was experienced.
pub const CE: u8 = 0b11;

/// The two bits as RFC 3168 places them in a byte.
pub(crate) const MASK: u8 = 0b11;

/// Returns the inner field of a packet that leaves a tunnel, from both fields as they arrived (RFC
/// 6040 section 4.2, figure 4). `None`: the packet must be dropped, since it is marked for
/// congestion and its transport is not ECN-capable. Only the low two bits of the arguments count.
#[inline]
#[must_use]
pub const fn decapsulate(outer: u8, inner: u8) -> Option<u8> {
    match (outer & MASK, inner & MASK) {
        (CE, NOT_ECT) => None,
        (_, NOT_ECT) => Some(NOT_ECT),
        (CE, _) | (_, CE) => Some(CE),
        (ECT_1, _) => Some(ECT_1),
        (_, inner) => Some(inner),
    }
}

#[cfg(test)]
mod tests;
