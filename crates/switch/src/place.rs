//! Amounts held at some place, and numbers that mean no place.

use sluice_base::PriorityMask;

use crate::config::InputFull;

/// Size of the Ethernet header in front of a layer-3 packet.
pub(crate) const ETHERNET_BYTES: u32 = 14;

/// The network of an input whose frames may belong to any network.
pub(crate) const NO_VNET: u16 = u16::MAX;

/// The port number of a queue group without a port.
pub(crate) const NO_PORT: u16 = u16::MAX;

/// Behaviour of a full input; the thresholds of a pause are in the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Wait,
    Drop,
    Pause(PriorityMask),
}

impl From<InputFull> for Full {
    fn from(full: InputFull) -> Self {
        match full {
            InputFull::Wait => Self::Wait,
            InputFull::Drop => Self::Drop,
            InputFull::Pause(pause) => Self::Pause(pause.priorities),
        }
    }
}

/// Frames and bytes held at some place. An amount is a value: whoever counts keeps it private.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

impl Held {
    /// No limit.
    pub(crate) const MAX: Self = Self { frames: u32::MAX, bytes: u64::MAX };
}
