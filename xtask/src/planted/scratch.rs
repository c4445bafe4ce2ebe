//! The scratch copy of the work tree, and the commands that run in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::fault::{Target, Test};
use super::patch::{self, Fit};
use crate::workspace;

mod seed;

/// Time limit of a test, with the build of the code touched by its fault. A test that a fault makes
/// hang does not catch it.
pub(super) const TIME_MAX: Duration = Duration::from_secs(600);
/// Time limit of a test without a fault. The first one builds everything that the package needs.
pub(super) const TIME_MAX_FIRST: Duration = Duration::from_secs(1_800);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time to wait for another run to release the copy.
const PATIENCE: Duration = Duration::from_secs(2);

/// A copy of the work tree with a build folder and logs of its own.
pub(super) struct Scratch {
    tree: PathBuf,
    build: PathBuf,
    logs: PathBuf,
    /// Arguments of `cargo test` that select packages without a library.
    beside: Vec<String>,
    /// Lock on the copy while it is in use.
    _lock: File,
}

/// Settings of a build that are not those of the workspace.
pub(super) struct Build<'a> {
    /// Packages that are built incrementally, which costs the first build some time and saves most
    /// of the time of each later one.
    pub(super) incremental: &'a BTreeSet<String>,
    pub(super) unoptimized: BTreeSet<&'a str>,
}

/// Result of a command.
pub(super) struct Ended {
    pub(super) success: bool,
    pub(super) timed_out: bool,
    /// The whole output.
    pub(super) output: String,
    /// Time from start to end.
    pub(super) time: Duration,
}

impl Scratch {
    /// Opens the copy in `home` with exclusive access. `beside` are packages without a library:
    /// selected with the package of a test, they give its dependencies the features that they have
    /// in a build of the whole workspace, so that nothing is built twice.
    pub(super) fn new(home: &Path, beside: &[String]) -> Result<Self> {
        let (tree, build, logs) = (home.join("tree"), home.join("target"), home.join("logs"));
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(&logs)?;
        let lock = File::create(home.join("lock"))?;
        // A child of this process shares the lock file until it runs its own program.
        let until = Instant::now() + PATIENCE;
        while let Err(error) = lock.try_lock() {
            if Instant::now() > until {
                return Err(error).with_context(|| format!("another run uses {}", home.display()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let beside = beside.iter().flat_map(|name| ["-p".to_owned(), name.clone()]).collect();
        Ok(Self { tree, build, logs, beside, _lock: lock })
    }

    /// Seeds an unbuilt copy with the build output of the work tree in `target`.
    pub(super) fn seed(&self, target: &Path) -> Result<()> {
        if self.build.exists() {
            return Ok(());
        }
        self.restore()?;
        seed::times(workspace::root(), &self.tree, &workspace::files()?)?;
        seed::artifacts(target, &self.build)
    }

    /// Makes the copy equal to the work tree. Files that are equal already are not written, so that
    /// they are not built again.
    pub(super) fn restore(&self) -> Result<()> {
        let files = workspace::files()?;
        mirror(workspace::root(), &self.tree, &files)
    }

    /// Applies a patch of the work tree to the copy, whole or not at all.
    pub(super) fn apply(&self, patch: &Path) -> Result<Fit> {
        patch::apply(&self.tree, &workspace::root().join(patch))
    }

    /// Builds and runs `test`, for `time_max` at most.
    ///
    pub(super) fn test(
        &self,
        test: &Test,
        build: &Build<'_>,
        log: &str,
        time_max: Duration,
    ) -> Result<Ended> {
        let mut command = workspace::cargo();
        command.current_dir(&self.tree).arg("test");
        let mut set = |package: &str, setting: &str| {
            command.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
        };
        for package in build.incremental {
            set(package, "incremental=true");
        }
        for package in &build.unoptimized {
            set(package, "opt-level=0");
            set(package, "debug=0");
        }
        command.args(&self.beside).args(test.arguments()).env("CARGO_TARGET_DIR", &self.build);
        // The same cases in each run, so that the verdict does not depend on luck.
        command.env("PROPTEST_RNG_SEED", "1");
        // `verdict` parses the output.
        command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_QUIET", "false");
        run(command, &self.log(log), time_max)
    }

    /// Returns the path of the log of the command called `name`.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

fn run(mut command: Command, log: &Path, time_max: Duration) -> Result<Ended> {
    let begin = Instant::now();
    let file = File::create(log).with_context(|| format!("cannot write {log:?}"))?;
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.process_group(0).spawn().context("cannot start cargo")?;
    let status = wait(&mut child, time_max)?;
    let output = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    Ok(Ended {
        success: status.is_some_and(|status| status.success()),
        timed_out: status.is_none(),
        output,
        time: begin.elapsed(),
    })
}

/// Waits for the child; kills its process group at the time limit.
fn wait(child: &mut Child, time_max: Duration) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < time_max {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-KILL", "--", &group]).status().context("cannot start kill")?;
    child.wait()?;
    Ok(None)
}

/// Copies the `files` that differ from one folder to the other, and removes all other files there.
fn mirror(from: &Path, to: &Path, files: &[PathBuf]) -> Result<()> {
    let wanted: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    for file in &wanted {
        let (source, copy) = (from.join(file), to.join(file));
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        copy_if_different(&source, &copy).with_context(|| format!("cannot copy {source:?}"))?;
    }
    remove_others(to, Path::new(""), &wanted)
}

/// Copies a file if it differs. A link is copied as the file that it points to.
fn copy_if_different(source: &Path, copy: &Path) -> Result<()> {
    let content = fs::read(source)?;
    if fs::read(copy).ok().as_ref() != Some(&content) {
        fs::write(copy, content)?;
    }
    let mode = fs::metadata(source)?.permissions().mode();
    if fs::metadata(copy)?.permissions().mode() != mode {
        fs::set_permissions(copy, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn remove_others(root: &Path, folder: &Path, wanted: &BTreeSet<&Path>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let is_folder = entry.file_type()?.is_dir();
        // Cargo may write the lock file when the work tree has none.
        if wanted.contains(path.as_path()) || path == Path::new("Cargo.lock") {
            continue;
        }
        if !is_folder {
            fs::remove_file(entry.path())?;
        } else if wanted.iter().any(|file| file.starts_with(&path)) {
            remove_others(root, &path, wanted)?;
        } else {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
