//! Buffers in which frames wait, and their limits.

use serde::{Deserialize, Serialize};

/// Limit of one buffer: both numbers bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Frames.
    pub frames: u32,
    /// Bytes.
    pub bytes: u64,
}

impl Size {
    /// Makes a limit of `frames` frames of at most 1,600 bytes.
    #[must_use]
    pub const fn frames(frames: u32) -> Self {
        Self { frames, bytes: frames as u64 * 1600 }
    }

    /// Makes a limit of `bytes`, with frames as small as 64 bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        let frames = bytes / 64;
        #[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
        let frames = if frames > 65536 { 65536 } else { frames as u32 };
        Self { frames, bytes }
    }
}

/// Buffers of a host, the same for all policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Buffers {
    /// Frames at one container's input (lossless: its own frames; lossy: unused).
    pub vport_in: Size,
    /// Frames for one container (lossy: beyond it frames drop).
    pub vport_out: Size,
    /// Frames at the input from the underlay (the NIC's receive queue).
    pub underlay_in: Size,
    /// Frames for the underlay, per tunnel.
    pub underlay_out: Size,
    /// Frames at each end of a link of a physical switch.
    pub cable: Size,
    /// Host pool for frames that came from the underlay.
    pub pool_from_underlay: Size,
    /// Host pool for frames that came from local ports.
    pub pool_from_local: Size,
    /// Part of an input that one destination may fill before its frames are copied to the shared
    /// buffer, in percent.
    pub pair_share_percent: u8,
    /// Frames under replication.
    pub replicated_frames: u32,
    /// Copies one output may hold.
    pub copies_per_output: u32,
    /// Frames of isolated receivers from the underlay or a link. One receiver may have half of it.
    pub reserve: Size,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            vport_in: Size::frames(64),
            vport_out: Size::frames(64),
            underlay_in: Size::frames(256),
            underlay_out: Size::frames(256),
            cable: Size::bytes(200_000),
            pool_from_underlay: Size::frames(256),
            pool_from_local: Size::frames(256),
            pair_share_percent: 50,
            replicated_frames: 64,
            copies_per_output: 64,
            // Half of it is what 10 Gbit/s bring in full frames in 10 ms, until other hosts hold.
            reserve: Size::frames(16_384),
        }
    }
}
