//! The driver that Docker asks: it runs beside the host.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use sluice_cni::docker::{Driver, serve};

/// Puts the containers of Docker into networks of Sluice: `docker network create -d sluice`.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Socket that Docker asks; its name is that of the driver.
    #[arg(long, default_value = "/run/docker/plugins/sluice.sock")]
    socket: PathBuf,
    /// Folder of the file that names Docker's networks.
    #[arg(long, default_value = "/var/lib/sluice-docker")]
    state_dir: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { socket, state_dir } = Arguments::parse();
    match Driver::open(&state_dir).and_then(|driver| serve(driver, &socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
