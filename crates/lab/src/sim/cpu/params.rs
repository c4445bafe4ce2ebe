//! The file of parameters: fitted values, assumed values, and the paper's values of its testbed.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use sluice_sim::cpu::Params;

use super::published::SIZES;

/// The frozen parameters.
const SHIPPED: &str = include_str!("../../../../../experiments/vs-extend/params.toml");

/// Content of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    fitted: Fitted,
    assumed: Assumed,
    pub(crate) testbed: Testbed,
}

/// Parameters found by `fit`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fitted {
    segment_ns: u64,
    datagram_ns: u64,
    guest_ns: u64,
    thread_run_ns: u64,
}

/// Parameters that Table 4 does not determine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Assumed {
    byte_ps: u64,
    interrupt_ns: u64,
    softirq_run_ns: u64,
    quantum_ns: u64,
    descriptors: u64,
    refill: u64,
    guest_ring: u64,
    jitter_percent: u64,
}

/// The host and its senders.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Testbed {
    pub(crate) cores: u16,
    /// The core that does all work if nothing spreads it.
    pub(crate) default_core: u16,
    /// The core to which a card's hash of two addresses alone sends fragments.
    pub(crate) fragments_core: u16,
    pub(crate) link_mbps: u64,
    /// Offered rate of a sender, in kbit/s, for 64, 1400 and 8192 bytes.
    pub(crate) offered_kbps: [u64; 3],
}

impl Testbed {
    /// Returns the offered rate of a sender, in bit/s; of a size that the paper does not have, that
    /// of 1,400 bytes.
    pub(crate) fn offered_bps(&self, bytes: u64) -> u64 {
        let at = SIZES.iter().position(|size| *size == bytes).unwrap_or(1);
        self.offered_kbps[at] * 1000
    }
}

impl File {
    /// Loads the shipped file, or another one.
    pub(crate) fn load(path: Option<&Path>) -> anyhow::Result<Self> {
        let (name, text) = match path {
            None => ("the shipped params.toml".to_owned(), SHIPPED.to_owned()),
            Some(path) => {
                let name = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("reading {name}: --params takes a file"))?;
                (name, text)
            }
        };
        let file: Self = toml::from_str(&text).with_context(|| {
            format!("{name}: write it as experiments/vs-extend/params.toml is written")
        })?;
        if let Some(wrong) = file.params().wrong() {
            anyhow::bail!(
                "{name}: {wrong} cannot work; costs and bounds are above zero, refill is at most \
                 descriptors, jitter_percent at most 100"
            );
        }
        let bed = &file.testbed;
        ensure!(
            bed.cores > bed.default_core.max(bed.fragments_core) && bed.cores >= 4,
            "{name}: testbed.cores is at least 4 and above default_core and fragments_core"
        );
        ensure!(
            bed.link_mbps > 0 && bed.offered_kbps.iter().all(|rate| *rate > 0),
            "{name}: testbed.link_mbps and every offered_kbps are above zero"
        );
        Ok(file)
    }

    /// Returns the parameters in the form of the model.
    pub(crate) const fn params(&self) -> Params {
        let (fitted, assumed) = (&self.fitted, &self.assumed);
        Params {
            segment_ns: fitted.segment_ns,
            datagram_ns: fitted.datagram_ns,
            byte_ps: assumed.byte_ps,
            guest_ns: fitted.guest_ns,
            interrupt_ns: assumed.interrupt_ns,
            softirq_run_ns: assumed.softirq_run_ns,
            thread_run_ns: fitted.thread_run_ns,
            quantum_ns: assumed.quantum_ns,
            descriptors: assumed.descriptors,
            refill: assumed.refill,
            guest_ring: assumed.guest_ring,
            jitter_percent: assumed.jitter_percent,
        }
    }
}
