//! Every cell of Tables 4 to 7 of the paper, with its value if that is known here.
//!
//! Muramatsu, Kawashima, Saito and Matsuo, "VSE: Virtual Switch Extension for Adaptive CPU Core
//! Assignment in Softirq", IEEE CloudCom 2014, pages 923 to 928. Throughput is in Mbit/s of
//! payload, loss in hundredths, sizes are in bytes of UDP payload. The full text is not at hand;
//! a cell whose value is not known is [`Cell::Unknown`], and is predicted all the same.

use Cell::{Dash, Printed, Unknown};

/// A cell of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// The value that the paper gives.
    Printed(f64),
    /// The paper prints a dash.
    Dash,
    /// The paper has a value that is not known here.
    Unknown,
}

impl Cell {
    pub(crate) const fn value(self) -> Option<f64> {
        match self {
            Self::Printed(value) => Some(value),
            Self::Dash | Self::Unknown => None,
        }
    }
}

/// Datagram sizes of the paper.
pub(crate) const SIZES: [u64; 3] = [64, 1400, 8192];

/// Assignment of flows and machines to cores in Table 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Two flows are processed on one core.
    SharedCore,
    /// Two flows, a core each.
    TwoCores,
    /// One flow is processed on the core of its machine.
    OnVmCore,
    /// One flow, on a core without a machine.
    OnFreeCore,
}

impl Case {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SharedCore => "two flows, one core",
            Self::TwoCores => "two flows, two cores",
            Self::OnVmCore => "flow on its VM's core",
            Self::OnFreeCore => "flow on a free core",
        }
    }

    /// Returns the cores of the flows.
    pub(crate) const fn cores(self) -> &'static [u16] {
        match self {
            Self::SharedCore => &[3, 3],
            Self::TwoCores => &[2, 3],
            Self::OnVmCore => &[0],
            Self::OnFreeCore => &[3],
        }
    }
}

/// Table 4: throughput of all flows together per size.
pub(crate) const TABLE_4: [(Case, [Cell; 3]); 4] = [
    (Case::SharedCore, [Printed(39.5), Printed(954.9), Dash]),
    (Case::TwoCores, [Printed(39.4), Printed(1509.9), Printed(1702.4)]),
    (Case::OnVmCore, [Printed(19.7), Printed(617.3), Printed(4.0)]),
    (Case::OnFreeCore, [Printed(19.8), Printed(754.6), Printed(880.1)]),
];

/// A steering rule of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// One core does all softirq work.
    Default,
    /// Receive-side scaling.
    Rss,
    /// The paper's proposal.
    VsExtend,
    /// RSS++; not in the paper.
    RssPlusPlus,
    /// The product's own; not in the paper.
    Adaptive,
}

impl Rule {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Rss => "rss",
            Self::VsExtend => "vs-extend",
            Self::RssPlusPlus => "rss++",
            Self::Adaptive => "adaptive",
        }
    }
}

const NONE: Cell = Printed(0.0);

/// Table 5: softirqs of each of four cores in millions, two VMs on cores 0 and 1. The span in which
/// they were counted is not known. The count of the proposal is known for one size, taken to be
/// 1,400 bytes.
pub(crate) const TABLE_5: [(u64, Rule, [Cell; 4]); 9] = [
    (64, Rule::Default, [NONE, NONE, NONE, Unknown]),
    (64, Rule::Rss, [Unknown; 4]),
    (64, Rule::VsExtend, [NONE, NONE, Unknown, Unknown]),
    (1400, Rule::Default, [NONE, NONE, NONE, Unknown]),
    (1400, Rule::Rss, [Unknown; 4]),
    (1400, Rule::VsExtend, [NONE, NONE, Printed(82.63), Printed(82.63)]),
    (8192, Rule::Default, [NONE, NONE, NONE, Unknown]),
    (8192, Rule::Rss, [Unknown; 4]),
    (8192, Rule::VsExtend, [NONE, NONE, Unknown, Unknown]),
];

/// Table 5: Jain's index of the counts under RSS, per size.
pub(crate) const TABLE_5_JAIN: [(u64, f64); 3] = [(64, 0.96), (1400, 0.96), (8192, 0.31)];
/// Table 5: the share of core 0 under RSS with 8,192 bytes, in hundredths.
const RSS_8192_CORE_0: f64 = 90.0;

/// Returns a core's share of the softirqs in Table 5, in hundredths, as far as it follows from what
/// is known.
pub(crate) fn share(bytes: u64, rule: Rule, core: usize) -> Option<f64> {
    if (bytes, rule, core) == (8192, Rule::Rss, 0) {
        return Some(RSS_8192_CORE_0);
    }
    let (_, _, cells) = TABLE_5.iter().find(|row| (row.0, row.1) == (bytes, rule))?;
    let is_idle = |cell: &Cell| *cell == NONE;
    if is_idle(&cells[core]) {
        return Some(0.0);
    }
    if cells.iter().filter(|cell| !is_idle(cell)).count() == 1 {
        return Some(100.0);
    }
    let sum: Option<f64> = cells.iter().map(|cell| cell.value()).sum();
    Some(100.0 * cells[core].value()? / sum?)
}

/// Table 6: loss of VM1 and VM2, two VMs. (The paper prints the last of `default` as "524".)
pub(crate) const TABLE_6: [(u64, Rule, [f64; 2]); 9] = [
    (64, Rule::Default, [0.1, 0.1]),
    (64, Rule::Rss, [0.8, 0.9]),
    (64, Rule::VsExtend, [0.1, 0.1]),
    (1400, Rule::Default, [34.5, 34.5]),
    (1400, Rule::Rss, [15.8, 17.0]),
    (1400, Rule::VsExtend, [0.2, 0.2]),
    (8192, Rule::Default, [51.4, 52.4]),
    (8192, Rule::Rss, [95.3, 43.5]),
    (8192, Rule::VsExtend, [14.8, 14.7]),
];

/// Table 7: the sum of three VMs, and each of them; VM1 is of high priority.
pub(crate) const TABLE_7: [(u64, Rule, f64, [Cell; 3]); 6] = [
    (64, Rule::Rss, 58.2, [Unknown; 3]),
    (64, Rule::VsExtend, 59.1, [Unknown; 3]),
    (1400, Rule::Rss, 1353.7, [Printed(481.8), Unknown, Unknown]),
    (1400, Rule::VsExtend, 2026.7, [Printed(745.3), Unknown, Unknown]),
    (8192, Rule::Rss, 217.1, [Printed(3.4), Unknown, Unknown]),
    (8192, Rule::VsExtend, 1492.5, [Printed(844.8), Unknown, Unknown]),
];

#[cfg(test)]
mod tests;
