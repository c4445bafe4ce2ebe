//! A planted fault: a patch with a header that names the defect and the test that must notice it.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::patch;
use crate::workspace;

const FOLDER: &str = "planted";

/// One file of `planted/`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The defect that the patch makes, in a few words.
    pub(super) what: String,
    pub(super) test: Test,
    /// Files that the patch changes.
    pub(super) files: Vec<PathBuf>,
}

/// The command that must fail. The order puts tests with the same build next to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) package: String,
    pub(super) target: Target,
    /// Further words of the command: the name of the test, and options of `cargo test`.
    pub(super) rest: Vec<String>,
}

/// The one program that is built and run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The unit tests.
    Lib,
    /// The integration test of this name.
    Test(String),
}

impl Test {
    /// Returns true if one program runs both tests.
    pub(super) fn same_program(&self, other: &Self) -> bool {
        (&self.package, &self.target) == (&other.package, &other.target)
    }

    /// Returns the arguments of `cargo test`.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut words = vec!["-p", &self.package];
        match &self.target {
            Target::Lib => words.push("--lib"),
            Target::Test(name) => words.extend(["--test", name]),
        }
        words.extend(self.rest.iter().map(String::as_str));
        words
    }

    /// Parses `cargo test -p PACKAGE --lib NAME …` or `cargo test -p PACKAGE --test FILE NAME …`.
    /// The target is required because otherwise cargo builds and links every target of the package.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (package, target, rest) = match words.as_slice() {
            ["cargo", "test", "-p", package, "--lib", rest @ ..] => (package, Target::Lib, rest),
            ["cargo", "test", "-p", package, "--test", name, rest @ ..] => {
                (package, Target::Test((*name).to_owned()), rest)
            }
            _ => return None,
        };
        if rest.first().is_none_or(|name| name.starts_with('-')) {
            return None;
        }
        let rest = rest.iter().map(|&word| word.to_owned()).collect();
        Some(Self { package: (*package).to_owned(), target, rest })
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo test {}", self.arguments().join(" "))
    }
}

/// Loads all faults, in the order of their names.
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

/// Parses a fault. The header is the lines before the diff that begin with `#`. A line without
/// `KEY:` continues the line before it.
pub(super) fn parse(path: &Path, text: &str) -> Result<Fault> {
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
    if what.is_empty() {
        bail!("the line `# fault: …` is missing");
    }
    let Some(test) = Test::parse(&test) else {
        bail!(
            "the line `# caught by: cargo test -p PACKAGE --lib NAME` is missing, or the same with \
             `--test FILE`; it says {test:?}"
        );
    };
    let name = path.file_stem().context("a patch has a name")?.to_string_lossy().into_owned();
    let files = patch::files(text);
    Ok(Fault { name, path: path.to_owned(), what, test, files })
}

#[cfg(test)]
mod tests;
