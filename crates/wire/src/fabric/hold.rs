//! Receivers of one host that do not take their frames, as reported to a host that sends to them:
//! the body of a question about [`Topic::HOLD`](super::Topic::HOLD).
//!
//! ```text
//!  | incarnation, 8 | sequence, 8 | part, 1 | parts, 1 | groups, 1 | group ...
//!  group: | VNI, 3 | held, 1 | stuck, 1 | count, 1 | MAC, 6 ...
//! ```
//!
//! All parts of one **sequence** make up the whole state: an endpoint that none of them names is
//! released. `held` and `stuck` are sets of priorities, bit `p` for priority `p`. A newer version
//! may add fields behind the last group.

use sluice_base::{Mac, PriorityMask, Vni};
use zerocopy::network_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ASK_SIZE_MAX;
use crate::{Truncated, put, split};

/// Upper bound of the parts of a state.
pub const HOLD_PARTS_MAX: u8 = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawHead {
    incarnation: U64,
    sequence: U64,
    part: u8,
    parts: u8,
    groups: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawGroup {
    vni: [u8; 3],
    held: u8,
    stuck: u8,
    count: u8,
}

const HEAD_SIZE: usize = size_of::<RawHead>();
const GROUP_SIZE: usize = size_of::<RawGroup>();
const MAC_SIZE: usize = size_of::<[u8; 6]>();
const _: () = assert!(HEAD_SIZE + GROUP_SIZE + MAC_SIZE <= ASK_SIZE_MAX);
// No count overflows, however a part is filled.
const _: () = assert!((ASK_SIZE_MAX - HEAD_SIZE) / (GROUP_SIZE + MAC_SIZE) <= u8::MAX as usize);
const _: () = assert!((ASK_SIZE_MAX - HEAD_SIZE) / MAC_SIZE <= u8::MAX as usize);

/// The bytes are no such body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldError {
    /// It ends before its fields do.
    Truncated,
    /// A part beyond the number of parts, or more parts than may be.
    Parts {
        /// The part.
        part: u8,
        /// The number of them.
        parts: u8,
    },
}

/// An endpoint whose senders are to hold frames for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The network of the endpoint.
    pub vni: Vni,
    /// The address of the endpoint.
    pub mac: Mac,
    /// Priorities that are held.
    pub held: PriorityMask,
    /// Held priorities whose hold contract is over.
    pub stuck: PriorityMask,
}

/// Position of a part in the order of all parts that its sender ever sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOrder {
    /// The run of the sender's control plane.
    pub incarnation: u64,
    /// The number of the state in that run.
    pub sequence: u64,
    /// The number of the part, from zero.
    pub part: u8,
    /// Number of parts of the state.
    pub parts: u8,
}

/// A part of a state.
#[derive(Clone, Copy, Debug)]
pub struct HoldPart<'a> {
    order: HoldOrder,
    groups: u8,
    bytes: &'a [u8],
}

impl<'a> HoldPart<'a> {
    /// Checks the lengths; afterwards every field can be read.
    ///
    /// # Errors
    /// [`HoldError`] if they are wrong.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, HoldError> {
        let short = |Truncated| HoldError::Truncated;
        let (head, bytes) = split::<RawHead>(bytes).map_err(short)?;
        let (part, parts) = (head.part, head.parts);
        if part >= parts || parts > HOLD_PARTS_MAX {
            return Err(HoldError::Parts { part, parts });
        }
        let mut rest = bytes;
        for _ in 0..head.groups {
            let (group, behind) = split::<RawGroup>(rest).map_err(short)?;
            let macs = usize::from(group.count) * MAC_SIZE;
            rest = behind.get(macs..).ok_or(HoldError::Truncated)?;
        }
        let (incarnation, sequence) = (head.incarnation.get(), head.sequence.get());
        let order = HoldOrder { incarnation, sequence, part, parts };
        Ok(Self { order, groups: head.groups, bytes })
    }

    /// Returns its position in the order.
    #[must_use]
    pub const fn order(&self) -> HoldOrder {
        self.order
    }

    /// Returns the endpoints.
    pub fn iter(&self) -> impl Iterator<Item = Held> + 'a {
        let mut rest = self.bytes;
        (0..self.groups).flat_map(move |_| {
            let (group, behind) = split::<RawGroup>(rest).expect("checked");
            let (macs, after) = behind.split_at(usize::from(group.count) * MAC_SIZE);
            rest = after;
            let [high, middle, low] = group.vni;
            let vni = Vni::new(u32::from_be_bytes([0, high, middle, low]));
            let vni = vni.expect("three bytes are 24 bits");
            let held = PriorityMask(group.held);
            let stuck = PriorityMask(group.stuck).and(held);
            macs.chunks_exact(MAC_SIZE).map(move |mac| {
                let mac = Mac(mac.try_into().expect("chunks of six"));
                Held { vni, mac, held, stuck }
            })
        })
    }
}

/// Writes a part, endpoint by endpoint. Successive endpoints of one network and state share a
/// group.
#[derive(Debug)]
pub struct HoldWriter {
    out: [u8; ASK_SIZE_MAX],
    size: usize,
    groups: u8,
    /// Offset of the last group, its network, and its held and stuck priorities.
    group: Option<(usize, Vni, PriorityMask, PriorityMask)>,
}

impl Default for HoldWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl HoldWriter {
    /// Returns a part without endpoints.
    #[must_use]
    pub const fn new() -> Self {
        Self { out: [0; ASK_SIZE_MAX], size: HEAD_SIZE, groups: 0, group: None }
    }

    /// Adds an endpoint; `false`, and nothing happens, if there is no room.
    pub fn push(&mut self, one: &Held) -> bool {
        let same = self
            .group
            .filter(|&(_, vni, held, stuck)| (vni, held, stuck) == (one.vni, one.held, one.stuck));
        let more = if same.is_some() { MAC_SIZE } else { GROUP_SIZE + MAC_SIZE };
        if self.size + more > ASK_SIZE_MAX {
            return false;
        }
        let at = match same {
            Some((at, ..)) => at,
            None => {
                let at = self.size;
                let [_, high, middle, low] = one.vni.get().to_be_bytes();
                let vni = [high, middle, low];
                let raw = RawGroup { vni, held: one.held.0, stuck: one.stuck.0, count: 0 };
                put(&raw, &mut self.out[at..]);
                self.group = Some((at, one.vni, one.held, one.stuck));
                self.groups += 1;
                self.size += GROUP_SIZE;
                at
            }
        };
        self.out[at + GROUP_SIZE - 1] += 1;
        self.out[self.size..][..MAC_SIZE].copy_from_slice(&one.mac.0);
        self.size += MAC_SIZE;
        true
    }

    /// Ends the part.
    pub fn finish(&mut self, order: HoldOrder) -> &[u8] {
        let HoldOrder { incarnation, sequence, part, parts } = order;
        let (incarnation, sequence) = (U64::new(incarnation), U64::new(sequence));
        let groups = self.groups;
        put(&RawHead { incarnation, sequence, part, parts, groups }, &mut self.out);
        &self.out[..self.size]
    }
}

#[cfg(test)]
mod tests;
