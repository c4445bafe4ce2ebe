//! Descriptors of the data process that control keeps, so that what they lead to outlives it: with
//! a descriptor a TAP has its carrier, and the frames that wait in its ring stay there, until the
//! next data process reads them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{connect, spawn};
use crate::hand::{self, Named};
use crate::log::say;
use crate::protocol::Request;

/// How long data may take to lend its descriptors, or to take them.
const LENT_WITHIN: Duration = Duration::from_secs(10);

/// What is kept, by port.
#[derive(Debug)]
pub(super) struct Kept {
    run_dir: PathBuf,
    files: Mutex<BTreeMap<String, OwnedFd>>,
}

impl Kept {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), files: Mutex::default() }
    }

    /// Borrows the descriptors of these ports from data, or of all.
    pub(super) fn borrow(&self, ports: &[String]) {
        match self.ask(ports) {
            Ok(files) if ports.is_empty() => *self.files() = files.into_iter().collect(),
            Ok(files) => self.files().extend(files),
            Err(error) => say!(warn: "the descriptors of data are not kept: {error}"),
        }
    }

    fn ask(&self, ports: &[String]) -> io::Result<Vec<Named>> {
        let stream = connect(&self.run_dir)?;
        stream.set_read_timeout(Some(LENT_WITHIN))?;
        let mut line = serde_json::to_vec(&Request::Lend(ports.to_vec()))?;
        line.push(b'\n');
        (&stream).write_all(&line)?;
        hand::receive(&stream)
    }

    /// Keeps the descriptor of a port that goes no longer.
    pub(super) fn forget(&self, port: &str) {
        self.files().remove(port);
    }

    /// Everything that is kept. What is no TAP's is given away: a socket that control kept would
    /// hold its address against a data process that wants it otherwise.
    fn copies(&self) -> Vec<Named> {
        let copy = |(name, file): (&String, &OwnedFd)| Some((name.clone(), file.try_clone().ok()?));
        let mut files = self.files();
        let copies = files.iter().filter_map(copy).collect();
        files.retain(|_, file| is_device(file));
        copies
    }

    /// The end of a stream by which a new data process gets what is kept.
    pub(super) fn offer(&self) -> anyhow::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        // Whoever stops in the middle keeps the other from nothing.
        theirs.set_read_timeout(Some(LENT_WITHIN))?;
        ours.set_write_timeout(Some(LENT_WITHIN))?;
        let files = self.copies();
        spawn("offer", move || {
            // A data process that ends without them said why.
            _ = hand::send(&ours, &files);
        })?;
        Ok(theirs.into())
    }

    /// Everything that is kept, and keeps nothing more.
    pub(super) fn take(&self) -> Vec<Named> {
        std::mem::take(&mut *self.files()).into_iter().collect()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a descriptor is a device's, and no socket's.
fn is_device(file: &OwnedFd) -> bool {
    let mode =
        rustix::fs::fstat(file).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
    mode.is_ok_and(|kind| kind == rustix::fs::FileType::CharacterDevice)
}
