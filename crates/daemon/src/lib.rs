//! `sluice daemon`: a host as two processes of one program.
//!
//! *Data* owns the switch and its ports and forwards frames in one thread. *Control* starts it,
//! watches it and answers questions. Either may be killed or restarted; data forwards on without
//! control, and control starts data again when it dies.
//!
//! ```text
//!   sluice show ──▶ show.sock ── control ──▶ data.sock ── data: server ──▶ worker ── ports
//!                                   └ starts, drains, restarts ┘   questions between turns
//! ```
//!
//! [`config`] turns `host.toml` into a plan. Nothing on the path of a frame logs or allocates.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "processes"),
    allow(dead_code, unused_imports, reason = "the processes use what only reads nothing of")
)]

#[cfg(feature = "processes")]
mod check;
#[cfg(feature = "processes")]
pub mod client;
pub mod config;
#[cfg(feature = "processes")]
mod configuration;
#[cfg(feature = "processes")]
pub mod control;
#[cfg(feature = "processes")]
pub mod data;
pub mod discovery;
#[cfg(feature = "processes")]
mod doctor;
pub mod enroll;
#[cfg(feature = "processes")]
pub mod fabric;
#[cfg(feature = "processes")]
pub mod import;
pub mod ipc;
#[cfg(feature = "processes")]
mod metrics;
#[cfg(feature = "processes")]
mod registry;
pub mod sys;
#[cfg(feature = "processes")]
mod sysdump;
#[cfg(feature = "processes")]
mod telemetry;

#[cfg(feature = "processes")]
pub use check::check;
#[cfg(feature = "processes")]
pub use doctor::doctor;
#[cfg(feature = "processes")]
pub use sysdump::sysdump;
