//! Workload and background of the kind `udp-sources`: datagrams of one size at constant or at
//! random gaps.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use sluice_sim::workload;

use super::default_datagram;

/// Distribution of the gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gaps {
    Constant,
    Poisson,
}

impl From<Gaps> for workload::Gaps {
    fn from(gaps: Gaps) -> Self {
        match gaps {
            Gaps::Constant => Self::Constant,
            Gaps::Poisson => Self::Poisson,
        }
    }
}

/// Sources that send to the first machine of host 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceLoad {
    pub(crate) gaps: Gaps,
    /// Machines of other hosts that send.
    pub(crate) senders: u32,
    /// Load of all senders together, in percent of the receiver's link, with all headers.
    pub(crate) load_percent: u32,
    /// Payload of a datagram.
    #[serde(default = "default_datagram")]
    pub(crate) datagram_bytes: u32,
    pub(crate) duration_ms: u64,
}

/// Sources that run beside a workload: each machine sends to that of the next host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceNoise {
    pub(crate) gaps: Gaps,
    /// Load of each machine, in percent of its host's link, with all headers.
    pub(crate) load_percent: u32,
    /// Payload of a datagram.
    #[serde(default = "default_datagram")]
    pub(crate) datagram_bytes: u32,
    /// Only this machine of each host; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vm: Option<u32>,
}

impl SourceLoad {
    /// Checks the values; `others` is the number of machines of the hosts beside host 0.
    ///
    /// # Errors
    ///
    /// Names the key with the wrong value, and the value to write instead.
    pub(super) fn check(&self, others: u32, mtu: u16) -> anyhow::Result<()> {
        ensure!(
            (1..=others).contains(&self.senders),
            "workload.senders: 1 to {others}, the machines of the other hosts"
        );
        ensure!((1..=60_000).contains(&self.duration_ms), "workload.duration_ms: 1 to 60000");
        check_values("workload", self.load_percent, self.datagram_bytes, mtu)
    }
}

impl SourceNoise {
    /// Checks the values; `vms` is the number of machines of a host.
    ///
    /// # Errors
    ///
    /// Names the key with the wrong value, and the value to write instead.
    pub(super) fn check(&self, vms: u32, mtu: u16) -> anyhow::Result<()> {
        ensure!(
            self.vm.is_none_or(|vm| vm < vms),
            "background.vm: below overlay.vms_per_host, which is {vms}"
        );
        check_values("background", self.load_percent, self.datagram_bytes, mtu)
    }
}

fn check_values(table: &str, load_percent: u32, datagram: u32, mtu: u16) -> anyhow::Result<()> {
    let most = mtu - 28;
    ensure!(
        (1..=u32::from(most)).contains(&datagram),
        "{table}.datagram_bytes: 1 to {most}, the MTU without headers"
    );
    ensure!((1..=100).contains(&load_percent), "{table}.load_percent: 1 to 100");
    Ok(())
}
