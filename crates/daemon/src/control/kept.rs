//! Descriptors of the data process that control keeps, so that their devices outlive it: with an
//! open descriptor a TAP has its carrier, and the frames in its ring stay there, until the next
//! data process reads them. So do those in the rings of a veth pair.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::Plan;
use crate::ipc::protocol::{self, Request};
use crate::sys::descriptors::{self, Named};
use crate::sys::log::say;
use crate::sys::taps;
use crate::sys::threads::spawn;
use crate::sys::veths;

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

    /// Closes the descriptors of a port that is deleted.
    pub(super) fn forget(&self, port: &str) {
        self.files().retain(|name, _| name != port && !veths::is_of(name, port));
    }

    /// Returns copies of all descriptors. Descriptors of sockets are given away: a socket that
    /// control kept would hold its address against a data process with another configuration.
    fn copies(&self) -> Vec<Named> {
        let copy = |(name, file): (&String, &OwnedFd)| Some((name.clone(), file.try_clone().ok()?));
        let mut files = self.files();
        let copies = files.iter().filter_map(copy).collect();
        files.retain(|name, file| veths::is_of_pair(name) || is_device(file));
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

    /// Deletes all devices of a plan's host, and keeps no descriptor.
    pub(super) fn delete_devices(&self, plan: &Plan) {
        let mut files = std::mem::take(&mut *self.files());
        veths::take(&mut files).into_iter().for_each(|(port, pair)| veths::delete(&port, pair));
        let (left, files) = (taps::read(&plan.run_dir), files.into_iter().collect());
        taps::delete_all(&plan.run_dir, &plan.config.host.name, left, files);
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
