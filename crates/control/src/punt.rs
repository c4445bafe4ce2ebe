//! Punts: which of the frames that the switch shows to the control plane are looked at.
//!
//! The switch punts copies, and any tenant can make it punt as many as it can send frames. The
//! [`Policer`] stands in front of everything else and lets pass what the control plane can do, so
//! that a flood costs its own port its answers and nobody else:
//!
//! ```text
//!   punt ── unknown lately? ── shown just now? ── cause ── port ─┬─ assured ──┬──> admitted
//!             negative cache     coalescing        ceilings      └─ or common ┘
//! ```
//!
//! - A destination that is known to be nowhere is not looked for again for a time, and neither is
//!   the same destination or source within a short gap. Questions of neighbours are never
//!   coalesced: each asker waits for an answer of its own, and may have lost the one before.
//! - Every port has a ceiling for each cause, and one for all causes. Neither is a promise.
//! - Every port has an **assured** rate that nobody else can use. What goes beyond it comes from a
//!   **common** bucket, first come, first served. So the work for all ports together is bounded by
//!   `ports * assured + common`, and each port gets its assured rate whatever the others do.
//!
//! A refused punt takes no token and marks nothing: the frame that it copies goes its way or waits
//! in the switch, which asks again; one that was taken is flooded. All state is allocated at the
//! start.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Mac, Nanos, PortId, Vni};

use crate::bucket::{Bucket, Pace, Rate};
use crate::frame::Frame;
use crate::recent::{Mark, Recent};

/// Why the switch punts a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// The chip does not know the destination.
    Miss,
    /// The chip does not know the source.
    NewSource,
    /// The source is known at another port.
    Moved,
    /// It is ARP to a group, which the switch took: it is answered, flooded or refused.
    Arp,
    /// It is a Neighbor Solicitation or Advertisement to a group, which the switch took.
    Nd,
    /// A destination still waits for its answer: the switch asks again.
    Unresolved,
    /// It is ARP or Neighbor Discovery that goes its way.
    Snooped,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them, in the order of their indices.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Miss,
        Self::NewSource,
        Self::Moved,
        Self::Arp,
        Self::Nd,
        Self::Unresolved,
        Self::Snooped,
    ];

    /// The cause as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the switch took the frame out of the data path, and its head is all of it.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        matches!(self, Self::Arp | Self::Nd)
    }

    /// Whether the question is where the destination is.
    const fn is_about_destination(self) -> bool {
        matches!(self, Self::Miss | Self::Unresolved)
    }
}

/// Why a punt is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refused {
    /// Its destination is known to be nowhere.
    Unknown,
    /// The same destination or source was shown just now.
    Repeated,
    /// The port has had enough of this cause.
    CauseLimit,
    /// The port has had enough.
    PortLimit,
    /// The port has used what it is assured of, and so have all what is common.
    Crowded,
}

impl Refused {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All of them, in the order of their indices.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Unknown, Self::Repeated, Self::CauseLimit, Self::PortLimit, Self::Crowded];
}

/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many ports there are; [`PortId`]s are below it.
    pub ports: u16,
    /// What a port is assured of.
    pub assured: Rate,
    /// What all ports have together beyond that.
    pub common: Rate,
    /// The ceiling of a port.
    pub port: Rate,
    /// The ceiling of a port for each cause.
    pub cause: [Rate; Cause::COUNT],
    /// For how long the same question is not asked again.
    pub gap: Nanos,
    /// How many questions are remembered for that.
    pub questions: u32,
    /// For how long what is nowhere is not asked for.
    pub unknown_life: Nanos,
    /// How many such targets are remembered.
    pub unknowns: u32,
}

impl Config {
    /// Limits for a host of that many ports: work for a fifth of a core at most, and a port with a
    /// dozen endpoints that start at once is served without delay.
    #[must_use]
    pub fn new(ports: u16) -> Self {
        Self::with_rate(ports, 10_000)
    }

    /// Limits by how much is looked at of one port for one cause in a second: a port has twice as
    /// much for all causes, all ports together have five times as much beyond what each is assured
    /// of, and a tenth of a second's worth may come at once.
    #[must_use]
    pub fn with_rate(ports: u16, per_second: u32) -> Self {
        let times = |count: u32| {
            let per_second = per_second.saturating_mul(count);
            Rate { per_second, burst: per_second.div_ceil(10) }
        };
        Self {
            ports,
            assured: Rate { per_second: 100, burst: 100 },
            common: times(5),
            port: times(2),
            cause: [times(1); Cause::COUNT],
            gap: Nanos::from_millis(50),
            questions: 1 << 16,
            unknown_life: Nanos::from_millis(2_000),
            unknowns: 1 << 14,
        }
    }
}

/// The counters and buckets of a port.
#[derive(Clone, Debug, Default)]
struct Port {
    assured: Bucket,
    ceiling: Bucket,
    causes: [Bucket; Cause::COUNT],
    admitted: [u64; Cause::COUNT],
    refused: [[u64; Refused::COUNT]; Cause::COUNT],
}

