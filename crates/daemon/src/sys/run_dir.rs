//! The directory of one host: its sockets, and the locks of its processes.
//!
//! ```text
//!   /run/sluice/NAME/
//!     control.pid  data.pid    locked by the process for as long as it lives; contains its number
//!     data.sock                of the data process: for control, and captures of its owner
//!     show.sock                of control: `sluice show`
//!     http.sock                of control: `/metrics`, `/healthz`
//!     data.toml                configuration of the data process
//!     taps/PORT.json           record of a port's TAP (taps.rs)
//!     cni/HASH.json            of the CNI plugin: an interface whose addresses are about to change
//!     placement.json           placement policy that holds
//!     placement.json.broken    a policy that could not be read
//!     steer-DEV.json           state of the policy at `sluice steer DEV --follow`
//!   /var/lib/sluice/NAME/
//!     ports.json               ports that were added at run time
//! ```
//!
//! The lock is the truth, not the file: a process that was killed leaves its files behind, and the
//! kernel takes its lock away. The holder of a lock may therefore replace the socket that goes with
//! it; no other process does. The files with the numbers stay.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;
pub use sluice_api::client::{DATA_SOCKET, ROOT, SHOW_SOCKET};

/// Parent of the directories for state that must survive a restart of the machine, unless a host
/// names another one.
const STATE_ROOT: &str = "/var/lib/sluice";
/// Socket that answers HTTP.
pub(crate) const HTTP_SOCKET: &str = "http.sock";
/// Configuration of the data process.
pub const CONFIG_FILE: &str = "data.toml";
/// Configuration of a data process that is about to take over.
pub(crate) const NEXT_CONFIG_FILE: &str = "next.toml";
/// Socket of a data process that is about to take over.
pub(crate) const NEXT_SOCKET: &str = "next.sock";
/// Ports that were added.
pub(crate) const PORTS_FILE: &str = "ports.json";
/// Records of TAPs.
pub(crate) const TAPS_DIR: &str = "taps";
/// Placement policy that holds.
pub(crate) const PLACEMENT_FILE: &str = "placement.json";
/// Longest path of a Unix socket, without its final zero.
pub(crate) const SOCKET_PATH_SIZE_MAX: usize = 107;

pub use sluice_api::client::of_host;

/// Returns the directory of a host for state that must survive a restart of the machine.
pub(crate) fn state_of_host(name: &str) -> PathBuf {
    Path::new(STATE_ROOT).join(name)
}

/// Returns true if a directory is one of those that Sluice makes for hosts.
pub(crate) fn is_own_place(dir: &Path) -> bool {
    let is_below = |root| dir.starts_with(root) && dir != Path::new(root);
    let leads_up = dir.components().any(|part| part == std::path::Component::ParentDir);
    (is_below(ROOT) || is_below(STATE_ROOT)) && !leads_up
}

/// Makes the directory, for its owner and a group that may read. An existing directory that is not
/// below [`ROOT`] is left as it is.
///
/// # Errors
/// If it cannot be made, its sockets would have too long a path, or there is no such group.
pub fn create(dir: &Path, group: Option<&str>) -> anyhow::Result<()> {
    let size = dir.join(SHOW_SOCKET).as_os_str().len();
    if size > SOCKET_PATH_SIZE_MAX {
        bail!(
            "{}: sockets in it would have a path of {size} bytes, and {SOCKET_PATH_SIZE_MAX} \
               is the most; use a shorter `run_dir`",
            dir.display()
        );
    }
    let was_there = dir.exists();
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).with_context(|| {
        format!("cannot make {}; run as root, or set `run_dir` to a place of yours", dir.display())
    })?;
    if was_there && !dir.starts_with(ROOT) {
        return Ok(());
    }
    share(dir, group, 0o700)
}

/// Sets the permissions of a file: `mode` for its owner, and read or write access for a group.
fn share(path: &Path, group: Option<&str>, mode: u32) -> anyhow::Result<()> {
    let mut all = mode;
    if let Some(group) = group {
        chown(path, None, Some(group_id(group)?))?;
        // The group may read a directory, and use a socket.
        all |= if path.is_dir() { 0o050 } else { 0o060 };
    }
    fs::set_permissions(path, fs::Permissions::from_mode(all))
        .with_context(|| format!("cannot change who may use {}", path.display()))
}

/// Returns the number of a group of this machine.
pub(crate) fn group_id(name: &str) -> anyhow::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let all = fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    let number = |line: &str| {
        let mut words = line.split(':');
        (words.next() == Some(name)).then(|| words.nth(1)?.parse().ok())?
    };
    all.lines().find_map(number).with_context(|| {
        format!(
            "`group`: /etc/group has no `{name}`; make it (`groupadd {name}`), or say its number"
        )
    })
}

/// Proof that this process is the only one of its role, for as long as the value lives.
#[derive(Debug)]
pub struct Role {
    _locked: File,
}

impl Role {
    /// Takes the role `name` in `dir`.
    ///
    /// # Errors
    /// If another process has it, or the directory cannot be written.
    pub fn take(dir: &Path, name: &str) -> anyhow::Result<Self> {
        let path = dir.join(format!("{name}.pid"));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // A process that may open the file may lock it.
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            _ = file.read_to_string(&mut holder);
            bail!(
                "{}: process {} runs this host already as `{name}`; stop it first, or give this \
                 host another name",
                dir.display(),
                holder.trim()
            );
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { _locked: file })
    }

    /// Returns true if a process has the role `name` in `dir`.
    #[must_use]
    pub fn is_taken(dir: &Path, name: &str) -> bool {
        let shared = FlockOperation::NonBlockingLockShared;
        File::open(dir.join(format!("{name}.pid")))
            .is_ok_and(|file| rustix::fs::flock(&file, shared).is_err())
    }

    /// Listens on a socket of this role; a socket that a killed process left behind is replaced.
    ///
    /// Members of `group` may speak to it, too.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn listen(&self, path: &Path, group: Option<&str>) -> anyhow::Result<UnixListener> {
        listen(path, group)
    }
}

/// Listens like [`Role::listen`], before the process has its role.
pub(crate) fn listen(path: &Path, group: Option<&str>) -> anyhow::Result<UnixListener> {
    remove(path).with_context(|| format!("cannot replace {}", path.display()))?;
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    share(path, group, 0o600)?;
    Ok(listener)
}

/// Removes a file that need not be there.
///
/// # Errors
/// If it is there and stays.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the sockets of a control process that ends.
pub(crate) fn forget_sockets(dir: &Path) {
    [SHOW_SOCKET, HTTP_SOCKET].iter().for_each(|name| _ = remove(&dir.join(name)));
}

/// Writes a file in one step: a reader sees the old text or the new one.
///
/// # Errors
/// If the directory cannot be written.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension("next");
    fs::write(&next, text)?;
    fs::rename(&next, path)
}

/// Writes like [`replace`], and afterwards the file is on the disk: it survives a power failure,
/// complete.
///
/// # Errors
/// If the directory cannot be written.
pub(crate) fn replace_for_good(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension("next");
    let written = || {
        let mut file = File::create(&next)?;
        file.write_all(text.as_bytes())?;
        // Synced before the rename: otherwise the name may survive a crash without the contents.
        file.sync_all()?;
        fs::rename(&next, path)
    };
    if let Err(error) = written() {
        // On a full disk a partial file would block the next attempt.
        _ = remove(&next);
        return Err(error);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
