//! Descriptors of the data process that control keeps, so that their devices outlive it: with an
//! open descriptor a TAP has its carrier, and the frames in its ring stay there, until the next
//! data process reads them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ipc::protocol::{self, Request};
use crate::sys::descriptors::{self, Named};
use crate::sys::log::say;
use crate::sys::threads::spawn;

/// Longest time for data to send its descriptors, or to receive them.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// Descriptors that are kept, by port.
#[derive(Debug)]
pub(super) struct DescriptorStore {
    run_dir: PathBuf,
    files: Mutex<BTreeMap<String, OwnedFd>>,
}

impl DescriptorStore {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), files: Mutex::default() }
    }

    /// Gets copies of the descriptors of these ports from data, or of all.
    pub(super) fn borrow(&self, ports: &[String]) {
        match self.ask(ports) {
            Ok(files) if ports.is_empty() => *self.files() = files.into_iter().collect(),
            Ok(files) => self.files().extend(files),
            Err(error) => say!(warn: "the descriptors of data are not kept: {error}"),
        }
    }

    fn ask(&self, ports: &[String]) -> io::Result<Vec<Named>> {
        let stream = protocol::connect(&self.run_dir)?;
        stream.set_read_timeout(Some(SENT_WITHIN))?;
        let mut line = serde_json::to_vec(&Request::Lend(ports.to_vec()))?;
        line.push(b'\n');
        (&stream).write_all(&line)?;
        descriptors::receive(&stream)
    }

    /// Closes the descriptor of a port that is deleted.
    pub(super) fn forget(&self, port: &str) {
        self.files().remove(port);
    }

    /// Returns copies of all descriptors. Descriptors of sockets are given away: a socket that
    /// control kept would hold its address against a data process with another configuration.
    fn copies(&self) -> Vec<Named> {
        let copy = |(name, file): (&String, &OwnedFd)| Some((name.clone(), file.try_clone().ok()?));
        let mut files = self.files();
        let copies = files.iter().filter_map(copy).collect();
        files.retain(|_, file| is_device(file));
        copies
    }

    /// Returns the end of a stream by which a new data process receives the descriptors.
    pub(super) fn offer(&self) -> anyhow::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        // A process that stops midway does not block the other.
        theirs.set_read_timeout(Some(SENT_WITHIN))?;
        ours.set_write_timeout(Some(SENT_WITHIN))?;
        let files = self.copies();
        spawn("offer", move || {
            // A data process that ends without them has reported why.
            _ = descriptors::send(&ours, &files);
        })?;
        Ok(theirs.into())
    }

    /// Takes all descriptors, and keeps none.
    pub(super) fn take(&self) -> Vec<Named> {
        std::mem::take(&mut *self.files()).into_iter().collect()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a descriptor is a device's, not a socket's.
fn is_device(file: &OwnedFd) -> bool {
    let mode =
        rustix::fs::fstat(file).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
    mode.is_ok_and(|kind| kind == rustix::fs::FileType::CharacterDevice)
}
