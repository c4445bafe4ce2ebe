//! Configuration of the physical network: its reaction to a full buffer.

use sluice_base::{BitRate, ByteCount, Nanos, PriorityMask};

/// The smallest frame, without its check sequence: a shorter one is padded (802.3 clause 3.2.8).
pub(crate) const FRAME_MIN: u16 = 60;
/// Bytes of a frame's check sequence.
const CHECK_SEQUENCE: u16 = 4;

/// Buffer in which a lossy frame may find no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// The buffer of the input it came through.
    #[default]
    Input,
    /// The queue of the output it goes to.
    Output,
}

/// The physical network, the same at every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetConfig {
    /// The priorities that are paused and never dropped.
    pub lossless: PriorityMask,
    /// The buffer of each port.
    pub buffer: ByteCount,
    /// Kind of buffer, for lossy priorities.
    pub buffering: Buffering,
    /// XOFF at this many bytes of one priority.
    pub xoff: ByteCount,
    /// XON at this many bytes or fewer.
    pub xon: ByteCount,
    /// Length of an output queue in bytes from which ECN-capable frames are marked; `None`: never.
    pub mark: Option<ByteCount>,
    /// Time of a switch from a frame's last bit to the moment it may leave.
    pub latency: Nanos,
    /// Time from the arrival of a pause frame to its effect.
    pub pause_response: Nanos,
    /// Bytes on the wire beside a frame's own: preamble, check sequence, gap (24 on Ethernet).
    pub overhead: u16,
    /// The largest frame, without its check sequence.
    pub frame_max: u16,
}

/// The hosts at the ends of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Time from the last bit of a frame to its delivery to the host.
    pub(crate) latency: Nanos,
    /// True if hosts are asked for the next frame when their card is free, and handle pause frames
    /// themselves: a virtual switch feeds the card. False if frames queue at the card.
    pub(crate) are_switches: bool,
}

/// A network that cannot keep its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetConfigError {
    /// XON must be below XOFF.
    Thresholds {
        /// XOFF.
        xoff: ByteCount,
        /// XON.
        xon: ByteCount,
    },
    /// The buffer does not hold the bytes that still come after XOFF.
    Headroom {
        /// Bytes needed above XOFF.
        needed: ByteCount,
        /// Bytes that there are above XOFF.
        there: ByteCount,
    },
    /// The buffer does not hold one frame.
    Buffer {
        /// The buffer.
        buffer: ByteCount,
    },
}

impl std::fmt::Display for NetConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Thresholds { xoff, xon } => {
                write!(f, "XON ({} bytes) must be below XOFF ({} bytes)", xon.0, xoff.0)
            }
            Self::Headroom { needed, there } => write!(
                f,
                "{} bytes may still come after XOFF, and the buffer has only {} above it: lower \
                 XOFF or enlarge the buffer",
                needed.0, there.0
            ),
            Self::Buffer { buffer } => {
                write!(f, "a buffer of {} bytes does not hold one frame", buffer.0)
            }
        }
    }
}

impl std::error::Error for NetConfigError {}

impl NetConfig {
    /// Returns the bytes that may still arrive in a priority after XOFF was reached, on a link of
    /// this rate and delay: the frame that reached it, bytes sent while the pause frame waited for
    /// a frame of its own direction, travelled and took effect, the frame that had begun then, and
    /// bytes on the link (802.1Q annex N).
    #[must_use]
    pub fn headroom(&self, rate: BitRate, delay: Nanos) -> ByteCount {
        let on_wire = u64::from(self.frame_max) + u64::from(self.overhead);
        // The frame that reaches XOFF is in the buffer with its check sequence.
        let frame = u64::from(self.frame_max + CHECK_SEQUENCE.min(self.overhead));
        let pause = sluice_wire::mac_control::FRAME_SIZE as u64 + u64::from(self.overhead);
        let span = Nanos(2 * delay.0 + self.pause_response.0);
        ByteCount(frame + on_wire + pause + on_wire + rate.bytes_in(span).0 + 1)
    }

    /// Checks the thresholds for links of this rate and delay.
    ///
    /// # Errors
    /// The error that would lose a frame.
    pub fn check(&self, rate: BitRate, delay: Nanos) -> Result<(), NetConfigError> {
        if self.buffer.0 < u64::from(self.frame_max) {
            return Err(NetConfigError::Buffer { buffer: self.buffer });
        }
        if self.lossless.is_empty() {
            return Ok(());
        }
        if self.xon.0 >= self.xoff.0 {
            return Err(NetConfigError::Thresholds { xoff: self.xoff, xon: self.xon });
        }
        let needed = self.headroom(rate, delay);
        let there = ByteCount(self.buffer.0.saturating_sub(self.xoff.0));
        if there.0 < needed.0 {
            return Err(NetConfigError::Headroom { needed, there });
        }
        Ok(())
    }
}
