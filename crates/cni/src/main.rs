//! The program that a container runtime executes.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    let answer = sluice_cni::run(&variable, &mut std::io::stdin().lock());
    let written = std::io::stdout().write_all(answer.text.as_bytes());
    if answer.is_error || written.is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
