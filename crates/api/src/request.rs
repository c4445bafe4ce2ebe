//! Requests to the processes of a host, as lines of JSON on their sockets. Those that only control
//! sends to data are among them: both sockets speak one protocol.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::port::NewPort;
use crate::show::Question;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Identify this process.
    Hello,
    /// Identify this host.
    Who,
    /// Is this host well, and its fabric?
    Status,
    /// A question of `sluice show`.
    Show(Question),
    /// A question of `sluice trace` about entries of the switch.
    Look(crate::trace::Look),
    /// A question about the fabric.
    Fabric(crate::fabric::Question),
    /// A question about the placement policy.
    Placement(crate::placement::Question),
    /// A question about the fabric's configuration, or a change of it.
    Transaction(Box<crate::transaction::Question>),
    /// Follow this placement policy.
    Follow(Box<crate::placement::Stamped>),
    /// A question about tokens of the management API, or a change of them.
    Access(crate::access::Question),
    /// Add a port. To data: a port that is there already as requested is not opened again.
    Add(Box<NewPort>),
    /// Delete a port.
    Del(String),
    /// List the ports that were added.
    Ports,
    /// Look at the device of an added port.
    Card(String),
    /// Send the descriptors of these ports for control to keep; of all if none is named.
    Lend(Vec<String>),
    /// Keep these added ports: delete other ones, and the remains of an earlier process.
    Tidy(Vec<String>),
    /// Does every worker still answer?
    Pulse,
    /// Hand everything over, in this format.
    Yield(u32),
    /// End: another process continues.
    Leave,
    /// Continue: no other process does.
    GoOn,
    /// Have another data process, of the program that is there now, take over.
    Upgrade,
    /// Report the configuration that it runs.
    Running,
    /// Take over a new configuration, as far as that is possible now.
    Reconfigure(Box<Wanted>),
    /// Read the configuration file again, and apply it.
    Reload,
    /// Capture frames: their records follow on this connection.
    Capture(Box<crate::capture::Question>),
    /// Use this connection for punts and commands of one worker from now on.
    Attach(u16),
}

/// A new configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its text.
    pub text: String,
    /// Base directory of its relative paths.
    pub dir: Option<PathBuf>,
    /// True if nothing is to be changed.
    pub only_check: bool,
}
