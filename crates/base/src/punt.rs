//! Punts: heads of frames that the switch hands to the control plane.

/// Upper bound of the bytes of its frame that a punt carries.
pub const PUNT_HEAD_SIZE_MAX: usize = 128;

/// Reason why the switch punts a frame to the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PuntCause {
    /// The forwarding table (FDB) does not have the frame's destination. The frame waits.
    Miss,
    /// The forwarding table does not have the frame's source.
    NewSource,
    /// The forwarding table has the frame's source at another port or tunnel.
    Moved,
    /// ARP (RFC 826) to a group, taken out of the data path.
    Arp,
    /// A Neighbor Solicitation or Advertisement (RFC 4861 sections 4.3 and 4.4) to a group, taken
    /// out of the data path.
    Nd,
    /// ARP or Neighbor Discovery that is forwarded as well, router discovery and redirects
    /// included.
    Snooped,
}

impl PuntCause {
    /// All causes, in the order of their indices.
    pub const ALL: [Self; 6] =
        [Self::Miss, Self::NewSource, Self::Moved, Self::Arp, Self::Nd, Self::Snooped];
    /// Number of causes.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the cause as an index below [`Self::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns true if the frame was taken out of the data path, and the punt has all of it:
    /// control answers it, floods it, or drops it with a reason.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        matches!(self, Self::Arp | Self::Nd)
    }
}

#[cfg(test)]
mod tests;
