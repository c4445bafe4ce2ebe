//! The program that netavark, Podman's network stack, executes.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let answer = sluice_cni::netavark(&arguments, &mut std::io::stdin().lock());
    let written = std::io::stdout().write_all(answer.text.as_bytes());
    if answer.is_error || written.is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
