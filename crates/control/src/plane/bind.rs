//! Reasons why an endpoint is not bound to a port.

use core::fmt;

use sluice_base::{Mac, PortId};

use crate::mobility::Refusal;

/// Reason why the addresses that a local endpoint is bound with cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindError {
    /// There is no such port in that network.
    NoSuchPort(PortId),
    /// A group address is no endpoint.
    GroupAddress(Mac),
    /// The table has no room.
    Full,
    /// The endpoint may not be claimed here.
    Refused(Refusal),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPort(port) => write!(f, "port {port} is not in the network"),
            Self::GroupAddress(mac) => write!(f, "{mac} is a group address"),
            Self::Full => f.write_str("the vport table is full"),
            Self::Refused(why) => write!(f, "it may not be claimed here: {why}"),
        }
    }
}

impl core::error::Error for BindError {}
