//! Large pages for a process that simulates.
//!
//! Hosts take turns, and what one frame touches of a host lies in a dozen tables. With 256 virtual
//! switches that is more pages of 4 KiB than a processor remembers where they lie, so that it asks
//! the page tables several times a frame. With pages of 2 MiB it need not ask.
//!
//! The kernel gives large pages to whom asks for them (`madvise` in its setting), and the C library
//! asks if a variable of the environment says so, which it reads when the process begins. So the
//! process begins again with it, once: with the variable set, whoever set it, nothing is done.
//!
//! ```text
//!   begins ── setting is "madvise", no variable ──> begins again, with the variable
//!     └────── else ──> goes on
//! ```
//!
//! Results are the same with and without. Memory is, too, but for what a last large page has room
//! for beyond what is used.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// What GNU libc reads when a process begins, and what makes it ask for large pages (its manual,
/// section "Memory Allocation Tunables").
const TUNABLES: &str = "GLIBC_TUNABLES";
const LARGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Whom the kernel gives large pages to (its documentation, "Transparent Hugepage Support").
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Sees to it that this process gets large pages where it is worth it and possible. To be called
/// before anything else is done: if it begins again, all that was done is lost.
///
/// What begins again is this process with its arguments, so only the `main` of a program may call
/// it. Where it is not possible nothing has happened; the process is slower then and that is all.
pub fn use_large() {
    let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
    if cfg!(target_env = "gnu") && is_worth_it(&setting, std::env::var_os(TUNABLES).as_deref()) {
        // An error leaves everything as it was.
        drop(begin_again());
    }
}

/// Whether asking changes anything, and nobody has said what the C library is to do.
fn is_worth_it(setting: &str, tunables: Option<&OsStr>) -> bool {
    setting.contains("[madvise]") && tunables.is_none()
}

/// Comes back only if it failed.
fn begin_again() -> io::Result<Infallible> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    Err(command.args(arguments).env(TUNABLES, LARGE_PAGES).exec())
}

#[cfg(test)]
mod tests;
