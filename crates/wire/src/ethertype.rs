//! EtherTypes (IEEE 802.3 clause 3.2.6; numbers from the IEEE registry).

use core::fmt;

/// An EtherType, known or not. Values below 0x0600 are lengths of 802.2 frames (802.3 clause
/// 3.2.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A C-tag (802.1Q clause 9.5).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464 section 3).
    pub const IPV6: Self = Self(0x86dd);
    /// MAC Control: PAUSE and PFC (802.3 clause 31.4.1).
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// An S-tag (802.1Q clause 9.5), the outer one of two.
    pub const QINQ: Self = Self(0x88a8);
    /// Local Experimental EtherType 1 (IEEE 802 clause 9.2.3): what it carries says so itself.
    pub const LOCAL_EXPERIMENTAL: Self = Self(0x88b5);

    /// Returns true if a VLAN tag follows, of either kind.
    #[inline]
    #[must_use]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}
