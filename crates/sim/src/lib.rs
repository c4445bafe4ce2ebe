//! A data centre in one thread: hosts with the product's own virtual switch, physical switches
//! with priority flow control, TCP, and workloads, frame by frame.
//!
//! Everything is a function of the scenario and its seed: time is an integer, ties are broken by
//! rule, nothing is read from the machine. The same seed gives the same bytes. Only [`pages`]
//! depends on the machine, and no result depends on it.
#![forbid(unsafe_code)]

pub mod check;
pub mod cpu;
mod event;
pub mod events;
mod ids;
mod ledger;
pub mod net;
pub mod overlay;
mod packets;
pub mod pages;
mod slab;
pub mod tcp;
pub mod topology;
pub mod trace;
pub mod workload;
pub mod world;
