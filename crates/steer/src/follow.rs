//! The policy that the control process of this host keeps in a file, checked once a second.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use sluice_api::placement::{POLICY_SIZE_MAX, PolicyFile};

/// Name of the file in the directory of a host.
const NAME: &str = "placement.json";
/// Maximum size; the file may also have spaces and line breaks.
const SIZE_MAX: usize = 8 * POLICY_SIZE_MAX;

/// Attributes by which a changed file is detected.
type Looks = (u64, u64, u64, i64, i64, i64);

/// Result of a look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No change.
    Same,
    /// Another policy, or the first one.
    New(Box<PolicyFile>),
    /// No valid policy, and the reason.
    Nothing(String),
}

/// Watch of a policy file.
#[derive(Debug)]
pub(crate) struct Follow {
    file: PathBuf,
    /// Attributes at the last look, or `None` inside if there was no file; `None` before the first
    /// look.
    last: Option<Option<Looks>>,
    /// True if a policy was found once.
    has_held: bool,
}

impl Follow {
    /// Follows a file, or the file in the directory of a host.
    pub(crate) fn new(path: &Path) -> Self {
        let is_file = path.is_file() || path.extension() == Some(OsStr::new("json"));
        let file = if is_file { path.to_owned() } else { path.join(NAME) };
        Self { file, last: None, has_held: false }
    }

    /// The directory of the file.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    /// Checks for another policy. Each error is reported once.
    pub(crate) fn look(&mut self) -> Found {
        let looks = fs::metadata(&self.file).map(|file| looks_of(&file));
        let now = looks.as_ref().ok().copied();
        if self.last.replace(now) == Some(now) {
            return Found::Same;
        }
        let goes_on = if self.has_held { "what held before goes on" } else { "the arguments hold" };
        let name = self.file.display();
        match looks {
            Err(error) if error.kind() == ErrorKind::NotFound && !self.has_held => {
                Found::Nothing(format!("{name} is not there, so no policy was set yet: {goes_on}"))
            }
            Err(error) => Found::Nothing(format!("{name}: {error}: {goes_on}")),
            Ok(_) => match read(&self.file) {
                Err(error) => Found::Nothing(format!("{name}: {error:#}: {goes_on}")),
                Ok(kept) => {
                    self.has_held = true;
                    Found::New(Box::new(kept))
                }
            },
        }
    }
}

fn looks_of(file: &Metadata) -> Looks {
    (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec(), file.ctime_nsec())
}

fn read(path: &Path) -> anyhow::Result<PolicyFile> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SIZE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() <= SIZE_MAX, "more than {SIZE_MAX} bytes");
    let kept: PolicyFile = serde_json::from_slice(&bytes).context("this is no placement policy")?;
    kept.stamped.policy.check().map_err(|error| anyhow!(error))?;
    Ok(kept)
}

#[cfg(test)]
mod tests;
