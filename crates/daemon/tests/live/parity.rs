//! Bridge parity: each case is a small script of real clients, run on two hosts with the kernel's
//! VXLAN and a Linux bridge, and on two hosts of a fabric. A difference is a failure, unless the
//! tables of `docs/bridge-parity.md` name it; a row that no longer differs is a failure, too.
//!
//! ```text
//!   a ─┐                           ┌─ b        stations of a case: 10.0.0.1, 10.0.0.2, …
//!      ├ h1 up0 ═══════════ up0 h2 ┤           in a network that no other case has
//!   c ─┘                           └─ d
//! ```
//!
//! `PARITY=arp/` runs the cases with that prefix; then rows of others are not checked. Cases that
//! take longer than some seconds run under `SLUICE_SOAK=1`.

pub(crate) mod bridge;
pub(crate) mod cases;
pub(crate) mod client;
pub(crate) mod fabric;
pub(crate) mod frames;
pub(crate) mod judge;
pub(crate) mod listen;
pub(crate) mod round;
pub(crate) mod seen;
pub(crate) mod station;
pub(crate) mod table;
pub(crate) mod world;

use crate::rig;
use seen::Seen;
use world::World;

/// Time at which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Beside others.
    Beside,
    /// By itself, after the others: it fills a host's limits, or measures.
    Alone,
    /// By itself, and only under `SLUICE_SOAK=1`: it takes long.
    Soak,
}

/// A script and its name.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Theme and behaviour, as in the tables of `docs/bridge-parity.md`.
    pub(crate) name: &'static str,
    pub(crate) when: When,
    /// Programs without which it is skipped.
    pub(crate) tools: &'static [&'static str],
    /// Sets up stations, lets them act, and returns the observations.
    pub(crate) script: fn(&World<'_>) -> Seen,
}

/// Makes a case that runs beside others and needs no program but `ip`.
pub(crate) const fn case(name: &'static str, script: fn(&World<'_>) -> Seen) -> Case {
    Case { name, when: When::Beside, tools: &[], script }
}

impl Case {
    /// Adds programs that it needs.
    pub(crate) const fn with(self, tools: &'static [&'static str]) -> Self {
        Self { tools, ..self }
    }

    /// Sets the time at which it runs.
    pub(crate) const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
}

#[test]
#[ignore = "live: needs root"]
fn behaviour_equals_that_of_a_linux_bridge() {
    if rig::skip("live::parity", &["ping"]) {
        return;
    }
    round::run();
}
