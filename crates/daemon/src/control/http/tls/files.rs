//! Something that is made of files, and made again when they change.
//!
//! Files that cannot be used leave what was made before; the log says why, once for each reason.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::log::say;

/// State of a file: another one has another inode, time or size.
type Mark = (u64, i64, i64, u64);

type Make<T> = dyn Fn() -> Result<T, String> + Send + Sync;

/// Something that is made of files.
pub(super) struct FromFiles<T> {
    files: Vec<PathBuf>,
    words: Words,
    make: Box<Make<T>>,
    known: Mutex<Known<T>>,
}

/// Words of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// Kind of the files.
    pub(super) what: &'static str,
    /// Remedy for files that cannot be used.
    pub(super) remedy: &'static str,
    /// Consequence if there is nothing from before.
    pub(super) without: &'static str,
}

struct Known<T> {
    marks: Option<Vec<Mark>>,
    made: Option<Arc<T>>,
    /// The reason why the files as they are cannot be used, as it was logged.
    failed: Option<String>,
}

impl<T> fmt::Debug for FromFiles<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FromFiles").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T> FromFiles<T> {
    pub(super) fn new(
        files: Vec<PathBuf>,
        words: Words,
        make: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let known = Mutex::new(Known { marks: None, made: None, failed: None });
        Self { files, words, make: Box::new(make), known }
    }

    /// Returns what the files say now, or what they said when they could be used last.
    pub(super) fn current(&self) -> Option<Arc<T>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let marks: Result<Vec<_>, _> = self.files.iter().map(|file| mark(file)).collect();
        let read = marks.and_then(|marks| match known.marks.as_ref() == Some(&marks) {
            true => Ok(None),
            false => (self.make)().map(|made| Some((marks, made))),
        });
        match read {
            Ok(None) => {}
            Ok(Some((marks, made))) => {
                *known = Known { marks: Some(marks), made: Some(Arc::new(made)), failed: None };
            }
            Err(why) if known.failed.as_ref() == Some(&why) => {}
            Err(why) => {
                let Words { what, remedy, without } = self.words;
                let so = known.made.as_ref().map_or(without, |_| "those from before stay");
                say!(warn: "{what} cannot be used: {why}; {remedy}; {so}");
                known.failed = Some(why);
            }
        }
        known.made.clone()
    }
}

fn mark(path: &Path) -> Result<Mark, String> {
    let seen = std::fs::metadata(path).map_err(|error| in_file(path, &error))?;
    Ok((seen.ino(), seen.mtime(), seen.mtime_nsec(), seen.size()))
}

/// Says a mistake of a file.
pub(super) fn in_file(path: &Path, why: &dyn fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
