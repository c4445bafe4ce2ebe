//! Steers the Linux kernel's tunnel work to cores: `sluice steer DEV`.
//!
//! For hosts whose kernel carries VXLAN itself. The kernel processes a packet on the core that the
//! card's hash selects, even if that core runs a machine. Here every packet goes to the core that
//! [`sluice_placement`] chose for its inner flow: by an XDP program and a CPU map (`bpf/`), or, for
//! a device that takes none, roughly, by the mask of receive packet steering (RPS).
//!
//! Nothing outlives the process: the XDP program belongs to one of its descriptors, and the mask is
//! restored.
#![forbid(unsafe_code)]

mod cli;
mod device;
mod drill;
mod due;
mod follow;
mod force;
mod list;
mod placing;
mod report;
mod rps;
mod rules;
mod run;
mod stat;
mod status;
mod waits;
mod xdp;

pub use cli::{Arguments, steer};
