//! Messages between the processes of a host, and between a command and a process.

pub(crate) mod capture;
pub(crate) mod channel;
pub(crate) mod handover;
pub mod protocol;
pub(crate) mod serve;
