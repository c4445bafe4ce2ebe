//! Basic types of the project: units, identifiers, priorities, drop reasons, causes of punts,
//! commands of the control plane, states of receivers, frame handles and a seeded random number
//! generator.
//!
//! This crate cannot name a clock, a socket, a thread or the machine's randomness: time and seeds
//! are always arguments. Everything above it shares these types, so a live switch and a simulated
//! one speak about the same things.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod buf;
mod command;
mod drop_reason;
mod flow_match;
mod ids;
mod prng;
mod punt;
mod receiver;
mod units;

pub use buf::{Batch, Buf, Full, VlanTag};
pub use command::Command;
pub use drop_reason::{DropClass, DropReason};
pub use flow_match::{FlowMatch, IpPrefix, ParseMatchError};
pub use ids::{
    Destination, HostId, InputId, Mac, ParseMacError, PortId, Priority, PriorityMask, QueueGroupId,
    SourceId, TunnelId, VnetId, Vni,
};
pub use prng::{Prng, mix};
pub use punt::{PUNT_HEAD_SIZE_MAX, PuntCause};
pub use receiver::ReceiverState;
pub use units::{BitRate, ByteCount, Nanos};
