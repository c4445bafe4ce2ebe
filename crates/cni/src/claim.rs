//! Claims on attachments whose addresses an IPAM plugin assigns: one command at a time, and a
//! record of what a command that was killed may have left.
//!
//! ```text
//!   RUN_DIR/cni/HASH.json    locked (flock) by the command, and by the IPAM plugin that it started
//!
//!   locked ── record ──▶ recorded ── addresses are assigned, or given back ── finish ──▶ gone
//!                           └─ killed, or failed ──▶ left over ── the next DEL, GC or ADD ──▶ gone
//! ```
//!
//! The kernel ends a lock with the last descriptor of its open file. An IPAM plugin inherits one:
//! it goes on after its caller was killed, and assigns an address that nobody waits for. A DEL that
//! did not wait for it would be too early.
//!
//! The record is for GC: neither the host nor `host-local` has a list of addresses without a port.
//! The folder is one of the run time: containers end with the machine, and their runtime says DEL
//! for each when it is back.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use sluice_api::port::Attachment;

use crate::error::{Code, Error};
use crate::host::Host;
use crate::name;

/// Longest wait for an earlier command.
const WAIT_MAX: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(2);

/// A claim on an attachment. Without a record its file goes with it.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    file: File,
    is_left_over: bool,
    is_recorded: bool,
}

impl Claim {
    /// Claims an attachment, as soon as no earlier command is busy with it.
    pub(crate) fn of(host: &Host, attachment: &Attachment) -> Result<Self, Error> {
        let path = host.claims().join(name::of_claim(attachment));
        let until = Instant::now() + WAIT_MAX;
        loop {
            match Self::attempt(&path).map_err(|error| unusable(host, &path, error))? {
                Some(claim) => return Ok(claim),
                None if Instant::now() < until => std::thread::sleep(RETRY),
                None => return Err(busy(attachment, &path)),
            }
        }
    }

    /// Claims by a file; `None` while another command has it.
    fn attempt(path: &Path) -> io::Result<Option<Self>> {
        let mut file = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_folder(path)?;
                open(path)?
            }
            opened => opened?,
        };
        // The owner before may have removed it.
        if !lock(&file)? || file.metadata()?.nlink() == 0 {
            return Ok(None);
        }
        // Inherited by the IPAM plugin.
        fcntl_setfd(&file, FdFlags::empty())?;
        let is_left_over = file.read(&mut [0])? > 0;
        let path = path.to_owned();
        Ok(Some(Self { path, file, is_left_over, is_recorded: is_left_over }))
    }

    /// Returns true if an earlier command did not end: addresses may be assigned.
    pub(crate) const fn is_left_over(&self) -> bool {
        self.is_left_over
    }

    /// Writes the record, before anything happens to an address.
    pub(crate) fn record(&mut self, attachment: &Attachment) -> Result<(), Error> {
        if !self.is_recorded {
            let record = serde_json::to_vec(attachment).expect("an attachment is plain data");
            // Also if only a part of it was written.
            self.is_recorded = true;
            self.file.write_all(&record).map_err(|error| unwritable(&self.path, &error))?;
        }
        Ok(())
    }

    /// Ends the claim: what is assigned is known by a port, or nothing is.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        // From here on its path may be another command's.
        self.is_recorded = true;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(unwritable(&self.path, &error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_recorded {
            _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the attachments of which there are records: those of commands that are busy, too.
pub(crate) fn recorded(host: &Host) -> Result<Vec<Attachment>, Error> {
    let dir = host.claims();
    let unreadable = |error| unusable(host, &dir, error);
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        // One that is gone meanwhile has ended.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        match serde_json::from_slice(&bytes) {
            Ok(attachment) => all.push(attachment),
            // Killed before it wrote its record, and so before there was an address.
            Err(_) => drop(Claim::attempt(&path)),
        }
    }
    Ok(all)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes the folder of a file, if the directory of the host is there.
fn make_folder(path: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns the error of a file that cannot be opened; without its directory there is no host.
fn unusable(host: &Host, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => host.absent(error),
        _ => unwritable(path, &error),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::new(
        Code::Io,
        format!("{} cannot be written: {error}", path.display()),
        "the plugin notes there whose addresses it is about to change; run it as root, and make \
         room there",
    )
}

fn busy(attachment: &Attachment, path: &Path) -> Error {
    let Attachment { container, interface, .. } = attachment;
    Error::new(
        Code::TryAgain,
        format!("an earlier command for {interface} of container {container} has not ended"),
        format!("`fuser {}` shows its process, or the IPAM plugin's; try again", path.display()),
    )
}

#[cfg(test)]
mod tests;
