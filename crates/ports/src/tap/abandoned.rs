//! Containers that are gone while the namespace of their card is not.
//!
//! The descriptor of a TAP keeps the namespace of its device alive. After `ip netns del`, or when
//! the first process of a container has ended, the name is gone and nobody is left inside, but the
//! kernel goes on answering ARP there. A bridge's veth goes with its namespace; a TAP whose
//! container is gone loses its carrier instead, and the kernel sends nothing more through it. The
//! carrier comes back with the name.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::sys::{tap_carrier, tap_netns};

/// Returns true if nobody is left in the namespace of a TAP: the name by which it was opened leads
/// elsewhere, and no process lives in it.
///
/// # Errors
/// The kernel's error, when the device is gone.
pub fn is_abandoned(tap: BorrowedFd<'_>, name: &Path) -> io::Result<bool> {
    let own = inode(tap_netns(tap)?)?;
    if fs::metadata(name).is_ok_and(|there| there.ino() == own) {
        return Ok(false);
    }
    Ok(!has_process(own))
}

/// Sets the carrier of an attached TAP.
///
/// # Errors
/// The kernel's error, when the device is gone or down.
pub fn set_carrier(tap: BorrowedFd<'_>, is_on: bool) -> io::Result<()> {
    tap_carrier(tap, is_on)
}

fn inode(namespace: OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(namespace.as_fd())?.st_ino)
}

/// Returns true if a process lives in a namespace, as far as that can be known: one that may not be
/// inspected may live there. The first process of the machine is in no container.
fn has_process(namespace: u64) -> bool {
    let Ok(all) = fs::read_dir("/proc") else { return true };
    let may_be_inside = |name: &str| name != "1" && name.bytes().all(|b| b.is_ascii_digit());
    let inside = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(may_be_inside);
    all.flatten().filter(inside).any(|entry| match fs::metadata(entry.path().join("ns/net")) {
        Ok(its) => its.ino() == namespace,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    })
}
