//! Runs that check themselves.
//!
//! Two accounts are kept of a checked run, and compared. The **ledger** records sent and received
//! packets at the ends of the network. The **census** walks the network, every some events, and
//! locates each frame. Neither trusts a counter of the simulator; both check the counters. A run
//! that is not checked has neither: its loop is another one, and packets pass one test of an empty
//! ledger at each end. The world keeps the ledger, so that it stands below the world (`ledger`,
//! `streams`); the checks of a census stand above it, here.
//!
//! | file | rule |
//! |---|---|
//! | `conservation` | sent = delivered + dropped + resident; the bytes of buffers are right |
//! | `ledger` | packets of a sender arrive in order, each once; no faster than links carry |
//! | `headroom` | no lossless buffer beyond its limit; XOFF and XON in time, and applied |
//! | `cycle` | no ring of paused links that wait for each other |
//! | `hops` | frames sent by links = links passed by frames |
//! | `switches` | the audits of the virtual switches close; no congestion drop if none may be |
//! | `streams` | TCP delivers the written bytes, and no more than the network brought |
//! | `rest` | in the end nothing is left, nothing is paused, and all bytes are there |
//!
//! A violation stops the run. The report says how to repeat it.

mod conservation;
mod cycle;
mod headroom;
mod hops;
mod rest;
mod switches;

use std::collections::VecDeque;

use sluice_base::{Nanos, PriorityMask};

use crate::event::Event;
pub use crate::ledger::Violation;
use crate::net::Whereabouts;
use crate::world::{Census, End, Workload, World, WorldConfig, WorldError};

/// A violation, with information that helps to understand it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The violation.
    pub violation: Violation,
    /// Time, and number of events before it.
    pub at: (Nanos, u64),
    /// Command that repeats the run.
    pub repeat: String,
    /// The last events, a line each, the latest last.
    pub events: Vec<String>,
    /// State of the parts that are not at rest, a line each.
    pub state: Vec<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (now, count) = self.at;
        writeln!(f, "{}: {}", self.violation.checker, self.violation.what)?;
        writeln!(f, "at {now}, after {count} events; to repeat: {}", self.repeat)?;
        writeln!(f, "the last events:")?;
        self.events.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        writeln!(f, "what is not at rest:")?;
        self.state.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl std::error::Error for Report {}

/// Events that a report shows.
const LAST_EVENTS: usize = 48;
/// Censuses after which the span between two is doubled.
const CENSUSES: u64 = 256;
/// Lines that a report shows of the state.
const STATE_LINES: usize = 60;

/// A world that is checked as it runs.
#[derive(Debug)]
pub struct Checked {
    world: World,
    watch: cycle::Watch,
    /// True if no switch, virtual or physical, may drop for congestion.
    lossless: bool,
    every: u64,
    /// Number of events until the next census, and number of censuses taken.
    wait: u64,
    censuses: u64,
    repeat: String,
    last: VecDeque<(Nanos, Event)>,
}

impl Checked {
    /// Creates a world that takes a census every so many events, at least 1; less often later in a
    /// long run. `repeat` is the command that repeats the run, for reports.
    ///
    /// # Errors
    /// The part of the configuration that cannot work.
    pub fn new(config: &WorldConfig, every: u64, repeat: String) -> Result<Self, WorldError> {
        let mut world = World::new(config)?;
        world.keep_ledger();
        let physical = config.net.lossless == PriorityMask::ALL;
        let virt = |o: &crate::overlay::OverlayConfig| {
            o.lossless == PriorityMask::ALL && o.card_pause.is_some()
        };
        let lossless = physical && config.overlay.as_ref().is_none_or(virt);
        let last = VecDeque::with_capacity(LAST_EVENTS);
        let watch = cycle::Watch::default();
        let every = every.max(1);
        Ok(Self { world, watch, lossless, every, wait: every, censuses: 0, repeat, last })
    }

