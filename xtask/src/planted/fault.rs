//! A planted fault: a patch with a header that says what it breaks and which test must notice.

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
    /// What is wrong once it is applied, in a few words.
    pub(super) what: String,
    pub(super) test: Test,
    /// Files that it changes.
    pub(super) files: Vec<PathBuf>,
}

/// The command that must fail. In the order of these, what shares a build stands together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) package: String,
    pub(super) target: Target,
    /// What follows: the name of the test, and what else `cargo test` is to know.
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
    /// Whether both are run by the same program.
    pub(super) fn same_program(&self, other: &Self) -> bool {
        (&self.package, &self.target) == (&other.package, &other.target)
    }

    /// What follows `cargo test`.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut words = vec!["-p", &self.package];
        match &self.target {
            Target::Lib => words.push("--lib"),
            Target::Test(name) => words.extend(["--test", name]),
        }
        words.extend(self.rest.iter().map(String::as_str));
        words
    }

    /// Reads `cargo test -p PACKAGE --lib NAME …` or `cargo test -p PACKAGE --test FILE NAME …`.
    /// Without a target, cargo builds and links every one that the package has.
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
