//! No ring of links that wait for each other.
//!
//! A link that is paused in a priority waits for the buffer behind it; that buffer's frames wait
//! for the links they go to next. If one of these is paused in the same priority, the first waits
//! for the second:
//!
//! ```text
//!   link A, paused ──> buffer behind A ── its frames wait for ──> link B, paused ──> ...
//! ```
//!
//! A ring of such waits may dissolve: not all frames of a buffer go the same way. If none of its
//! links sends a frame for [`PATIENCE`], it is reported.

use sluice_base::{Nanos, Priority};

use crate::ledger::Violation;
use crate::net::{self, Whereabouts};
use crate::world::Census;

/// Longest time that a ring may stand still: longer than any buffer takes to drain.
const PATIENCE: Nanos = Nanos::from_millis(5);

/// A ring that was seen.
#[derive(Debug)]
struct Ring {
    since: Nanos,
    links: Vec<usize>,
    /// Number of frames that its links had sent.
    sent: u64,
}

/// Looks for rings that stay.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: Option<Ring>,
}

impl Watch {
    pub(super) fn check(&mut self, census: &Census) -> Result<(), Violation> {
        let Some(mut nodes) = find(&waits(&census.net)) else {
            self.seen = None;
            return Ok(());
        };
        nodes.sort_unstable();
        let links: Vec<usize> = nodes.iter().map(|node| node / Priority::COUNT).collect();
        let sent = links.iter().map(|at| census.net.links[*at].sent_frames).sum();
        match &self.seen {
            Some(ring) if ring.links == links && ring.sent == sent => {
                if census.now.since(ring.since) < PATIENCE {
                    return Ok(());
                }
                let since = ring.since;
                let what = format!("links {links:?} have waited for each other since {since}");
                Err(Violation::new("cycle", what))
            }
            _ => {
                self.seen = Some(Ring { since: census.now, links, sent });
                Ok(())
            }
        }
    }
}

/// Returns, for each (link, priority), the ones that it waits for.
fn waits(census: &net::Census) -> Vec<Vec<usize>> {
    let mut waits = vec![Vec::new(); census.links.len() * Priority::COUNT];
    for seen in &census.frames {
        let Some(input) = seen.input.filter(|_| seen.whereabouts == Whereabouts::Queued) else {
            continue;
        };
        let is_paused = |link: usize| census.links[link].told.contains(seen.priority);
        let (from, to) = (input.index(), seen.at.index());
        if is_paused(from) && is_paused(to) {
            let node = |link: usize| link * Priority::COUNT + seen.priority.index();
            waits[node(from)].push(node(to));
        }
    }
    waits
}

/// Returns the nodes of a ring, if there is one. Nodes that wait for nothing are taken away until
/// none is left; from the rest every walk ends in a ring.
fn find(waits: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut alive: Vec<bool> = waits.iter().map(|next| !next.is_empty()).collect();
    loop {
        let ends = |at: &usize| alive[*at] && !waits[*at].iter().any(|next| alive[*next]);
        let dead: Vec<usize> = (0..waits.len()).filter(ends).collect();
        if dead.is_empty() {
            break;
        }
        dead.into_iter().for_each(|at| alive[at] = false);
    }
    let mut walk = vec![alive.iter().position(|alive| *alive)?];
    loop {
        let at = walk[walk.len() - 1];
        let next = *waits[at].iter().find(|next| alive[**next])?;
        if let Some(first) = walk.iter().position(|node| *node == next) {
            return Some(walk.split_off(first));
        }
        walk.push(next);
    }
}

#[cfg(test)]
mod tests;
