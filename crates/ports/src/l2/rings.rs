//! The ring that the kernel fills.

/// What a frame costs on the wire beside its bytes: preamble, check sequence, inter-frame gap.
pub const WIRE_OVERHEAD: u32 = 24;

/// How large a ring is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlan {
    /// Frames it holds.
    pub frames: u32,
    /// Memory it takes.
    pub memory_bytes: u64,
    /// Bytes on the wire that it surely holds, if no frame is smaller than planned.
    pub covered_bytes: u64,
}
