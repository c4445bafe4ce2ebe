//! The processor time of a host that receives: cores, soft interrupts, vCPUs.
//!
//! The rest of the simulator takes a host's cores as fast enough. Here cores are scarce: a flow's
//! tunnel work is done by one core, a virtual machine needs time of one core, and if both are the
//! same core they compete. The product's own [`Placement`](sluice_placement::Placement) assigns
//! work to cores, and packets follow its table.
//!
//! ```text
//!  sender ─ segments ─> wire ─ table ─> descriptors of a core ─ softirq ─> ring of a guest ─ vCPU
//!  (offered rate)        │               (bounded)       └─ delivery on another core ─┘
//!                        └ held back under Policy::Hold while there is no room
//! ```
//!
//! A datagram is one segment or, beyond the tunnel's MTU, several, which leave back to back. If one
//! of them finds no descriptor the datagram is lost, and the work on the others was for nothing.
//!
//! Work of a core, in order of precedence:
//!
//! 1. softirq work, first come, first served, each time it becomes busy with an interrupt before;
//! 2. after [`Params::softirq_run_ns`] of that without a pause, a vCPU for
//!    [`Params::thread_run_ns`] (as `ksoftirqd` leaves the core to the scheduler);
//! 3. vCPUs with work, in turn.
//!
//! Left out on purpose: caches, NUMA, hyper-threads, frequency, the sending side's cores, exits and
//! entries of machines as such (their cost is part of the interrupt's), and everything that TCP
//! would do: senders offer datagrams at a rate. Time is an integer, no decision uses a float, ties
//! are broken in the order of events: one seed, one result.

mod core;
mod flow;
mod guest;
mod host;
mod params;
mod report;
mod scenario;
mod steering;
mod work;

pub use host::{Error, run};
pub use params::{Field, Params};
pub use report::{CoreReport, FlowReport, Report};
pub use scenario::{Flow, Policy, Scenario};

#[cfg(test)]
mod tests;
