//! A planted fault: a patch with a header that says what it breaks and which test must notice.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;

const FOLDER: &str = "planted";

/// One file of `planted/`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// What is wrong once it is applied, in a few words.
    pub(super) what: String,
    /// The command that must fail, word by word: `cargo test …`.
    pub(super) test: Vec<String>,
}

/// All faults, in the order of their names.
pub(super) fn load() -> Result<Vec<Fault>> {
    let is_patch = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "patch");
    workspace::files()?
        .into_iter()
        .filter(|path| path.starts_with(FOLDER) && is_patch(path))
        .map(|path| {
            let text = workspace::read(&path)?;
            parse(&path, &text).with_context(|| {
                format!("{}: see {FOLDER}/README.md for the header of a fault", path.display())
            })
        })
        .collect()
}

/// Reads the header: the lines before the diff that begin with `#`. A line without `KEY:` goes on
/// with the line before it.
fn parse(path: &Path, text: &str) -> Result<Fault> {
    let mut what = String::new();
    let mut test = String::new();
    let mut in_test = false;
    for line in text.lines().map_while(|line| line.strip_prefix('#')) {
        let (value, starts) = match (line.split_once("fault:"), line.split_once("caught by:")) {
            (Some((before, value)), _) if before.trim().is_empty() => (value, Some(false)),
            (_, Some((before, value))) if before.trim().is_empty() => (value, Some(true)),
            _ => (line, None),
        };
        in_test = starts.unwrap_or(in_test);
        let field = if in_test { &mut test } else { &mut what };
        if !field.is_empty() {
            field.push(' ');
        }
        field.push_str(value.trim());
    }
    let test: Vec<String> = test.split_whitespace().map(str::to_owned).collect();
    if what.is_empty() {
        bail!("the line `# fault: …` is missing");
    }
    if test.first().map(String::as_str) != Some("cargo")
        || test.get(1).map(String::as_str) != Some("test")
    {
        bail!("the line `# caught by: cargo test …` is missing");
    }
    let name = path.file_stem().context("a patch has a name")?.to_string_lossy().into_owned();
    Ok(Fault { name, path: path.to_owned(), what, test })
}

#[cfg(test)]
mod tests;
