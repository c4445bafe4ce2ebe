//! The build folder of a fresh copy of the work tree, seeded from that of the work tree.
//!
//! Cargo names build output by the path of a package below the workspace, not by that of the
//! workspace, and decides by the times of the sources whether it is fresh. So in a copy with the
//! times of the originals only the code touched by its fault is built.
//!
//! A test that starts a program of its package has the path of that program compiled in, and cargo
//! does not notice that the path is another one in the copy. Such tests are built anew: else they
//! would test the program of the work tree, which has no fault.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder of the profile `dev`.
const PROFILE: &str = "debug";
/// Paths of the target folder that a test may have compiled in, as lines of its dependencies begin.
const PATHS: [&str; 2] = ["# env-dep:CARGO_BIN_EXE_", "# env-dep:CARGO_TARGET_TMPDIR"];

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
    forget_bound(&part).with_context(|| format!("cannot look through {part:?}"))?;
    // Renamed as a whole: an incomplete copy would be taken for fresh.
    fs::rename(&part, &to).with_context(|| format!("cannot rename {part:?}"))
}

/// Makes cargo build again what has a path of the work tree's build folder compiled in.
fn forget_bound(profile: &Path) -> io::Result<()> {
    let mut bound = BTreeSet::new();
    for path in entries(&profile.join("deps"))? {
        let is_list = path.extension().is_some_and(|extension| extension == "d");
        if is_list && fs::read_to_string(&path)?.lines().any(starts_with_path) {
            bound.extend(hash(&path));
        }
    }
    for path in entries(&profile.join(".fingerprint"))? {
        if hash(&path).is_some_and(|hash| bound.contains(&hash)) {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

fn starts_with_path(line: &str) -> bool {
    PATHS.iter().any(|path| line.starts_with(path))
}

/// Returns the hash at the end of a name, by which cargo tells builds of one target apart.
fn hash(path: &Path) -> Option<String> {
    let (_, hash) = path.file_stem()?.to_str()?.rsplit_once('-')?;
    Some(hash.to_owned())
}

/// Returns the paths in a folder, none if it does not exist.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
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
