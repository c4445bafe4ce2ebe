//! Commands that ask a running host: each connects to a socket, sends a request and prints the
//! answer. Nothing here knows the switch, the ports or the fabric's keys.

pub mod access;
pub mod capture;
pub mod discover;
pub mod fabric;
pub mod placement;
pub mod port;
pub mod reload;
pub mod show;
pub mod status;
pub mod top;
pub mod transaction;
pub mod upgrade;
