//! A virtual machine's network card (vhost-user: virtio 1.2 section 5.1, with the device in this
//! process).
//!
//! ```text
//!   guest memory, mapped                                           session: a thread
//!   ┌──────────────────┐  read(): handle       ┌────────┐          ┌──────────────┐
//!   │ transmit queue   │ ────────────────────▶ │ switch │          │ front end's  │
//!   │                  │ ◀──── chain used ──── │        │  changes │ requests     │
//!   │ receive queue    │ ◀── offer(): copy ─── │        │ ◀─────── │              │
//!   └──────────────────┘                       └────────┘          └──────────────┘
//! ```
//!
//! **One copy.** A frame waits in the sender's own memory and is copied once, into the buffers of
//! the receiver; then the sender's chain is used. Backpressure means that the switch does not copy
//! yet.
//!
//! **Stopping.** A front end that stops a ring, or maps its memory anew, gets its reply when the
//! guest has every chain back: the worker takes all handles of the port out of the switch
//! ([`crate::SharedRings::handle_events`]).
//!
//! **Migration.** While a front end copies a guest to another host, every page that is written here
//! is marked in a bitmap; see `log.rs`.
//!
//! **Hostile guests.** Memory that a guest writes is read once, as a copy, and checked; see
//! `ring.rs`. A ring that breaks the rules stops, with the name of its fault
//! ([`crate::DeviceState::problem`]), until the driver sets it up anew, and no other port is
//! affected. The same holds for a ring whose memory goes away; see `sigbus.rs`.
#![allow(unsafe_code, reason = "memory is shared with a guest")]

mod config;
mod device;
mod driver;
mod header;
mod incoming;
mod log;
mod memory;
mod offload_rx;
mod order;
mod outgoing;
mod queues;
mod records;
mod ring;
mod session;
mod sigbus;
mod waking;

pub use config::VhostUserConfig;
pub use driver::VhostUserPort;
pub use session::Role;
