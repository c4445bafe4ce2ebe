//! Pause frames (PFC): the underlays that have them, and the policies that fit the others.

use super::{Policy, UnderlayKind};

impl UnderlayKind {
    /// Returns true if pause frames (PFC) can be sent and heard there.
    #[must_use]
    pub const fn has_pauses(self) -> bool {
        !matches!(self, Self::Udp)
    }
}

impl Policy {
    /// Returns the policy that differs as little as an underlay asks for: without pause frames the
    /// physical network is lossy.
    #[must_use]
    pub const fn on(self, underlay: UnderlayKind) -> Self {
        match self {
            Self::LZ if !underlay.has_pauses() => Self::LL,
            Self::ZZ if !underlay.has_pauses() => Self::ZL,
            fitting => fitting,
        }
    }
}
