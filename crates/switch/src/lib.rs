//! The data plane of Sluice as a pure state machine: the same code in a live host and in a
//! simulated one.
//!
//! **Aim.** A frame is never dropped because a queue is full (on a lossless priority). The switch
//! promises room *before* a frame is read ([`Switch::window`]); a driver that reads no more than
//! that cannot cause a loss. A frame that waits is a handle in a queue by (source, queue group,
//! priority); the frame itself stays where its sender put it. When the output takes the frame
//! ([`Switch::transmit`]), the handle goes back ([`Switch::reclaim`]) and the window opens again.
//! Backpressure travels from a receiver to a sender this way.
//!
//! **Not its aim.** The switch copies nothing, reads no clock, opens no socket and allocates
//! nothing after [`Switch::new`]. It learns no address: it punts frames to a control plane that is
//! attached, which may learn from them.
//!
//! ```text
//!  window ─> driver reads ─> receive ─> classify ─> FDB ──> queue (source, queue group, priority)
//!     ^                                    │ miss                     │ scheduler
//!     │                                    └─> unresolved ── Install ─┤
//!     └── reclaim <── ended <──────────────────────────── transmit ───┘
//! ```
//!
//! A frame leaves in one of four ways: a driver takes it, it is dropped under a [`DropReason`], it
//! is consumed (flow control, or ARP and ND while control is attached), or its port is detached.
//! [`Switch::audit`] checks that these add up.
//!
//! [`DropReason`]: sluice_base::DropReason
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod audit;
mod classify;
mod config;
mod dscp;
mod egress;
mod fdb;
mod ingress;
mod inspect;
mod ledger;
mod mac_table;
mod networks;
mod numbers;
mod pause;
mod place;
mod pool;
mod shaper;
mod shard;
mod sizes;
mod slots;
mod surface;
mod switch;
mod tunnel;
mod validate;

pub use audit::{Audit, AuditRow, Balance};
pub use config::{
    Binding, ClassConfig, ConfigError, ControlConfig, FdbConfig, HandoffConfig, Hold, InputFull,
    IsolationConfig, Limit, PauseConfig, PoolConfig, PortConfig, PortRole, RateLimit, Service,
    Sources, SpareConfig, SparePlaces, SwitchConfig, Tags, Trust, TunnelConfig, UnresolvedConfig,
    VnetConfig,
};
pub use inspect::{Counter, FdbState, IsolatedState, Marks, PauseState, TunnelCounters};
pub use mac_table::Used;
pub use networks::{DecapFlow, PlaceState};
pub use pause::{PauseReceiver, PauseSender};
pub use sluice_base::{Command, Destination, PuntCause, ReceiverState};
pub use surface::{
    ALLOWED_MAX, BOUND_IPS_MAX, BOUND_MACS_MAX, BoundIps, CommandError, Detached, Egress, Head,
    Notice, QueueGroupKind, QueueState, Sink, Taken, Target, Window,
};
pub use switch::{
    AttachError, ChangeError, Classifier, DroppedFrame, FreePlaces, HOLD_LEASE, Handoff,
    HandoffSink, MigratedPort, PortState, PortValues, PuntCounters, RemoteRef, Switch,
};
pub use tunnel::resize_outer;

#[cfg(test)]
mod tests;
