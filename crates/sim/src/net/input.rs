//! The buffer at the end of a link.

use sluice_base::{DropReason, Mac, Priority};
use sluice_switch::{Limit, PauseConfig, PauseSender};

use super::config::NetConfig;
use crate::topology::Cable;

/// Bytes that came through one link and have not left its switch. The fields stand in this order so
/// that data used for every frame is one cache line: of the sender that is its beginning.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Input {
    /// Bytes per priority.
    pub(super) held: [u32; Priority::COUNT],
    /// Bytes of the lossy priorities together.
    pub(super) held_lossy: u32,
    /// Frames that are on their way to be counted by an event of their own. While there are any,
    /// no later frame may be counted before them.
    pub(super) open: u32,
    pub(super) limit: u32,
    pub(super) held_max: u32,
    /// True if a renewal of the pauses has its event.
    pub(super) renewing: bool,
    pub(super) sender: PauseSender,
    pub(super) drops: Drops,
}

/// Numbers of frames dropped, by the reasons that a physical switch has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drops {
    pub(super) input_full: u64,
    pub(super) output_full: u64,
}

impl Drops {
    pub(super) fn add(&mut self, reason: DropReason) {
        match reason {
            DropReason::OutputFull => self.output_full += 1,
            _ => self.input_full += 1,
        }
    }
}

impl Input {
    pub(super) fn new(cable: &Cable, config: &NetConfig) -> Self {
        let pause = PauseConfig {
            priorities: config.lossless,
            xoff: config.xoff,
            xon: config.xon,
            link: cable.rate,
            source: Mac([2, 0, 0, 0, 0, 1]),
        };
        // The buffer counts bytes, not frames.
        let limit = Limit { frames: u32::MAX, bytes: config.buffer };
        Self {
            held: [0; Priority::COUNT],
            held_lossy: 0,
            open: 0,
            limit: u32::try_from(config.buffer.0).unwrap_or(u32::MAX),
            sender: PauseSender::new(pause, limit),
            held_max: 0,
            renewing: false,
            drops: Drops::default(),
        }
    }
}
