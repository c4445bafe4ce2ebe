//! Identifiers. Each is an index into a table that is sized at start, or a value of a wire format.

use core::fmt;
use core::str::FromStr;

macro_rules! index_id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// Returns the identifier as an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// Returns the identifier of table position `index`. Panics if the table is larger than
            /// the identifier can count; tables are checked against that at start.
            #[must_use]
            pub const fn from_index(index: usize) -> Self {
                assert!(index <= <$int>::MAX as usize);
                #[expect(clippy::cast_possible_truncation, reason = "asserted just before")]
                Self(index as $int)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

index_id!(
    /// An attachment point of a switch.
    PortId, u16);
index_id!(
    /// One queue of one port, as a driver reads it: frames enter the switch here.
    InputId, u16);
index_id!(
    /// A sender into the switch, as fairness counts them: a local input or a remote host.
    SourceId, u16);
index_id!(
    /// A destination that can be held back by itself: a local port, a tunnel, or a destination that
    /// is not yet resolved.
    QueueGroupId, u32);
index_id!(
    /// The pair (this host, a remote VTEP). It has a meaning on this host only.
    TunnelId, u16);
index_id!(
    /// A host of the fabric.
    HostId, u16);
index_id!(
    /// A tenant's layer-2 network, as this host numbers it; the number on the wire is its [`Vni`].
    VnetId, u16);

/// VXLAN Network Identifier, 24 bits (RFC 7348 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vni(u32);

impl Vni {
    /// The largest value, 2^24 - 1.
    pub const MAX: u32 = 0x00ff_ffff;

    /// Returns `None` if `value` does not fit into 24 bits.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX { Some(Self(value)) } else { None }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An IEEE 802 MAC address in transmission order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// 01:80:c2:00:00:01, the destination of MAC Control PAUSE and PFC frames (802.3 annex 31B,
    /// 802.1Q clause 36).
    pub const PAUSE: Self = Self([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);

    /// Returns true if this is a group address (broadcast included): bit 0 of the first octet.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns true if a machine can have it: it is no group address and not all zeros.
    #[must_use]
    pub const fn is_individual(self) -> bool {
        !self.is_group() && self.to_u64() != 0
    }

    /// Returns true if a bridge must not forward it: 01:80:c2:00:00:00 to :0f (802.1Q clause
    /// 8.6.3).
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0x00, 0x00, last] if last <= 0x0f)
    }

    /// Returns the address as a number below 2^48, first octet highest.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        let m = self.0;
        u64::from_be_bytes([0, 0, m[0], m[1], m[2], m[3], m[4], m[5]])
    }

    /// Returns the address of the low 48 bits of `value`.
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        let b = value.to_be_bytes();
        Self([b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5])
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six two-digit hexadecimal numbers separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six two-digit hexadecimal numbers, like 02:00:00:00:00:01")
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(octets)) }
    }
}

/// An 802.1p priority, 0 to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 8;
    /// The priority of best effort.
    pub const ZERO: Self = Self(0);

    /// Returns `None` above 7.
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 8 { Some(Self(value)) } else { None }
    }

    /// Returns the priority of the low three bits of `value`, as in a PCP field.
    #[must_use]
    pub const fn from_low_bits(value: u8) -> Self {
        Self(value & 7)
    }

    /// Returns the number, 0 to 7.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns all eight priorities, lowest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (0..8).map(Self)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PriorityMask(pub u8);

impl PriorityMask {
    /// No priority.
    pub const NONE: Self = Self(0);
    /// All eight priorities.
    pub const ALL: Self = Self(0xff);

    /// Returns true if `priority` is in the set.
    #[must_use]
    pub const fn contains(self, priority: Priority) -> bool {
        self.0 >> priority.0 & 1 == 1
    }

    /// Adds `priority`.
    pub const fn insert(&mut self, priority: Priority) {
        self.0 |= 1 << priority.0;
    }

    /// Takes `priority` out.
    pub const fn remove(&mut self, priority: Priority) {
        self.0 &= !(1 << priority.0);
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns `priority` if it is in the set, else the lowest priority of the set; for the empty
    /// set, `priority`.
    #[must_use]
    pub const fn nearest(self, priority: Priority) -> Priority {
        if self.contains(priority) || self.is_empty() {
            return priority;
        }
        #[expect(clippy::cast_possible_truncation, reason = "below eight")]
        Priority(self.0.trailing_zeros() as u8)
    }

    /// Returns the priorities that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the priorities of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Destination of frames for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Out of a local port.
    Port(PortId),
    /// Through a tunnel.
    Tunnel(TunnelId),
}

#[cfg(test)]
mod tests;
