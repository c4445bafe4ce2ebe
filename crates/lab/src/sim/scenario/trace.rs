//! `[trace]`: samples of a run, written beside its results.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use sluice_base::Nanos;
use sluice_sim::trace::Kinds;

/// Longest interval: 10 s.
const INTERVAL_US_MAX: u64 = 10_000_000;

/// Samples to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracePlan {
    /// Kinds of samples.
    #[serde(default = "every_kind")]
    pub(crate) what: Vec<Kind>,
    /// Simulated time between two samples.
    pub(crate) interval_us: u64,
}

/// A kind of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The congestion window of each flow.
    Window,
    /// The rate of each flow.
    Rate,
    /// The queue of each link.
    Queue,
    /// The waits at each link.
    Wait,
}

fn every_kind() -> Vec<Kind> {
    vec![Kind::Window, Kind::Rate, Kind::Queue, Kind::Wait]
}

impl TracePlan {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// Names the key with the wrong value, and the value to write instead.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.what.is_empty(),
            "trace.what: at least one of window, rate, queue, wait; leave it out for all of them"
        );
        ensure!(
            (1..=INTERVAL_US_MAX).contains(&self.interval_us),
            "trace.interval_us: 1 to {INTERVAL_US_MAX}"
        );
        Ok(())
    }

    /// Returns the kinds of samples in the simulator's form.
    pub(crate) fn kinds(&self) -> Kinds {
        let has = |kind| self.what.contains(&kind);
        Kinds {
            window: has(Kind::Window),
            rate: has(Kind::Rate),
            queue: has(Kind::Queue),
            wait: has(Kind::Wait),
        }
    }

    pub(crate) const fn interval(&self) -> Nanos {
        Nanos::from_micros(self.interval_us)
    }
}
