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

mod channel;
mod clock;
pub mod config;
pub mod control;
mod controller;
pub mod data;
pub mod fabric;
pub mod fabric_client;
mod hand;
mod handover;
mod limits;
mod log;
mod notify;
pub mod placement_client;
mod poller;
pub mod port_client;
mod privileges;
pub mod protocol;
pub mod run_dir;
mod seccomp;
mod serve;
pub mod show_client;
mod taps;
pub mod top;
pub mod upgrade_client;

use std::path::Path;
use std::process::ExitCode;

/// Checks a configuration and the machine that it is for, and prints the result.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(file: &Path) -> anyhow::Result<ExitCode> {
    use config::Finding::{Fine, Problem, Warning};
    let plan = config::load(file, &config::KernelDevices)?;
    for note in &plan.notes {
        println!("{note}");
    }
    let mut problems = 0;
    for finding in config::look(&plan) {
        match finding {
            Fine(text) => println!("{text}"),
            Warning(text) => println!("warning: {text}"),
            Problem(text) => {
                problems += 1;
                eprintln!("{}: {text}", file.display());
            }
        }
    }
    if problems > 0 {
        return Ok(ExitCode::FAILURE);
    }
    println!("{}: fine, {} ports", file.display(), plan.ports.len());
    Ok(ExitCode::SUCCESS)
}
