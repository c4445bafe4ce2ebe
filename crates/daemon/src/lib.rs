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

mod check;
pub mod client;
pub mod config;
mod configuration;
pub mod control;
pub mod data;
pub mod discovery;
mod doctor;
pub mod enroll;
pub mod fabric;
pub mod import;
pub mod ipc;
mod metrics;
mod registry;
pub mod sys;

pub use check::check;
pub use doctor::doctor;
