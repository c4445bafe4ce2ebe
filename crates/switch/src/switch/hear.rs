//! Classification for a driver whose neighbour is paused by priority: the driver asks for the
//! priority of a frame before it hands the frame over. Frames of flow control need no window.
//!
//! 802.3 puts MAC Control below the buffers (clause 31): a pause frame of a neighbour must not wait
//! for room in our buffers, or two switches with full buffers never hear each other.

use core::net::Ipv4Addr;

use sluice_base::{Buf, DropReason, InputId, Mac, Nanos, Priority, PriorityMask, VlanTag};

use crate::classify::{self, Marking, OuterVerdict, Verdict};
use crate::config::{PortRole, Tags, Trust};
use crate::inspect::Counter;
use crate::place::NO_PORT;
use crate::switch::Switch;

/// Bytes of a frame that the switch would see.
const HEAD_SIZE_MAX: usize = <&'static [u8] as Buf>::HEAD_SIZE_MAX;

/// Finds the priority of frames by the rule of one port. The rule is a copy: it is valid as long as
/// the port keeps its role and its address.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// Addresses of an underlay port.
    ends: Option<(Ipv4Addr, Mac)>,
    tags: Tags,
    trust: Trust,
    default: Priority,
    dscp_to_priority: [Priority; 64],
    priorities: PriorityMask,
}

impl Classifier {
    /// Returns the rule of an access port that takes any priority, and whose driver leaves tags in
    /// their frames.
    #[must_use]
    pub fn access(trust: Trust, default: Priority, dscp_to_priority: [Priority; 64]) -> Self {
        let (tags, priorities) = (Tags::Kept, PriorityMask::ALL);
        Self { ends: None, tags, trust, default, dscp_to_priority, priorities }
    }

    /// Returns the priority under which the switch will charge a frame: `head` are its first bytes,
    /// `size` is that of the whole frame, and `tag` is the driver's treatment of its tag.
    #[must_use]
    pub fn priority(&self, head: &[u8], size: u32, tag: VlanTag) -> Priority {
        let head = &head[..head.len().min(HEAD_SIZE_MAX)];
        let marking = Marking {
            trust: self.trust,
            default: self.default,
            dscp_to_priority: &self.dscp_to_priority,
        };
        if let Some((local, mac)) = self.ends {
            return match classify::underlay(head, size, local, mac, marking) {
                OuterVerdict::Forward(frame) => frame.inner.priority,
                OuterVerdict::Pause(_) => Priority::ZERO,
                OuterVerdict::Drop(_, priority) => priority,
            };
        }
        let verdict = match self.tags {
            Tags::Kept => classify::access(head, size, marking),
            Tags::Access | Tags::Trunk => classify::behind_driver(head, size, marking, tag),
        };
        match verdict {
            Verdict::Forward(classified) => self.priorities.nearest(classified.priority),
            Verdict::Pause(_) => Priority::ZERO,
            Verdict::Drop(_) => self.priorities.nearest(self.default),
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Returns the rule by which this switch finds the priority of frames of an input.
    #[must_use]
    pub fn classifier(&self, input: InputId) -> Classifier {
        let i = self.ingress.input(input.0);
        let port = self.egress.port(usize::from(i.port()));
        let ends = match port.role() {
            PortRole::Underlay { local, mac } => Some((local, mac)),
            PortRole::Access { .. } | PortRole::Handoff => None,
        };
        Classifier {
            ends,
            tags: port.tags(),
            trust: port.trust(),
            default: port.default_priority(),
            dscp_to_priority: *self.dscp.priorities(),
            priorities: i.priorities(),
        }
    }

    /// Takes a frame of flow control that a driver keeps apart from data. The frame needs no window
    /// and no handle, whatever the input holds, and is counted like one that came among data.
    pub fn hear(&mut self, now: Nanos, input: InputId, frame: &[u8]) {
        let port = self.ingress.input(input.0).port();
        if port == NO_PORT || self.egress.port(usize::from(port)).is_detached() {
            return;
        }
        let size = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let message = match self.egress.port(usize::from(port)).role() {
            PortRole::Underlay { local, mac } => {
                match classify::underlay(frame, size, local, mac, self.marking(port)) {
                    OuterVerdict::Pause(message) => Ok(message),
                    OuterVerdict::Drop(reason, _) => Err(reason),
                    OuterVerdict::Forward(_) => Err(DropReason::BadPause),
                }
            }
            PortRole::Access { .. } | PortRole::Handoff => {
                match classify::access(frame, size, self.marking(port)) {
                    Verdict::Pause(message) => Ok(message),
                    Verdict::Drop(reason) => Err(reason),
                    Verdict::Forward(_) => Err(DropReason::BadPause),
                }
            }
        };
        let (at, priority, sum) = (input.0, Priority::ZERO.get(), Counter::of(size));
        self.ledger.receive(at, priority, sum);
        match message {
            Ok(message) => {
                self.egress.hear_pause(port, now, &message);
                self.ledger.consume(at, priority, sum);
            }
            Err(reason) => self.ledger.drop(at, priority, reason, sum),
        }
    }
}
