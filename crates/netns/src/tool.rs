//! Programs, run to their end.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};

use crate::Error;

/// Most lines of a program's errors in an [`Error`].
const LINES: usize = 4;

/// Returns true if there is a program of that name.
#[must_use]
pub fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Runs a command line and returns its output. Words are separated by spaces; there are no quotes.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn run(line: &str) -> Result<String, Error> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|source| cannot_start(program, source))?;
    checked(line, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program in a process group of its own, so that Ctrl-C does not kill the tools of a
/// clean-up.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn tool(name: &str, arguments: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null());
    finish(name, spawn(name, &mut command)?)
}

/// Runs `ip` on a list of commands in the calling thread's namespace, as [`tool`] does.
///
/// # Errors
/// `ip` cannot be started, or fails at one of the commands; those after it are not run.
pub fn run_all(commands: &[String]) -> Result<(), Error> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = spawn("ip", &mut command)?;
    if let Some(mut input) = child.stdin.take() {
        // A failing `ip` closes its input early; its own message is the better error.
        let _ = input.write_all((commands.join("\n") + "\n").as_bytes());
    }
    finish("ip", child)
}

fn spawn(name: &str, command: &mut Command) -> Result<Child, Error> {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    command.spawn().map_err(|source| cannot_start(name, source))
}

fn finish(name: &str, child: Child) -> Result<(), Error> {
    let output = child.wait_with_output().map_err(|source| cannot_start(name, source))?;
    checked(name, &output)
}

pub(crate) fn checked(command: &str, output: &Output) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().take(LINES).collect();
    Err(Error::Failed { command: command.to_owned(), said: said.join("; ") })
}

pub(crate) fn cannot_start(program: &str, source: std::io::Error) -> Error {
    Error::Start { program: program.to_owned(), source }
}
