//! The share of its input that one queue may hold: see `shared_buffer.rs`.

use sluice_base::Priority;

use crate::config::Limit;
use crate::egress::Node;
use crate::pause::PauseSender;
use crate::place::{Full, Held};

use super::{Ingress, Input};

/// The whole of an input, of which a share is a part.
const WHOLE: u16 = 256;

/// Share of its input that one queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    frames: u32,
    bytes: u64,
}

impl Share {
    /// Returns a part of a limit; one frame at least, since a queue of one frame blocks no other.
    fn of(limit: Limit, part: u16) -> Self {
        let frames = u64::from(limit.frames) * u64::from(part) / u64::from(WHOLE);
        // Divides first to avoid an overflow: the control input has no limit in bytes.
        let bytes = limit.bytes.0 / u64::from(WHOLE) * u64::from(part);
        Self { frames: u32::try_from(frames).unwrap_or(u32::MAX).max(1), bytes }
    }

    /// The smallest share.
    const LEAST: Self = Self { frames: 1, bytes: 0 };

    /// Returns a lower bound of the shares of these inputs: a queue beyond its share is beyond this
    /// bound as well.
    fn least<'a, B: 'a>(inputs: impl Iterator<Item = &'a Input<B>> + Clone, part: u16) -> Self {
        if inputs.clone().any(|i| matches!(i.full(), Full::Pause(_))) {
            return Self::LEAST;
        }
        let shares = inputs.map(|i| Self::of(i.limit(), part));
        let least =
            |a: Self, b: Self| Self { frames: a.frames.min(b.frames), bytes: a.bytes.min(b.bytes) };
        shares.reduce(least).unwrap_or(Self::LEAST)
    }

    #[inline]
    const fn is_passed_by(self, node: &Node) -> bool {
        node.ring_frames() > self.frames
            || (node.ring_bytes() as u64 > self.bytes && node.ring_frames() > 1)
    }
}

/// The share of its input that one pair may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairShare {
    /// Lower bound of the shares of all inputs.
    least: Share,
    /// The share as a part of [`WHOLE`].
    part: u16,
}

impl PairShare {
    /// Returns the share for a switch without inputs.
    pub(crate) const fn new(part: u16) -> Self {
        Self { least: Share::LEAST, part }
    }
}

impl<B> Ingress<B> {
    /// Recomputes the lower bound of all shares after inputs came or went.
    pub(crate) fn inputs_changed(&mut self, is_live: impl Fn(&Input<B>) -> bool + Copy) {
        let inputs = self.inputs.iter().filter(|input| is_live(input));
        self.pair_share.least = Share::least(inputs, self.pair_share.part);
    }

    /// Returns true if a queue may hold more than its share: it passes that of the smallest input.
    #[inline]
    pub(crate) const fn may_be_over(&self, queue: &Node) -> bool {
        self.pair_share.least.is_passed_by(queue)
    }

    /// Returns true if a queue holds more than its share of an input. `pause` is the flow control
    /// of the input's port, `held` what waits at the input in the queue's priority.
    pub(crate) fn is_over(
        &self,
        input: u16,
        queue: &Node,
        pause: Option<&PauseSender>,
        held: Held,
    ) -> bool {
        let i = self.input(input);
        let share = Share::of(i.limit(), self.pair_share.part);
        match (i.full(), pause) {
            (Full::Pause(paused), Some(pause))
                if paused.contains(Priority::from_low_bits(queue.priority())) =>
            {
                queue.ring_frames() > share.frames
                    || (queue.ring_frames() > 1 && self.is_over_below_xoff(queue, pause, held))
            }
            _ => share.is_passed_by(queue),
        }
    }

    /// Returns true if a queue holds more than `s / (1 - s)` times the room that is free below
    /// XOFF, with `s` the share of a pair.
    fn is_over_below_xoff(&self, queue: &Node, pause: &PauseSender, held: Held) -> bool {
        let free = pause.xoff().saturating_sub(pause.weight(held.frames, held.bytes));
        let own = pause.weight(queue.ring_frames(), queue.ring_bytes().into());
        let rest = WHOLE.saturating_sub(self.pair_share.part);
        own.saturating_mul(rest.into()) > free.saturating_mul(self.pair_share.part.into())
    }

    #[cfg(test)]
    pub(crate) const fn pair_share(&self) -> PairShare {
        self.pair_share
    }
}
