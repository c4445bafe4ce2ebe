//! A configuration that was applied to a running host.

use serde::{Deserialize, Serialize};

/// Outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reloaded {
    /// Process id of the data process, which goes on; absent: none runs just now, and the next one
    /// starts with the new configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// Changes that took effect, in words.
    pub changed: Vec<String>,
    /// Changes that take effect at a restart of the data process.
    pub at_restart: Vec<AtRestart>,
    /// Frames that ended with networks and peers that were removed.
    pub ended_frames: u64,
}

/// A change that takes effect at a restart of the data process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AtRestart {
    /// Key of the configuration, like `host.workers`.
    pub key: String,
    /// Reason why it does not take effect now.
    pub why: String,
}
