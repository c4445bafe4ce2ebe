//! Network namespaces of this machine, the programs that set them up (iproute2, ethtool), and hosts
//! in them: for the lab, the benchmarks and the live tests.
//!
//! A namespace is entered by a thread of its own that ends afterwards. No other thread of the
//! program ever leaves its first namespace. A program started by such a thread starts in the
//! namespace.
#![forbid(unsafe_code)]

mod cable;
mod error;
pub mod frr;
pub mod host;
mod namespace;
mod tool;
mod wait;

pub use cable::{PLAIN_FRAMES, cable, offloads_off, veth_arguments, veth_pair};
pub use error::Error;
pub use namespace::{Netns, disable_ipv6, exists, identity, inside, path};
pub use tool::{is_installed, run, run_all, tool};
pub use wait::{happens, wait};

#[cfg(test)]
mod tests;
