//! What people and programs exchange with Sluice: the configuration file of a host, and the
//! versioned JSON of the management API.
//!
//! Types only. Checking a configuration and turning it into a switch is the daemon's work.
#![forbid(unsafe_code)]

pub mod agree;
pub mod config;
pub mod envelope;
pub mod fabric;
pub mod foreign;
mod hold;
pub mod placement;
pub mod port;
pub mod results;
pub mod show;
pub mod trace;
pub mod upgrade;
