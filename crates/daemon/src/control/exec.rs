//! A process that becomes its program anew, in its place and with its number: that of an upgrade,
//! or the same one with another configuration.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::answering::Answering;
use super::child;
use crate::sys::log::say;
use crate::sys::seccomp;

/// Becomes the program at this program's path, with the same arguments, once those who have asked
/// have their answers. Returns only an error.
pub(super) fn this_program(answering: Option<&Answering>) -> anyhow::Error {
    let program = match child::program() {
        Ok(program) => program,
        Err(error) => return error,
    };
    if !answering.is_none_or(Answering::finish) {
        say!(warn: "some requests are not answered, for this takes too long");
    }
    say!("this process becomes {}", program.display());
    let mut next = Command::new(&program);
    seccomp::tell(&mut next);
    let error = next.args(std::env::args_os().skip(1)).exec();
    anyhow::Error::from(error).context(format!("{} cannot be run", program.display()))
}
