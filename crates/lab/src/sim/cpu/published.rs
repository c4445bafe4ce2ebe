//! The figures that the paper prints, as far as they are available.
//!
//! Kawashima and Matsuo, "VSE: Virtual Switch Extension for Adaptive CPU Core Assignment in
//! Softirq", IEEE CloudCom 2014, pages 923 to 928. Throughput is in Mbit/s of payload, loss in
//! hundredths, sizes are in bytes of UDP payload.

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
pub(crate) const TABLE_4: [(Case, [Option<f64>; 3]); 4] = [
    (Case::SharedCore, [Some(39.5), Some(954.9), None]),
    (Case::TwoCores, [Some(39.4), Some(1509.9), Some(1702.4)]),
    (Case::OnVmCore, [Some(19.7), Some(617.3), Some(4.0)]),
    (Case::OnFreeCore, [Some(19.8), Some(754.6), Some(880.1)]),
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

/// Table 7: three VMs, the sum of all, and VM1 (of high priority) where available.
pub(crate) const TABLE_7: [(u64, Rule, f64, Option<f64>); 6] = [
    (64, Rule::Rss, 58.2, None),
    (64, Rule::VsExtend, 59.1, None),
    (1400, Rule::Rss, 1353.7, Some(481.8)),
    (1400, Rule::VsExtend, 2026.7, Some(745.3)),
    (8192, Rule::Rss, 217.1, Some(3.4)),
    (8192, Rule::VsExtend, 1492.5, Some(844.8)),
];

/// Table 5: how evenly RSS spreads softirq work over four cores (Jain's index), per size.
pub(crate) const TABLE_5_JAIN: [(u64, f64); 3] = [(64, 0.96), (1400, 0.96), (8192, 0.31)];
/// Table 5: the share of core 0 under RSS with 8,192 bytes, in hundredths.
pub(crate) const TABLE_5_RSS_8192: f64 = 90.0;
/// Table 5: share of each core under the proposal: two cores do all work, evenly (82.63 million
/// each), in hundredths.
pub(crate) const TABLE_5_PROPOSAL: [f64; 4] = [0.0, 0.0, 50.0, 50.0];
