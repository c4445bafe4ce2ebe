//! The rows of a cell that the lab and the simulator have in common, so that both are read, drawn
//! and compared by the same code.

use serde_json::{Value, json};
use sluice_api::config::Policy;
use sluice_api::results::Row;

use super::{SEED, nanoseconds};
use crate::losses::Losses;
use crate::stats;
use crate::view;

/// Context of a cell: the values that set it apart from others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellName<'a> {
    pub(crate) subject: &'static str,
    pub(crate) variant: String,
    pub(crate) policy: Policy,
    pub(crate) tcp: &'a str,
    pub(crate) profile: &'a str,
    /// A number of milliseconds.
    pub(crate) rto_min_ms: Value,
    pub(crate) background: bool,
    pub(crate) size: u32,
}

/// Measurements of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queries<'a> {
    pub(crate) name: &'a CellName<'a>,
    pub(crate) fct_ns: &'a [u64],
    pub(crate) losses: &'a Losses,
}

impl Queries<'_> {
    fn describe(&self, row: Row) -> Row {
        let values = nanoseconds(self.fct_ns);
        let name = self.name;
        row.with("variant", name.variant.as_str())
            .with("policy", name.policy.name())
            .with("tcp", name.tcp)
            .with("profile", name.profile)
            .with("rto_min_ms", name.rto_min_ms.clone())
            .with("background", name.background)
            .with("size_packets", name.size)
            .with("queries", values.len())
            .with("mean", stats::mean(&values))
            .with("p50", stats::percentile(&values, 0.5))
            .with("p95", stats::percentile(&values, 0.95))
            .with("drops_congestion", self.losses.congestion)
            .with("drops", json!(self.losses.drops))
            .with("audit_closed", self.losses.audit_closed)
    }

    /// Returns the row of completion times; none for a cell without one complete query.
    pub(crate) fn fct(&self) -> Option<Row> {
        let values = nanoseconds(self.fct_ns);
        let row = || Row::new("pa.fct", self.name.subject, "ns", values);
        (!self.fct_ns.is_empty()).then(|| self.describe(row()))
    }

    /// Returns the gain over another cell: the mean of `base` divided by the mean of this cell.
    pub(crate) fn gain_over(&self, base: &Queries<'_>) -> Option<Row> {
        gain(&self.fct()?, &base.fct()?)
    }
}

/// Returns the gain of `row` over `base`: the mean of `base` divided by the mean of `row`.
pub(crate) fn gain(of: &Row, base: &Row) -> Option<Row> {
    let variant = view::text(base, "variant");
    let (policy, size) = (view::text(of, "policy"), view::text(of, "size_packets"));
    let stream = format!("{variant}/{policy}/{size}");
    let ratio = stats::ratio_of_means(&base.values, &of.values, SEED, &stream)?;
    let mut row = Row::new("pa.gain", &of.subject, "ratio", vec![ratio.value]);
    row.context.clone_from(&of.context);
    Some(row.with("variant", variant).with("ci95_low", ratio.low).with("ci95_high", ratio.high))
}
