//! Large pages for a process that simulates.
//!
//! Hosts take turns, and one frame touches a dozen tables of a host. With 256 virtual switches
//! these are more pages of 4 KiB than a processor's TLB holds, so that it walks the page tables
//! several times a frame. With pages of 2 MiB it need not.
//!
//! The kernel gives large pages to processes that ask for them (`madvise` in its setting). The C
//! library asks for them if a variable of the environment says so, which it reads when the process
//! begins. So the process begins again with that variable, once. If the variable is set already,
//! nothing is done.
//!
//! ```text
//!   begins ── setting is "madvise", no variable ──> begins again, with the variable
//!     └────── else ──> goes on
//! ```
//!
//! Results are the same with and without. So is memory, but for the unused rest of a last large
//! page.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Variable that GNU libc reads when a process begins, and value that makes it ask for large pages
/// (its manual, section "Memory Allocation Tunables").
const TUNABLES: &str = "GLIBC_TUNABLES";
const LARGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Setting of the kernel for large pages (its documentation, "Transparent Hugepage Support").
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Gives this process large pages if that is useful and possible. Call it before anything else: if
/// the process begins again, all its work is lost.
///
/// The process begins again with its arguments, so only the `main` of a program may call this. If
/// large pages are not possible nothing happens; the process is only slower.
pub fn use_large() {
    let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
    if cfg!(target_env = "gnu") && is_worth_it(&setting, std::env::var_os(TUNABLES).as_deref()) {
        // An error leaves everything as it was.
        drop(begin_again());
    }
}

/// Returns true if large pages must be asked for, and the variable of the C library is not set.
fn is_worth_it(setting: &str, tunables: Option<&OsStr>) -> bool {
    setting.contains("[madvise]") && tunables.is_none()
}

/// Begins the process again. Returns only if that failed.
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
