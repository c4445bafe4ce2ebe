//! Costs of work, and bounds of queues.

/// Costs in nanoseconds and bounds in items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Softirq work per outer segment: receiving, outer headers, reassembly.
    pub segment_ns: u64,
    /// Softirq work per datagram: the bridge, delivery into the guest's ring.
    pub datagram_ns: u64,
    /// Copy of a byte, in the host's delivery and again in the guest, in picoseconds.
    pub byte_ps: u64,
    /// A vCPU's work per datagram.
    pub guest_ns: u64,
    /// An interrupt, with the switch away from the running vCPU and back.
    pub interrupt_ns: u64,
    /// Time of softirq work after which a vCPU that waits gets a turn.
    pub softirq_run_ns: u64,
    /// Length of that turn.
    pub thread_run_ns: u64,
    /// Time of a vCPU after which another one of its core has its turn.
    pub quantum_ns: u64,
    /// Receive descriptors of a core, in segments.
    pub descriptors: u64,
    /// Number of descriptors that are given back to the card at a time.
    pub refill: u64,
    /// Datagrams that a guest's ring holds.
    pub guest_ring: u64,
    /// Largest jitter of the time between two datagrams, in hundredths of the mean.
    pub jitter_percent: u64,
}

/// A parameter, by name.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name, as the field of [`Params`].
    pub name: &'static str,
    /// Reads it.
    pub get: fn(&Params) -> u64,
    /// Writes it.
    pub set: fn(&mut Params, u64),
}

macro_rules! field {
    ($name:ident) => {
        Field { name: stringify!($name), get: |p| p.$name, set: |p, value| p.$name = value }
    };
}

impl Params {
    /// All parameters, in the order in which they are shown.
    pub const FIELDS: [Field; 12] = [
        field!(segment_ns),
        field!(datagram_ns),
        field!(byte_ps),
        field!(guest_ns),
        field!(interrupt_ns),
        field!(softirq_run_ns),
        field!(thread_run_ns),
        field!(quantum_ns),
        field!(descriptors),
        field!(refill),
        field!(guest_ring),
        field!(jitter_percent),
    ];

    /// Returns the name of the first parameter that cannot work.
    #[must_use]
    pub fn wrong(&self) -> Option<&'static str> {
        let positive = ["segment_ns", "guest_ns", "quantum_ns", "descriptors", "refill"];
        let is_zero = |field: &&Field| {
            let needed = positive.contains(&field.name) || field.name == "guest_ring";
            needed && (field.get)(self) == 0
        };
        let zero = Self::FIELDS.iter().find(is_zero).map(|field| field.name);
        zero.or((self.refill > self.descriptors).then_some("refill"))
            .or((self.jitter_percent > 100).then_some("jitter_percent"))
    }

    /// Time of one copy of so many bytes.
    pub(crate) const fn copy_ns(&self, bytes: u64) -> u64 {
        bytes * self.byte_ps / 1000
    }

    /// Time of the delivery of a datagram of so many bytes.
    pub(crate) const fn deliver_ns(&self, bytes: u64) -> u64 {
        self.datagram_ns + self.copy_ns(bytes)
    }

    /// Time of a datagram of so many bytes in its guest.
    pub(crate) const fn guest_work_ns(&self, bytes: u64) -> u64 {
        self.guest_ns + self.copy_ns(bytes)
    }
}