    /// Returns the world. Workloads get it as they run.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Returns the world, to prepare it.
    pub const fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Returns a number that tells runs apart: it is made of the time, sender and order of all
    /// packets that arrived or were dropped.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.world.ledger().digest()
    }

    /// Number of messages that have arrived whole.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.world.ledger().messages()
    }

    /// Runs several workloads beside each other, until the first one is done, or until `end`.
    ///
    /// # Errors
    /// A violation.
    ///
    /// # Panics
    /// If there are no workloads, or more than 256.
    pub fn run_all(
        &mut self,
        workloads: &mut [&mut dyn Workload],
        end: Nanos,
    ) -> Result<End, Box<Report>> {
        self.world.start(workloads);
        let reason = loop {
            let event = match self.world.next_event_apart(workloads, end) {
                Ok(event) => event,
                Err(end) => break end,
            };
            self.turn(event)?;
        };
        self.look()?;
        Ok(reason)
    }

    /// Goes on without notices to the workloads, until no event is left; then no frame may be left.
    /// Call this once, at the end.
    ///
    /// # Errors
    /// A violation, or events that still come after `span`.
    pub fn drain(&mut self, span: Nanos) -> Result<(), Box<Report>> {
        let end = self.world.now().after(span);
        while let Some(event) = self.world.next_event_unheard() {
            self.turn(event)?;
            if self.world.now() > end {
                let what = format!("{span} after the workloads events still come");
                return Err(self.report(Violation::new("rest", what)));
            }
        }
        self.look()?;
        let census = self.world.census();
        rest::check(&census, self.world.ledger()).map_err(|violation| self.report(violation))
    }

    /// Handles one event, and runs the checks after it.
    fn turn(&mut self, event: Event) -> Result<(), Box<Report>> {
        if self.last.len() == LAST_EVENTS {
            self.last.pop_front();
        }
        self.last.push_back((self.world.now(), event));
        match self.world.handle_apart(event) {
            None => {}
            Some(End::Broken(overflow)) => {
                return Err(self.report(Violation::new("headroom", overflow.to_string())));
            }
            Some(end) => unreachable!("an event does not end a run with {end:?}"),
        }
        if let Some(violation) = self.world.found() {
            return Err(self.report(violation));
        }
        self.wait -= 1;
        if self.wait == 0 {
            self.look()?;
            // A long run has ever longer spans between two censuses, so that their share of its
            // time falls.
            self.censuses += 1;
            self.every *= if self.censuses.is_multiple_of(CENSUSES) { 2 } else { 1 };
            self.wait = self.every;
        }
        Ok(())
    }

    /// Takes a census and checks it.
    fn look(&mut self) -> Result<(), Box<Report>> {
        self.world.settle();
        let census = self.world.census();
        let ledger = self.world.ledger();
        let all = conservation::check(&census, ledger)
            .and_then(|()| headroom::check(&census.net))
            .and_then(|()| hops::check(&census.net))
            .and_then(|()| switches::check(&census, self.lossless))
            .and_then(|()| census.streams.iter().try_for_each(|stream| stream.check(ledger)))
            .and_then(|()| self.watch.check(&census));
        all.map_err(|violation| self.report(violation))
    }

    fn report(&self, violation: Violation) -> Box<Report> {
        let line = |(at, event): &(Nanos, Event)| format!("{at} {event:?}");
        Box::new(Report {
            violation,
            at: (self.world.now(), self.world.event_count()),
            repeat: self.repeat.clone(),
            events: self.last.iter().map(line).collect(),
            state: state_of(&self.world.census()),
        })
    }
}

/// Links, buffers and frames that are not at rest, as lines of text.
fn state_of(census: &Census) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, link, input) in census.net.links() {
        if !link.idle || link.queued > 0 || !link.told.is_empty() {
            let sends = if link.idle { "idle" } else { "sends" };
            let (told, queued) = (link.told.0, link.queued);
            lines.push(format!("link {}: {sends}, queued {queued}, paused {told:#04x}", id.0));
        }
        if input.held.iter().any(|held| *held > 0) || !input.pausing.is_empty() {
            let (pausing, held) = (input.pausing.0, &input.held);
            lines.push(format!("buffer behind link {}: {held:?}, pauses {pausing:#04x}", id.0));
        }
    }
    let travelling = |whereabouts| matches!(whereabouts, Whereabouts::Travelling);
    let frames = census.net.frames.iter().filter(|seen| !travelling(seen.whereabouts));
    for seen in frames {
        lines.push(format!(
            "frame {}: {:?} at link {}, hop {}, {} bytes, ready {}",
            seen.id.0, seen.whereabouts, seen.at.0, seen.hop, seen.size, seen.ready
        ));
    }
    lines.extend(census.virt.map(|virt| format!("{virt:?}")));
    let more = lines.len().saturating_sub(STATE_LINES);
    lines.truncate(STATE_LINES);
    if more > 0 {
        lines.push(format!("and {more} lines more"));
    }
    lines
}

#[cfg(test)]
mod tests;
