//! The workspace: its root, its files, and its metadata from cargo.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Returns the folder of the root manifest.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Returns the cargo that runs this program, so that a toolchain override applies to child
/// processes too.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command and returns its output, or an error with its complaint.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}):\n{}", output.status, stderr.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}

/// Returns the files of the work tree, relative to the root: tracked files and new files that are
/// not ignored, sorted. Deleted files that are still tracked are left out.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut files: Vec<PathBuf> = output(&mut git)?
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|path| root().join(path).symlink_metadata().is_ok())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Size and time of the last change of each file of the work tree: equal as long as nobody writes.
pub(crate) type Stamp = Vec<(PathBuf, u64, SystemTime)>;

/// Returns the stamp of all [`files`] but `left_out`.
pub(crate) fn stamp(left_out: &Path) -> Result<Stamp> {
    let of_file = |path: PathBuf| {
        let data = root().join(&path).symlink_metadata();
        let data = data.and_then(|data| Ok((data.len(), data.modified()?)));
        let (size, time) = data.with_context(|| format!("cannot look at {path:?}"))?;
        Ok((path, size, time))
    };
    files()?.into_iter().filter(|path| path != left_out).map(of_file).collect()
}

/// Reads a file of the work tree.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path:?}"))
}

/// The used part of `cargo metadata --no-deps`.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// A member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<BuildTarget>,
}

/// One program or library of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct BuildTarget {
    pub(crate) name: String,
    /// Kinds, such as `lib`, `bin` or `test`.
    pub(crate) kind: Vec<String>,
}

impl Package {
    /// Returns its folder, from the root of the workspace.
    pub(crate) fn folder(&self) -> &Path {
        let folder = self.manifest_path.parent().unwrap_or(&self.manifest_path);
        folder.strip_prefix(root()).unwrap_or(folder)
    }

    pub(crate) fn has_target(&self, kind: &str, name: Option<&str>) -> bool {
        let of_kind = |target: &&BuildTarget| target.kind.iter().any(|own| own == kind);
        let mut targets = self.targets.iter().filter(of_kind);
        targets.any(|target| name.is_none_or(|name| target.name == name))
    }
}

/// One entry of a `[dependencies]` table.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Kind of the dependency: `None` for a normal one, otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Path of a path dependency.
    pub(crate) path: Option<PathBuf>,
}

/// Runs `cargo metadata`.
pub(crate) fn metadata() -> Result<Metadata> {
    let text = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_str(&text).context("cargo metadata printed something unexpected")
}
