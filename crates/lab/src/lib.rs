//! Labs: hosts, containers and physical switches as network namespaces of one Linux machine, with
//! the kernel's own TCP over them, measured and reported.
//!
//! A *scenario* ([`Scenario`]) describes the machines and the workload. [`run()`] builds it,
//! measures and takes it down; [`up`] builds it and leaves it running until [`down`]. Every object
//! is put on record before it is made, so that a lab can always be removed, even by the next start
//! after a `SIGKILL`. Nothing else is touched.
//!
//! The same scenarios run in the simulator: [`sim`] has its commands, which need no root.
//!
//! A lab needs root and the programs `ip`, `tc` and `ethtool`. The program that runs a lab is also
//! the daemon of its hosts, the aggregator and the workers: it starts itself again in the
//! namespaces, and in virtual machines if a scenario has some.
#![forbid(unsafe_code)]

mod checks;
pub mod cli;
mod congestion;
mod cores;
mod counters;
mod daemons;
mod flood;
mod guests;
mod interrupt;
mod lab;
mod losses;
mod machine;
mod members;
mod netns;
mod ovs;
mod pa;
mod plan;
mod processor;
mod progress;
mod report;
mod results;
mod run;
mod scenario;
mod settings;
mod show;
pub mod sim;
mod state;
mod stats;
mod table;
mod today;
mod view;
mod walk;
mod workload;

pub use run::{Options, Outcome, Overrides, report, run, status, up};
pub use scenario::{Check, Fabric, GuestKind, Lab, Pa, Profile, Scenario, Tcp, Vnic};
pub use settings::{Override, Settings, Variant};
pub use state::{Process, State};
pub use today::Today;

use std::net::Ipv4Addr;

/// Takes a lab down, by its own name or its scenario's. Returns false if there was none.
///
/// # Errors
///
/// A part of the lab is still there.
pub fn down(name: &str) -> anyhow::Result<bool> {
    let known = scenario::SHIPPED.iter().any(|(shipped, _)| *shipped == name);
    if known && State::load(name)?.is_none() {
        return lab::down(&Scenario::load(name)?.lab.name);
    }
    lab::down(name)
}

/// Lists the scenarios that ship: name and description.
///
/// # Errors
///
/// One of the scenarios is wrong.
pub fn list() -> anyhow::Result<Vec<(&'static str, String)>> {
    let about = |(name, text)| Ok((name, Scenario::parse(text)?.lab.about));
    scenario::SHIPPED.into_iter().map(about).collect()
}

/// Runs the process that answers requests in a container.
///
/// # Errors
///
/// The process cannot listen.
pub fn worker_main(address: Ipv4Addr, port: u16, congestion: &str) -> anyhow::Result<()> {
    pa::worker::run(address, port, congestion)
}

/// Runs the process that sends requests. It takes its jobs from standard input.
///
/// # Errors
///
/// The input is not understood.
pub fn aggregator_main() -> anyhow::Result<()> {
    pa::aggregator::run()
}
