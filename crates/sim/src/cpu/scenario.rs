//! What is simulated.

use sluice_base::{BitRate, Nanos, Priority};
use sluice_placement::Config;

use super::params::Params;

/// Bytes that the tunnel adds to a datagram's payload before the outer IP header: outer UDP and
/// VXLAN, inner Ethernet, IP and UDP (RFC 7348 section 5).
const HEADERS: u64 = 8 + 8 + 14 + 20 + 8;
/// What an outer IP packet carries with an MTU of 1,500.
const OUTER_PAYLOAD: u64 = 1480;
/// A segment's share of the wire beside its payload: outer IP and Ethernet, preamble, gap.
const WIRE_OVERHEAD: u64 = 20 + 38;

/// What becomes of a segment for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It is dropped, as the kernel does.
    Drop,
    /// Its sender is held back, as behind a network that pauses; nothing is lost.
    Hold,
}

/// A stream of datagrams to one virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Which machine.
    pub vm: usize,
    /// Payload of a datagram in bytes.
    pub bytes: u64,
    /// Payload offered.
    pub rate: BitRate,
    /// Its entry of the placement: a number of its own, or of the bucket that it hashes to.
    pub entry: u32,
    /// Its priority.
    pub priority: Priority,
}

impl Flow {
    /// Outer segments of a datagram.
    #[must_use]
    pub const fn segments(&self) -> u64 {
        (self.bytes + HEADERS).div_ceil(OUTER_PAYLOAD)
    }

    /// Time between two datagrams on average.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        self.rate.time_for(sluice_base::ByteCount(self.bytes))
    }

    /// Time between two segments of a datagram on the link.
    pub(crate) fn gap(&self, link: BitRate) -> Nanos {
        let each = (self.bytes + HEADERS).div_ceil(self.segments()) + WIRE_OVERHEAD;
        link.time_for(sluice_base::ByteCount(each))
    }
}

/// A host, what runs on it, what is sent to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many cores it has, 4 to 64 as a rule.
    pub cores: u16,
    /// Cores that do no tunnel work.
    pub excluded: Vec<u16>,
    /// One virtual machine with one vCPU each: the core to which it is pinned, or none.
    pub vms: Vec<Option<u16>>,
    /// What is sent.
    pub flows: Vec<Flow>,
    /// How cores are chosen.
    pub steering: Config,
    /// Without room.
    pub policy: Policy,
    /// The receiving link.
    pub link: BitRate,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Not measured.
    pub warm_up: Nanos,
    /// Measured.
    pub span: Nanos,
    /// Costs and bounds.
    pub params: Params,
}
