//! Receivers that do not take frames, in the scene of `scene.rs`.

use super::scene::{BOX, CULPRIT, SLOW, Scene};

/// A receiver that does not take frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Culprit {
    /// A virtual machine that stops refilling its ring.
    Guest,
    /// A container whose process is stopped (SIGSTOP).
    Stopped,
    /// A container whose card is down.
    CardDown,
    /// A port of 5 Mbit/s.
    Slow,
}

impl Culprit {
    /// Returns the machine that is flooded while the culprit reads.
    pub(crate) const fn beside(self) -> usize {
        match self {
            Self::Guest | Self::Slow => CULPRIT,
            Self::Stopped | Self::CardDown => BOX,
        }
    }

    /// Lets the culprit take nothing, or little, from now on.
    pub(crate) fn strike(self, scene: &Scene) {
        match self {
            Self::Guest => scene.reads(CULPRIT, false),
            Self::Stopped => scene.stop_reader(true),
            Self::CardDown => _ = scene.container.ip("link set t0 down"),
            Self::Slow => scene.flood(SLOW),
        }
    }

    /// Lets the culprit read again.
    pub(crate) fn heal(self, scene: &Scene) {
        match self {
            Self::Guest => scene.reads(CULPRIT, true),
            Self::Stopped => scene.stop_reader(false),
            Self::CardDown => _ = scene.container.ip("link set t0 up"),
            Self::Slow => scene.flood(CULPRIT),
        }
    }
}
