//! The build folder of a fresh copy of the work tree, seeded from that of the work tree.
//!
//! Cargo names build output by the path of a package below the workspace, not by that of the
//! workspace, and decides by the times of the sources whether it is fresh. So in a copy with the
//! times of the originals only the code touched by its fault is built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder of the profile `dev`.
const PROFILE: &str = "debug";

/// Fills the build folder `to` from `from`, if only `from` exists.
pub(super) fn artifacts(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (from.join(PROFILE), to.join(PROFILE));
    if to.exists() || !from.join(".fingerprint").is_dir() {
        return Ok(());
    }
    // Cargo holds this lock while it builds.
    let lock = fs::File::open(from.join(".cargo-lock"));
    let _lock = lock.and_then(|lock| lock.lock_shared().map(|()| lock));
    let part = to.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    for folder in [".fingerprint", "build", "deps"] {
        if from.join(folder).is_dir() {
            copy_folder(&from.join(folder), &part.join(folder))
                .with_context(|| format!("cannot copy {:?}", from.join(folder)))?;
        }
    }
    // Renamed as a whole: an incomplete copy would be taken for fresh.
    fs::rename(&part, &to).with_context(|| format!("cannot rename {part:?}"))
}

/// Gives each of `files` in `copy` the times that it has in `original`.
pub(super) fn times(original: &Path, copy: &Path, files: &[PathBuf]) -> Result<()> {
    for file in files {
        let modified = fs::metadata(original.join(file))?.modified()?;
        fs::File::options().write(true).open(copy.join(file))?.set_modified(modified)?;
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&source, &copy)?;
        } else if !is_shared(&source) || fs::hard_link(&source, &copy).is_err() {
            copy_file(&source, &copy)?;
        }
    }
    Ok(())
}

/// Returns true if both folders can share one file: compiler and linker never write into a library
/// or a program, but replace it.
fn is_shared(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_output = matches!(extension, None | Some("rlib" | "rmeta" | "so"));
    is_output && path.parent().is_some_and(|folder| folder.ends_with("deps"))
}

fn copy_file(source: &Path, copy: &Path) -> io::Result<()> {
    fs::copy(source, copy)?;
    let modified = fs::metadata(source)?.modified()?;
    let file = fs::File::open(copy)?;
    file.set_modified(modified)
}

#[cfg(test)]
mod tests;
