//! Policing of punts: the choice of punted frames that the control plane processes.
//!
//! The switch punts copies, and any tenant can make it punt as many as it can send frames. The
//! [`Policer`] stands in front of everything else and admits as many punts as the control plane can
//! process, so that a flood costs the answers of its own port and of no other:
//!
//! ```text
//!   punt ── unknown lately? ── shown just now? ── cause ── port ─┬─ assured ──┬──> admitted
//!             negative cache     coalescing        ceilings      └─ or common ┘
//! ```
//!
//! - A destination that no endpoint has is not looked for again for a time, and neither is the same
//!   destination or source within a short gap. Questions of neighbours are never coalesced: each
//!   asker waits for an answer of its own, and may have lost the one before.
//! - Every port has a ceiling for each cause, and one for all causes. Neither ceiling is a promise.
//! - Every port has an **assured** rate that no other port can use. Punts beyond it take tokens of
//!   a **common** bucket, first come, first served. So the work for all ports together is bounded
//!   by `ports * assured + common`, and each port gets its assured rate regardless of the others.
//!
//! A refused punt takes no token and leaves no mark. The frame of which it is a copy is forwarded,
//! or waits in the switch, which asks again. A frame that was taken is flooded. All state is
//! allocated at the start.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Mac, Nanos, PortId, PuntCause, Vni};

use crate::bucket::{Bucket, Pace, Rate};
use crate::frame::Frame;
use crate::recent::{Mark, Recent};

/// Reason why a punt is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refused {
    /// No endpoint has its destination.
    Unknown,
    /// The same destination or source was punted just now.
    Repeated,
    /// The ceiling of the port for this cause is reached.
    CauseLimit,
    /// The ceiling of the port is reached.
    PortLimit,
    /// The assured rate of the port and the common rate are used up.
    Crowded,
}

impl Refused {
    /// Number of reasons.
    pub const COUNT: usize = 5;

    /// All reasons, in the order of their indices.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Unknown, Self::Repeated, Self::CauseLimit, Self::PortLimit, Self::Crowded];
}

/// Rates and bounds of a policer.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of ports; [`PortId`]s are below it.
    pub ports: u16,
    /// Assured rate of a port.
    pub assured: Rate,
    /// Common rate of all ports beyond that.
    pub common: Rate,
    /// The ceiling of a port.
    pub port: Rate,
    /// The ceiling of a port for each cause.
    pub cause: [Rate; PuntCause::COUNT],
    /// Time for which the same question is not asked again.
    pub gap: Nanos,
    /// Number of questions that are remembered for the gap.
    pub questions: u32,
    /// Time for which a destination that no endpoint has is not asked for.
    pub unknown_life: Nanos,
    /// Number of such destinations that are remembered.
    pub unknowns: u32,
}

impl Config {
    /// Returns limits for a host of that many ports: work for a fifth of a core at most, and a port
    /// with a dozen endpoints that start at once is served without delay.
    #[must_use]
    pub fn new(ports: u16) -> Self {
        Self::with_rate(ports, 10_000)
    }

    /// Returns limits for so many punts a second of one port for one cause: a port has twice as
    /// much for all causes, all ports together have five times as much beyond their assured rates,
    /// and a tenth of a second's worth may come at once.
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
            cause: [times(1); PuntCause::COUNT],
            gap: Nanos::from_millis(50),
            questions: 1 << 16,
            unknown_life: Nanos::from_millis(2_000),
            unknowns: 1 << 14,
        }
    }
}

/// Counters and buckets of a port.
#[derive(Clone, Debug, Default)]
struct Port {
    assured: Bucket,
    ceiling: Bucket,
    causes: [Bucket; PuntCause::COUNT],
    admitted: [u64; PuntCause::COUNT],
    refused: [[u64; Refused::COUNT]; PuntCause::COUNT],
}

/// Admits or refuses punts.
#[derive(Debug)]
pub struct Policer {
    assured: Pace,
    common: Pace,
    ceiling: Pace,
    causes: [Pace; PuntCause::COUNT],
    common_bucket: Bucket,
    ports: Box<[Port]>,
    questions: Recent,
    unknowns: Recent,
}

/// Returns the mark of a destination that no endpoint has. Such destinations and questions never
/// share a memory.
fn mark_of(vni: Vni, mac: Mac) -> Mark {
    Mark::new(vni, mac, None, 0)
}

/// Returns the question of a punt: a destination for all ports, a source for its port. `None` for
/// messages of neighbours.
fn question_of(port: PortId, vni: Vni, cause: PuntCause, frame: &Frame<'_>) -> Option<Mark> {
    match cause {
        PuntCause::Miss => Some(Mark::new(vni, frame.dst, None, u16::MAX)),
        PuntCause::NewSource | PuntCause::Moved => Some(Mark::new(vni, frame.src, None, port.0)),
        PuntCause::Arp | PuntCause::Nd | PuntCause::Snooped => None,
    }
}

impl Policer {
    /// Creates a policer with full buckets. The seed makes collisions in its memories hard to
    /// provoke.
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

    /// Sets the rates. Buckets keep what they have.
    pub fn set_rates(&mut self, config: &Config) {
        self.assured = Pace::new(config.assured);
        self.common = Pace::new(config.common);
        self.ceiling = Pace::new(config.port);
        self.causes = config.cause.map(Pace::new);
    }

    /// Admits or refuses the punt of `frame`, which came in at `port` of network `vni`.
    ///
    /// # Errors
    /// The reason of the refusal. It is counted.
    ///
    /// # Panics
    /// If there is no such port.
    #[inline]
    pub fn admit(
        &mut self,
        now: Nanos,
        port: PortId,
        vni: Vni,
        cause: PuntCause,
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
        cause: PuntCause,
        frame: &Frame<'_>,
        question: Option<&Mark>,
    ) -> Result<(), Refused> {
        if cause == PuntCause::Miss && self.unknowns.contains(now, &mark_of(vni, frame.dst)) {
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
        // The port's own bucket comes first: the common one is left to those who need it.
        let paid = self.assured.try_take(now, &mut buckets.assured)
            || self.common.try_take(now, &mut self.common_bucket);
        if !paid {
            return Err(Refused::Crowded);
        }
        cause_pace.take(now, cause_bucket);
        self.ceiling.take(now, &mut buckets.ceiling);
        Ok(())
    }

    /// Refuses frames for `mac` of network `vni`, which no endpoint has, for a time.
    pub fn unknown(&mut self, now: Nanos, vni: Vni, mac: Mac) {
        self.unknowns.insert(now, mark_of(vni, mac));
    }

    /// Returns true if frames for `mac` are refused at `now`.
    #[must_use]
    pub fn is_unknown(&self, now: Nanos, vni: Vni, mac: Mac) -> bool {
        self.unknowns.contains(now, &mark_of(vni, mac))
    }

    /// Admits frames for `mac` again, which a host claims now.
    pub fn known(&mut self, vni: Vni, mac: Mac) {
        self.unknowns.remove(&mark_of(vni, mac));
    }

    /// Number of punts of `port` for `cause` that were admitted.
    #[must_use]
    pub fn admitted(&self, port: PortId, cause: PuntCause) -> u64 {
        self.ports[port.index()].admitted[cause.index()]
    }

    /// Number of punts of `port` for `cause` that were refused for that reason.
    #[must_use]
    pub fn refused(&self, port: PortId, cause: PuntCause, why: Refused) -> u64 {
        self.ports[port.index()].refused[cause.index()][why as usize]
    }
}

#[cfg(test)]
mod tests;
