//! Interface of Sluice to people and programs: the configuration file of a host, and the versioned
//! JSON of the management API.
//!
//! This crate has types, what follows from them alone, and the client's side of a host's socket
//! ([`client`]). The daemon checks a configuration and builds a switch from it.
#![forbid(unsafe_code)]

pub mod access;
pub mod agree;
pub mod capture;
pub mod client;
pub mod config;
pub mod discovery;
pub mod doctor;
pub mod envelope;
pub mod fabric;
pub mod fabric_config;
pub mod foreign;
mod hold;
pub mod http;
pub mod placement;
pub mod port;
pub mod reload;
pub mod request;
pub mod results;
#[cfg(feature = "openapi")]
mod schema;
pub mod show;
pub mod span;
pub mod sysdump;
pub mod trace;
pub mod transaction;
pub mod upgrade;
