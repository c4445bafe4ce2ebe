//! Traces of endpoints that come to this host, or move to it, for an operator's collector.
//!
//! ```text
//!   punt, or binding ├─ learn ─┤ claim          in the table and the log
//!                    ├─ install ──┤             the order for the data process is written
//!                              ├─ replicate h2 ────┤   as h2 acknowledges it
//! ```
//!
//! A turn of the member reads punts, decides, and writes; so all of it begins with the turn. A
//! trace is complete when every member that was connected has the claim, or [`REPLICATED_MAX`]
//! later: who is late has no span. At most [`OPEN_MAX`] are open, and other endpoints are not
//! traced meanwhile: a hundred thousand of them take no longer for it.

use sluice_base::{HostId, Nanos};
use sluice_control::plane::{Command, Event, HostInfo, Kind, Location};
use sluice_control::vport::Key;

use crate::config::FabricPlan;
use crate::telemetry::{Exporter, Span, Trace};

/// Longest wait for members that acknowledge a claim.
const REPLICATED_MAX: Nanos = Nanos::from_millis(2_000);
/// Traces that are open at a time.
const OPEN_MAX: usize = 16;
/// Installs of a turn that are remembered.
const INSTALLS_MAX: usize = 64;

/// An endpoint whose claim members do not have yet.
#[derive(Debug)]
struct Open {
    key: Key,
    /// Host that had it before.
    from: Option<HostId>,
    began: Nanos,
    claimed: Nanos,
    /// Sequence of its claim in the log of this host.
    sequence: u64,
    awaited: Vec<HostId>,
    spans: Vec<Span>,
}

/// Names of what a trace shows, as people know them.
pub(super) trait Names {
    /// Returns the name of an endpoint's network.
    fn vnet(&self, key: Key) -> String;
    /// Returns the name of a host.
    fn host(&self, host: HostId) -> String;
}

impl Names for FabricPlan {
    fn vnet(&self, key: Key) -> String {
        self.vnet_name(key.vni).map_or_else(|| format!("vni {}", key.vni), str::to_owned)
    }

    fn host(&self, host: HostId) -> String {
        self.host_name(host).map_or_else(|| format!("host {host}"), str::to_owned)
    }
}

/// Endpoints of this host that are traced.
#[derive(Debug, Default)]
pub(super) struct EndpointTraces {
    /// `None`: no traces are made.
    exporter: Option<Exporter>,
    turn: Nanos,
    /// Endpoints at own ports that were installed in this turn.
    installed: Vec<(Key, Nanos)>,
    open: Vec<Open>,
}

impl EndpointTraces {
    /// Starts the exporter, if the configuration of the host names a collector.
    pub(super) fn of(plan: &FabricPlan) -> Self {
        let traces = plan.traces.as_ref();
        Self::new(traces.and_then(|traces| Exporter::start(traces, &plan.name)))
    }

    fn new(exporter: Option<Exporter>) -> Self {
        Self { exporter, ..Self::default() }
    }

    /// Notes that a turn begins.
    pub(super) fn begin_turn(&mut self, now: Nanos) {
        self.turn = now;
        self.installed.clear();
    }

    /// Returns true if what happens is to be told.
    pub(super) fn has_room(&self) -> bool {
        self.exporter.is_some() && self.open.len() < OPEN_MAX
    }

    /// Notes an order for the data process.
    pub(super) fn ordered(&mut self, now: Nanos, command: &Command) {
        if let Command::Install { vni, mac, to: Location::Port(_) } = *command
            && self.installed.len() < INSTALLS_MAX
        {
            self.installed.push((Key { vni, mac }, now));
        }
    }

    /// Notes an event. `sequence` is that of the log of host `own`.
    pub(super) fn happened(
        &mut self,
        now: Nanos,
        event: &Event,
        (own, sequence): (HostId, u64),
        hosts: impl Iterator<Item = HostInfo>,
    ) {
        let (key, from) = match *event {
            Event::VportAdded(key, host) if host == own => (key, None),
            Event::VportMoved { key, from, to, .. } if to == own => (key, Some(from)),
            _ => return,
        };
        if self.open.iter().any(|open| open.key == key) {
            return;
        }
        let members = hosts.filter(|host| host.kind == Kind::Member && host.is_up);
        let awaited = members.map(|host| host.host).collect();
        let mut spans = vec![Span::new("learn".to_owned(), self.turn, now)];
        let installed = self.installed.iter().find(|(there, _)| *there == key);
        spans.extend(installed.map(|(_, at)| Span::new("install".to_owned(), self.turn, *at)));
        let (began, claimed) = (self.turn, now);
        self.open.push(Open { key, from, began, claimed, sequence, awaited, spans });
    }

    /// Returns true if acknowledgements are awaited.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Notes what members have acknowledged, and hands over what is complete, or late. `sequence`
    /// is that of the log.
    pub(super) fn acknowledged(
        &mut self,
        now: Nanos,
        sequence: u64,
        hosts: impl Iterator<Item = HostInfo>,
        names: &impl Names,
    ) {
        for host in hosts {
            let has = sequence.saturating_sub(host.lag);
            for open in self.open.iter_mut().filter(|open| open.sequence <= has) {
                if let Some(at) = open.awaited.iter().position(|awaited| *awaited == host.host) {
                    open.awaited.swap_remove(at);
                    let name = format!("replicate {}", names.host(host.host));
                    open.spans.push(Span::new(name, open.claimed, now));
                }
            }
        }
        let is_done =
            |open: &mut Open| open.awaited.is_empty() || now.since(open.claimed) > REPLICATED_MAX;
        for open in self.open.extract_if(.., is_done) {
            if let Some(exporter) = &self.exporter {
                exporter.send(open.into_trace(names));
            }
        }
    }

    /// Returns the time at which a trace is handed over although members are late.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let first = self.open.iter().map(|open| open.claimed).min()?;
        Some(first.after(REPLICATED_MAX).after(Nanos(1)))
    }
}

impl Open {
    fn into_trace(self, names: &impl Names) -> Trace {
        let last = self.spans.iter().map(|span| span.ended).max().unwrap_or(self.claimed);
        let mut attributes =
            vec![("sluice.vnet", names.vnet(self.key)), ("sluice.mac", self.key.mac.to_string())];
        attributes.extend(self.from.map(|from| ("sluice.moved_from", names.host(from))));
        let root = Span::new("endpoint".to_owned(), self.began, last);
        Trace { root, attributes, spans: self.spans }
    }
}

#[cfg(test)]
mod tests;
