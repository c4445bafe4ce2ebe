//! Containers that are gone while the namespace of their card is not.
//!
//! The descriptor of a TAP keeps the namespace of its device alive. After `ip netns del`, or when
//! the first process of a container has ended, the name is gone and nobody is left inside, but the
//! kernel goes on answering ARP there. A bridge's veth goes with its namespace; a TAP whose
//! container is gone loses its carrier instead, and the kernel sends nothing more through it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::sys::{tap_carrier, tap_netns};

/// Inode of the first PID namespace of a machine (`PROC_PID_INIT_INO` of the kernel).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Returns the namespace of a TAP, if the name by which it was opened leads elsewhere now.
///
/// # Errors
/// The kernel's error, when the device is gone.
pub fn nameless(tap: BorrowedFd<'_>, name: &Path) -> io::Result<Option<u64>> {
    let own = inode(tap_netns(tap)?)?;
    let has_name = fs::metadata(name).is_ok_and(|there| there.ino() == own);
    Ok((!has_name).then_some(own))
}

/// Sets the carrier of an attached TAP.
///
/// # Errors
/// The kernel's error, when the device is gone.
pub fn set_carrier(tap: BorrowedFd<'_>, is_on: bool) -> io::Result<()> {
    tap_carrier(tap, is_on)
}

fn inode(namespace: OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(namespace.as_fd())?.st_ino)
}

/// Network namespaces that a process lives in, or that are mounted somewhere.
#[derive(Debug)]
pub struct Inhabited(BTreeSet<u64>);

impl Inhabited {
    /// Looks through all processes and mounts. Returns `None` if some of them cannot be seen, so
    /// that nothing is known of a namespace that is not found.
    #[must_use]
    pub fn look() -> Option<Self> {
        let sees_all = fs::metadata("/proc/self/ns/pid").ok()?.ino() == FIRST_PID_NAMESPACE;
        if !sees_all || fs::metadata("/proc/1").is_err() {
            return None;
        }
        let mut found = BTreeSet::new();
        for entry in fs::read_dir("/proc").ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
            // The first process of the machine is in no container.
            if name.to_str().is_some_and(|name| is_number(name) && name != "1") {
                add_process(&mut found, &entry.path())?;
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        found.extend(mounts.split_whitespace().filter_map(number));
        Some(Self(found))
    }

    /// Returns true if somebody lives in a namespace, or it has a name somewhere.
    #[must_use]
    pub fn contains(&self, namespace: u64) -> bool {
        self.0.contains(&namespace)
    }
}

/// Adds the namespaces of a process. Returns `None` if it may not be inspected.
fn add_process(found: &mut BTreeSet<u64>, process: &Path) -> Option<()> {
    match fs::metadata(process.join("ns/net")) {
        Ok(its) => found.extend([its.ino()]),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        // It has ended, or its first thread has and others go on.
        Err(_) => {
            let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            let namespaces = threads.map(|thread| fs::metadata(thread.path().join("ns/net")));
            found.extend(namespaces.flatten().map(|its| its.ino()));
        }
    }
    Some(())
}

/// Reads the number of a mounted network namespace: `net:[4026532008]`.
fn number(word: &str) -> Option<u64> {
    word.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_namespaces_alone_are_read() {
        let line = "88 27 0:4 net:[4026532008] /run/netns/web rw shared:41 - nsfs nsfs rw";
        assert_eq!(line.split_whitespace().find_map(number), Some(4_026_532_008));
        for word in ["net:[]", "mnt:[4026532008]", "net:4026532008", "net:[x]"] {
            assert_eq!(number(word), None, "{word}");
        }
    }
}
