//! The diff of a fault, and its application.
//!
//! Code near a fault changes more often than the fault itself. A patch whose full context no longer
//! fits is applied with one line of context, if that fits at one place only. The lines that the
//! patch removes must still be there, word for word. The verdict of its test tells whether it still
//! is a fault.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace;

/// Lines of context beside a change that must fit.
const CONTEXT_MIN: usize = 1;

/// A place that a patch changes.
struct Hunk {
    file: PathBuf,
    /// The lines before the change, kept and removed ones.
    before: Vec<String>,
}

/// Quality of a patch's fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The whole context fits.
    Exact,
    /// The change itself and the lines beside it fit, at one place only.
    Loose,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "fits",
            Self::Loose => "fits with less context",
        })
    }
}

/// Returns the files that a patch changes.
pub(super) fn files(text: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = hunks(text).into_iter().map(|hunk| hunk.file).collect();
    files.dedup();
    files
}

/// Returns how well the patch fits the files of `tree`. Changes nothing.
pub(super) fn fit(tree: &Path, patch: &Path) -> Result<Fit> {
    let Err(error) = git_apply(tree, patch, &["--check"]) else { return Ok(Fit::Exact) };
    let text = std::fs::read_to_string(patch)?;
    for hunk in hunks(&text) {
        let file = std::fs::read_to_string(tree.join(&hunk.file)).unwrap_or_default();
        let lines: Vec<&str> = file.lines().collect();
        let places = lines
            .windows(hunk.before.len().max(1))
            .filter(|window| window.iter().zip(&hunk.before).all(|(a, b)| a == b))
            .count();
        if places != 1 {
            let file = hunk.file.display();
            bail!("{error:#}\n{places} places of {file} fit with less context");
        }
    }
    git_apply(tree, patch, &["--check", &context_min()]).map(|()| Fit::Loose)
}

/// Applies the patch to `tree`, whole or not at all.
pub(super) fn apply(tree: &Path, patch: &Path) -> Result<Fit> {
    let fit = fit(tree, patch)?;
    match fit {
        Fit::Exact => git_apply(tree, patch, &[])?,
        Fit::Loose => git_apply(tree, patch, &[&context_min()])?,
    }
    Ok(fit)
}

fn context_min() -> String {
    format!("-C{CONTEXT_MIN}")
}

fn git_apply(tree: &Path, patch: &Path, arguments: &[&str]) -> Result<()> {
    let mut git = Command::new("git");
    // Without a repository around `tree`, git takes the paths of the patch as relative to `tree`.
    git.current_dir(tree).env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    git.args(["apply", "--whitespace=nowarn"]).args(arguments).arg(patch);
    workspace::output(&mut git).map(|_| ())
}

/// Parses a unified diff. Context at the ends of a hunk is cut to the lines that must fit.
fn hunks(text: &str) -> Vec<Hunk> {
    let mut hunks = Vec::new();
    let mut file = PathBuf::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("--- ") {
            let name = name.split('\t').next().unwrap_or(name);
            file = PathBuf::from(name.strip_prefix("a/").unwrap_or(name));
        }
        if !line.starts_with("@@ ") {
            continue;
        }
        let is_inside =
            |line: &&str| line.is_empty() || line.starts_with([' ', '+', '\\']) || is_removed(line);
        let mut body = Vec::new();
        while let Some(line) = lines.next_if(is_inside) {
            body.push(line);
        }
        hunks.push(Hunk { file: file.clone(), before: before(&body) });
    }
    hunks
}

/// Returns true if a line of a diff is a removed line, not the head of the next file.
fn is_removed(line: &str) -> bool {
    line.starts_with('-') && !line.starts_with("--- a/")
}

fn before(body: &[&str]) -> Vec<String> {
    let is_context = |line: &&&str| line.is_empty() || line.starts_with(' ');
    let leading = body.iter().take_while(is_context).count();
    let trailing = body.iter().rev().take_while(is_context).count();
    let from = leading.saturating_sub(CONTEXT_MIN);
    let to = body.len() - trailing.saturating_sub(CONTEXT_MIN).min(body.len() - from);
    let stays = body[from..to].iter().filter(|line| !line.starts_with(['+', '\\']));
    stays.map(|line| line.get(1..).unwrap_or("").to_owned()).collect()
}

#[cfg(test)]
mod tests;
