//! A scenario: a host, its load and its settings.

use sluice_base::{BitRate, Nanos, Priority};
use sluice_placement::Config;

use super::params::Params;

/// Bytes that the tunnel adds to a datagram's payload before the outer IP header: outer UDP and
/// VXLAN, inner Ethernet, IP and UDP (RFC 7348 section 5).
const HEADERS: u64 = 8 + 8 + 14 + 20 + 8;
/// Payload of an outer IP packet with an MTU of 1,500.
const OUTER_PAYLOAD: u64 = 1480;
/// A segment's share of the wire beside its payload: outer IP and Ethernet, preamble, gap.
const WIRE_OVERHEAD: u64 = 20 + 38;

/// Fate of a segment for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The segment is dropped, as the kernel does.
    Drop,
    /// Its sender is held back, as behind a network that pauses; nothing is lost.
    Hold,
}

/// A stream of datagrams to one virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Number of the machine.
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

/// A host, its virtual machines, and its traffic.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of cores, 4 to 64 as a rule.
    pub cores: u16,
    /// Cores that do no tunnel work.
    pub excluded: Vec<u16>,
    /// The core to which each virtual machine is pinned, or none. Each has one vCPU.
    pub vms: Vec<Option<u16>>,
    /// Traffic to the host.
    pub flows: Vec<Flow>,
    /// Choice of cores.
    pub steering: Config,
    /// Fate of segments without room.
    pub policy: Policy,
    /// The receiving link.
    pub link: BitRate,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Time before the measurement.
    pub warm_up: Nanos,
    /// Time of the measurement.
    pub span: Nanos,
    /// Costs and bounds.
    pub params: Params,
}
