//! The metrics of a host (`/metrics`): from the answers that `sluice show` and `sluice fabric
//! status` give to a text that Prometheus reads. There are no counters of their own, so that both
//! cannot differ.
//!
//! ```text
//!   Sample (answers) ─ collect ─▶ Series (by metric and labels) ─ encode ─▶ text
//! ```
//!
//! The number of series is bounded: beyond [`SERIES_MAX`] the ports and peers that come last by
//! name share one series of each metric, with the name [`OTHERS`]. Nothing that was lost is left
//! out so, and `sluice_aggregated_names` says how many share it.

mod catalog;
mod collect;
mod series;

#[cfg(test)]
use std::collections::BTreeSet;
use std::time::Duration;

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;
use sluice_api::config::{Policy, Role};
use sluice_api::fabric::{Certificates, Evpn, MemberRow, RivalRow};
use sluice_api::show::{Answer, DropRow};
use sluice_api::transaction::Status;
use sluice_base::DropClass;

use self::collect::Named;
use self::series::Series;

/// Most series of one answer, beside the few of a host without ports.
pub(crate) const SERIES_MAX: usize = 10_000;
/// Name of all ports, or peers, that have no series of their own. It is no name of a port.
pub(crate) const OTHERS: &str = "(others)";

/// Formats of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
}

impl Format {
    /// Returns the type of the content, as HTTP has it.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Stage of a control process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// It waits for the command that makes its host a member of a fabric.
    Waits,
    /// It is being started, maybe beside a data process that forwards.
    Starts { forwards: bool },
    /// It can be asked.
    Works,
}

/// Answers of a host, asked one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Name of the host.
    pub(crate) host: String,
    /// Role of the host.
    pub(crate) role: Role,
    /// Priorities that the classes of the configuration do not have as lossy.
    pub(crate) lossless: [bool; 8],
    /// Stage of its control process.
    pub(crate) stage: Stage,
    /// Answers of the data process, or the reason why it is silent.
    pub(crate) data: Result<Box<DataAnswers>, String>,
    /// Answers of the fabric's thread, or the reason why it is silent; absent: the host is in no
    /// fabric.
    pub(crate) fabric: Option<Result<FabricAnswers, String>>,
    /// State of the configuration; absent: the host has it from its file.
    pub(crate) configuration: Option<Result<Box<Status>, String>>,
    /// Traces that a collector took, and those that were dropped.
    pub(crate) traces: (u64, u64),
    /// Time that the answers took.
    pub(crate) took: Duration,
}

/// Answers of a data process.
#[derive(Clone, Debug)]
pub(crate) struct DataAnswers {
    pub(crate) ports: Answer,
    pub(crate) queues: Answer,
    pub(crate) drops: Answer,
    pub(crate) audit: Answer,
    pub(crate) pauses: Answer,
    pub(crate) tunnels: Answer,
    pub(crate) worker: Answer,
}

/// Answers of the fabric's thread.
#[derive(Clone, Debug)]
pub(crate) struct FabricAnswers {
    pub(crate) members: Vec<MemberRow>,
    pub(crate) certificates: Certificates,
    pub(crate) rivals: Vec<RivalRow>,
    /// `None`: the host speaks no EVPN.
    pub(crate) evpn: Option<Evpn>,
}

/// Returns the class of a row's frames if they were lost: their priority is lossless, and no rule
/// of the network, no format and no end of a port took them.
pub(crate) fn loss(sample: &Sample, policy: Policy, row: &DropRow) -> Option<DropClass> {
    let reason = collect::lossless_reasons().find(|reason| reason.name() == row.reason)?;
    collect::is_lossless(sample, policy, row.priority).then(|| reason.class())
}

/// Returns the text of a sample.
pub(crate) fn encode(sample: &Sample, format: Format) -> String {
    let mut registry = Registry::with_prefix("sluice");
    registry.register_collector(Box::new(bounded(sample, SERIES_MAX)));
    let mut text = String::new();
    let encoded = match format {
        Format::OpenMetrics => text::encode(&mut text, &registry),
        Format::Prometheus => prometheus_text::encode(&mut text, &registry),
    };
    encoded.expect("a string takes every text");
    text
}

/// Collects the series of a sample: of all names if that is at most `most`, otherwise of fewer.
fn bounded(sample: &Sample, most: usize) -> Series {
    let ports = collect::ports_of(sample);
    let peers = collect::peers_of(sample);
    let mut names_max = ports.len().max(peers.len());
    loop {
        let series = collect::all(
            sample,
            &Named::first(&ports, names_max),
            &Named::first(&peers, names_max),
        );
        if series.count() <= most || names_max == 0 {
            return series;
        }
        // In proportion, and always fewer.
        names_max = (names_max * most / series.count()).min(names_max - 1);
    }
}

/// Returns the full names of all metrics, as the text has them.
#[cfg(test)]
pub(crate) fn names() -> BTreeSet<String> {
    catalog::Metric::ALL.iter().map(|metric| metric.full_name()).collect()
}

#[cfg(test)]
mod tests;
