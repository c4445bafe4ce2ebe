//! Places the Linux kernel's tunnel work on cores: `sluice steer DEV`.
//!
//! For hosts whose kernel carries VXLAN itself. The kernel processes a packet on the core to which
//! the card's hash leads, whoever runs there. Here every packet goes to the core that
//! [`sluice_placement`] chose for its inner flow: by an XDP program and a CPU map (`bpf/`), or,
//! where a device takes none, roughly, by the mask of receive packet steering (RPS).
//!
//! Nothing outlives the program: the XDP program belongs to a descriptor of it, and the mask is
//! put back.
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