/// Decides which punts are looked at.
#[derive(Debug)]
pub struct Policer {
    assured: Pace,
    common: Pace,
    ceiling: Pace,
    causes: [Pace; Cause::COUNT],
    common_bucket: Bucket,
    ports: Box<[Port]>,
    questions: Recent,
    unknowns: Recent,
}

/// A destination that is nowhere. It and questions never share a memory.
fn mark_of(vni: Vni, mac: Mac) -> Mark {
    Mark::new(vni, mac, None, 0)
}

/// What a punt asks for: a destination for anybody, a source for its port. `None` for neighbours.
fn question_of(port: PortId, vni: Vni, cause: Cause, frame: &Frame<'_>) -> Option<Mark> {
    match cause {
        Cause::Miss | Cause::Unresolved => Some(Mark::new(vni, frame.dst, None, u16::MAX)),
        Cause::NewSource | Cause::Moved => Some(Mark::new(vni, frame.src, None, port.0)),
        Cause::Arp | Cause::Nd | Cause::Snooped => None,
    }
}

impl Policer {
    /// A policer with full buckets. The seed makes collisions in its memories hard to provoke.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        Self {
            assured: Pace::new(config.assured),
            common: Pace::new(config.common),
            ceiling: Pace::new(config.port),
            causes: config.cause.map(Pace::new),
            common_bucket: Bucket::default(),
            ports: vec![Port::default(); usize::from(config.ports)].into(),
            questions: Recent::new(config.questions, config.gap, seed),
            unknowns: Recent::new(config.unknowns, config.unknown_life, !seed),
        }
    }

    /// Whether the punt of `frame`, which came in at `port` of network `vni`, is looked at now.
    ///
    /// # Errors
    /// Why not. It is counted.
    ///
    /// # Panics
    /// If there is no such port.
    #[inline]
    pub fn admit(
        &mut self,
        now: Nanos,
        port: PortId,
        vni: Vni,
        cause: Cause,
        frame: &Frame<'_>,
    ) -> Result<(), Refused> {
        let question = question_of(port, vni, cause, frame);
        let verdict = self.judge(now, port, vni, cause, frame, question.as_ref());
        let counters = &mut self.ports[port.index()];
        match verdict {
            Ok(()) => {
                counters.admitted[cause.index()] += 1;
                if let Some(question) = question {
                    self.questions.insert(now, question);
                }
            }
            Err(why) => counters.refused[cause.index()][why as usize] += 1,
        }
        verdict
    }

    #[inline]
    fn judge(
        &mut self,
        now: Nanos,
        port: PortId,
        vni: Vni,
        cause: Cause,
        frame: &Frame<'_>,
        question: Option<&Mark>,
    ) -> Result<(), Refused> {
        if cause.is_about_destination() && self.unknowns.contains(now, &mark_of(vni, frame.dst)) {
            return Err(Refused::Unknown);
        }
        if question.is_some_and(|question| self.questions.contains(now, question)) {
            return Err(Refused::Repeated);
        }
        let buckets = &mut self.ports[port.index()];
        let cause_pace = &self.causes[cause.index()];
        let cause_bucket = &mut buckets.causes[cause.index()];
        if !cause_pace.has(now, *cause_bucket) {
            return Err(Refused::CauseLimit);
        }
        if !self.ceiling.has(now, buckets.ceiling) {
            return Err(Refused::PortLimit);
        }
        // What is the port's own comes first: what is common is left to those who need it.
        let paid = self.assured.try_take(now, &mut buckets.assured)
            || self.common.try_take(now, &mut self.common_bucket);
        if !paid {
            return Err(Refused::Crowded);
        }
        cause_pace.take(now, cause_bucket);
        self.ceiling.take(now, &mut buckets.ceiling);
        Ok(())
    }

    /// Nobody has `mac` in network `vni`: frames for it are refused for a time.
    pub fn unknown(&mut self, now: Nanos, vni: Vni, mac: Mac) {
        self.unknowns.insert(now, mark_of(vni, mac));
    }

    /// Whether frames for `mac` are refused at `now`.
    #[must_use]
    pub fn is_unknown(&self, now: Nanos, vni: Vni, mac: Mac) -> bool {
        self.unknowns.contains(now, &mark_of(vni, mac))
    }

    /// Somebody claims `mac` now: frames for it are looked at again.
    pub fn known(&mut self, vni: Vni, mac: Mac) {
        self.unknowns.remove(&mark_of(vni, mac));
    }

    /// How many punts of `port` for `cause` were looked at.
    #[must_use]
    pub fn admitted(&self, port: PortId, cause: Cause) -> u64 {
        self.ports[port.index()].admitted[cause.index()]
    }

    /// How many punts of `port` for `cause` were refused for that reason.
    #[must_use]
    pub fn refused(&self, port: PortId, cause: Cause, why: Refused) -> u64 {
        self.ports[port.index()].refused[cause.index()][why as usize]
    }
}

#[cfg(test)]
mod tests;
