//! The kernel's scheduler, for a thread that must run soon after its wake-up.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;
use std::time::Duration;

/// Asks for a slice of this length for the calling thread (sched(7)).
///
/// A thread with a shorter slice than the one that runs takes its processor at a wake-up, if it has
/// not used its share; its share stays the same. Linux 6.12 and newer do so, with 0.1 to 100 ms;
/// older kernels know real-time threads only, and ignore it.
///
/// # Errors
/// The kernel's error, `EPERM` for one.
pub fn set_slice(slice: Duration) -> io::Result<()> {
    // SAFETY: integers only, for all of which zero is a value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = u32::try_from(size_of::<libc::sched_attr>()).expect("it is small");
    // SAFETY: the kernel writes at most `size` bytes to `attr`.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) })?;
    attr.size = size;
    attr.sched_runtime = u64::try_from(slice.as_nanos()).expect("it is short");
    // SAFETY: the kernel reads `attr.size` bytes of `attr`.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_is_set_and_shown_by_kernel() {
        std::thread::spawn(|| {
            set_slice(Duration::from_micros(300)).unwrap();
            let release = rustix::system::uname().release().to_str().unwrap().to_owned();
            let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
            if (numbers.next(), numbers.next()) < (Some(6), Some(12)) {
                return;
            }
            // Not every kernel is built to tell.
            let told = std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
            if let Some(line) = told.lines().find(|line| line.starts_with("se.slice")) {
                assert_eq!(line.rsplit(':').next().unwrap().trim(), "300000", "{line}");
            }
        })
        .join()
        .unwrap();
    }
}
