//! The chip of a host, which forwards frames of known addresses.

use serde::{Deserialize, Serialize};

/// Kind of a chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChipKind {
    /// The switch of the data process forwards every frame.
    #[default]
    Software,
    /// The Linux kernel forwards frames of known addresses between ports of kind `kernel`, access
    /// ports of plain machines, and tunnels. It drops when a queue is full.
    Kernel,
    /// As `kernel`, and access ports are those of a switch whose driver offloads bridges: its
    /// device forwards between them.
    Switchdev,
}

impl ChipKind {
    /// Returns the word used in every setting.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Kernel => "kernel",
            Self::Switchdev => "switchdev",
        }
    }
}

/// The chip of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// Its kind.
    #[serde(default)]
    pub kind: ChipKind,
    /// Addresses that it may hold.
    #[serde(default = "default_macs")]
    pub macs: u32,
    /// Addresses among them that lead to other hosts.
    #[serde(default = "default_flows")]
    pub flows: u32,
}

impl Default for Chip {
    fn default() -> Self {
        Self { kind: ChipKind::default(), macs: default_macs(), flows: default_flows() }
    }
}

impl Chip {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

const fn default_macs() -> u32 {
    288 << 10
}

const fn default_flows() -> u32 {
    56 << 10
}
