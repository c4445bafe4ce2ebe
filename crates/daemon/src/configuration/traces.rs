//! Traces of the transactions that this host originates, for an operator's collector.
//!
//! ```text
//!   transaction ├─ wait ─┼─ reserve ─┼─ pre-commit ─┤ commit
//!                                                   ├─ in force ─┤         at this host
//!                                                   ├─ apply h2 ────┤      as h2 reports it
//! ```
//!
//! A trace is complete when this host and all members that have voted have applied it, or
//! [`APPLIES_MAX`] after the commit: who is late has no span. One that was not committed has
//! [`ENDS_MAX`] to be found so, and an error as its status. Nothing here waits; a trace that the
//! exporter has no room for is dropped and counted.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::config::HttpApi;
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{OwnPhase, Transaction, TxnId};

use super::thread::Thread;
use super::words;
use crate::sys::clock;
use crate::telemetry::{Exporter, Span, Trace};

/// Longest wait for members that apply a transaction.
const APPLIES_MAX: Nanos = Nanos::from_millis(2_000);
/// Longest time between the end of a round and its entry of the log.
const ENDS_MAX: Nanos = Nanos::from_millis(1_000);
/// Transactions whose traces are open.
const OPEN_MAX: usize = 16;

/// A transaction that is traced.
#[derive(Debug)]
struct Open {
    id: TxnId,
    began: Nanos,
    /// Present phase and its beginning; `None` once the round has ended.
    phase: Option<(OwnPhase, Nanos)>,
    ended: Option<Nanos>,
    spans: Vec<Span>,
    commit: Option<Committed>,
}

#[derive(Debug)]
struct Committed {
    at: Nanos,
    revision: u64,
    comment: String,
    /// Members that have yet to apply it.
    awaited: BTreeSet<String>,
    is_in_force: bool,
}

/// Transactions of this host that are traced.
#[derive(Debug)]
pub(super) struct Transactions {
    exporter: Exporter,
    open: Vec<Open>,
    /// Revision that each member has reported.
    reported: BTreeMap<String, u64>,
}

impl Transactions {
    /// Starts the exporter, if the configuration of the host names a collector.
    pub(super) fn of(api: &HttpApi, host: &str) -> Option<Self> {
        let exporter = Exporter::start(api.traces.as_ref()?, host)?;
        Some(Self { exporter, open: Vec::new(), reported: BTreeMap::new() })
    }

    /// Notes how far the own transaction is.
    fn phase(&mut self, now: Nanos, own: Option<(TxnId, OwnPhase)>) {
        for open in &mut self.open {
            match own.filter(|(id, _)| *id == open.id) {
                Some((_, phase)) => open.enter(now, Some(phase)),
                None => open.enter(now, None),
            }
        }
        if let Some((id, phase)) = own
            && self.open.len() < OPEN_MAX
            && self.open.iter().all(|open| open.id != id)
        {
            let phase = Some((phase, now));
            let (spans, commit) = (Vec::new(), None);
            self.open.push(Open { id, began: now, phase, ended: None, spans, commit });
        }
        self.hand_over(now);
    }

    /// Notes that a transaction is an entry of the log, and who applies it.
    fn committed(&mut self, now: Nanos, done: &Transaction, voters: BTreeSet<String>) {
        let Some(open) = self.open.iter_mut().find(|open| open.id == done.id) else { return };
        if open.commit.is_some() {
            return;
        }
        open.enter(now, None);
        let (revision, comment) = (done.revision, done.comment.clone());
        let has_it = |name: &String| self.reported.get(name).is_some_and(|at| *at >= revision);
        let (early, awaited) = voters.into_iter().partition::<BTreeSet<_>, _>(has_it);
        open.spans.extend(early.iter().map(|name| Span::new(format!("apply {name}"), now, now)));
        open.commit = Some(Committed { at: now, revision, comment, awaited, is_in_force: false });
    }

    /// Notes the progress of a member.
    fn applied(&mut self, now: Nanos, name: String, revision: u64) {
        for open in &mut self.open {
            if let Some(commit) = open.commit.as_mut().filter(|commit| commit.revision <= revision)
                && commit.awaited.remove(&name)
            {
                open.spans.push(Span::new(format!("apply {name}"), commit.at, now));
            }
        }
        self.reported.insert(name, revision);
    }

    /// Notes that a revision is in force at this host, or why not.
    pub(super) fn in_effect(&mut self, now: Nanos, revision: u64, failed: Option<&str>) {
        for open in &mut self.open {
            if let Some(commit) = open.commit.as_mut().filter(|commit| commit.revision <= revision)
                && !commit.is_in_force
            {
                commit.is_in_force = true;
                let span = Span::new("in force".to_owned(), commit.at, now);
                open.spans.push(Span { failed: failed.map(str::to_owned), ..span });
            }
        }
    }

    /// Hands over what is complete, or late.
    fn hand_over(&mut self, now: Nanos) {
        let is_done = |open: &mut Open| match (&open.commit, open.ended) {
            (Some(commit), _) => {
                let is_complete = commit.is_in_force && commit.awaited.is_empty();
                is_complete || now.since(commit.at) > APPLIES_MAX
            }
            (None, Some(ended)) => now.since(ended) > ENDS_MAX,
            (None, None) => false,
        };
        for open in self.open.extract_if(.., is_done) {
            self.exporter.send(open.into_trace());
        }
    }
}

impl Open {
    /// Ends the phase that ends now.
    fn enter(&mut self, now: Nanos, next: Option<OwnPhase>) {
        let Some((phase, began)) = self.phase.filter(|(phase, _)| Some(*phase) != next) else {
            return;
        };
        let name = match phase {
            OwnPhase::Waits => "wait",
            OwnPhase::Reserves => "reserve",
            OwnPhase::PreCommits => "pre-commit",
            OwnPhase::Aborts => "abort",
        };
        self.spans.push(Span::new(name.to_owned(), began, now));
        self.phase = next.map(|next| (next, now));
        if next.is_none() {
            self.ended = Some(now);
        }
    }

    fn into_trace(self) -> Trace {
        let last = self.spans.iter().map(|span| span.ended).max().unwrap_or(self.began);
        let root = Span::new("transaction".to_owned(), self.began, last);
        let mut attributes = vec![("sluice.transaction", self.id.to_string())];
        let mut failed = None;
        match self.commit {
            Some(commit) => {
                attributes.push(("sluice.revision", commit.revision.to_string()));
                attributes.push(("sluice.comment", commit.comment));
            }
            None => failed = Some("it was not committed".to_owned()),
        }
        Trace { root: Span { failed, ..root }, attributes, spans: self.spans }
    }
}

impl Thread {
    /// Notes how far an own transaction is.
    pub(super) fn trace_phase(&mut self) {
        if let Some(traces) = &mut self.traces {
            traces.phase(clock::now(), self.commit.own_transaction());
        }
    }

    /// Notes that a transaction was applied here.
    pub(super) fn trace_commit(&mut self, done: &Transaction) {
        let own = &self.own.place.name;
        let names = done.votes.iter().map(|host| words::name(self.shared(), *host));
        let voters = names.filter(|name| name != own).collect();
        if let Some(traces) = &mut self.traces {
            traces.committed(clock::now(), done, voters);
        }
    }

    /// Notes that another member has applied a revision.
    pub(super) fn trace_progress(&mut self, host: HostId, revision: u64) {
        let name = words::name(self.shared(), host);
        if let Some(traces) = &mut self.traces {
            traces.applied(clock::now(), name, revision);
        }
    }
}

#[cfg(test)]
mod tests;
