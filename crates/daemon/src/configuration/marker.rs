//! File of the mark that outlives this process ([`Mark`]): some bytes in the directory of the run,
//! written over each other without a flush.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sluice_control::commit::Mark;

use crate::sys::log::say;

/// Name of the file.
const FILE: &str = "committed";
/// Bytes that are read: more than a mark has.
const SIZE_MAX: u64 = 256;

/// The file. Without it, a process that is killed may leave a start with an older configuration.
#[derive(Debug)]
pub(super) struct Marker {
    file: std::io::Result<File>,
    path: PathBuf,
    has_failed: bool,
}

impl Marker {
    /// Opens the file in the directory of the run.
    pub(super) fn open(run_dir: &Path) -> Self {
        let path = run_dir.join(FILE);
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Self { file: options.open(&path), path, has_failed: false }
    }

    /// Returns the mark that was kept last, if there is one.
    pub(super) fn read(&self) -> Option<Mark> {
        let file = self.file.as_ref().ok()?;
        let size = file.metadata().ok()?.len().min(SIZE_MAX);
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Mark::parse(&bytes).ok()
    }

    /// Keeps a mark in place of the one before.
    pub(super) fn keep(&mut self, mark: &Mark) {
        let kept = match &self.file {
            Ok(file) => file.write_all_at(&mark.to_bytes(), 0).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let (Err(why), false) = (&kept, self.has_failed) {
            say!(
                warn: "cannot write {}: {why}; if this process is killed, it may start with the \
                       configuration before the last change",
                self.path.display()
            );
        }
        self.has_failed = kept.is_err();
    }
}
