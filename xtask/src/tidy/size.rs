//! Limits of the length of files and functions. Subjects that exceeded the limit at its
//! introduction are listed in `xtask/ratchet.txt` with their size, which may shrink but not grow.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{Findings, RustFile};
use crate::workspace;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const RATCHET: &str = "xtask/ratchet.txt";

/// A file, or a function of it. Displayed as in the ratchet file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    path: String,
    function: Option<String>,
}

impl Subject {
    fn limit(&self) -> usize {
        if self.function.is_some() { FUNCTION_LINES_MAX } else { FILE_LINES_MAX }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.function {
            Some(function) => write!(f, "{} fn {function}", self.path),
            None => f.write_str(&self.path),
        }
    }
}

pub(super) fn check(files: &[RustFile]) -> Result<Findings> {
    let ratchet = parse_ratchet(&workspace::read(Path::new(RATCHET))?)?;
    let mut sizes = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        let path = file.path.to_string_lossy().into_owned();
        measure(&path, &file.source, &mut sizes);
    }
    let problems = compare(&sizes, &ratchet);
    let file_count = sizes.keys().filter(|subject| subject.function.is_none()).count();
    let note = format!(
        "{file_count} files and {} functions, {} exceptions",
        sizes.len() - file_count,
        ratchet.len()
    );
    Ok(Findings { problems, note })
}

/// Measures the file and its functions. Several functions of one name in one file count as the
/// longest of them.
fn measure(
    path: &str,
    source: &crate::rust_source::RustSource,
    sizes: &mut BTreeMap<Subject, usize>,
) {
    let subject = Subject { path: path.to_owned(), function: None };
    sizes.insert(subject, source.production_line_count());
    for function in source.functions() {
        let subject = Subject { path: path.to_owned(), function: Some(function.name) };
        let size = sizes.entry(subject).or_default();
        *size = function.lines.max(*size);
    }
}

fn compare(sizes: &BTreeMap<Subject, usize>, ratchet: &BTreeMap<Subject, usize>) -> Vec<String> {
    let mut problems = Vec::new();
    for (subject, &size) in sizes {
        let limit = subject.limit();
        match ratchet.get(subject) {
            None if size > limit => problems.push(format!(
                "{subject} has {size} lines, {limit} are the limit: split it where its parts have \
                 names of their own"
            )),
            Some(&recorded) if size > recorded => problems.push(format!(
                "{subject} grew from {recorded} to {size} lines: split it; the ratchet only \
                 tightens"
            )),
            Some(_) if size <= limit => problems.push(format!(
                "{subject} has {size} lines and needs no exception any more: remove its line from \
                 {RATCHET}"
            )),
            Some(&recorded) if size < recorded => problems.push(format!(
                "{subject} shrank from {recorded} to {size} lines: write {size} into its line of \
                 {RATCHET}"
            )),
            _ => {}
        }
    }
    for subject in ratchet.keys().filter(|subject| !sizes.contains_key(subject)) {
        problems.push(format!("{subject} is gone: remove its line from {RATCHET}"));
    }
    problems
}

/// Parses lines of `PATH LINES` or `PATH fn NAME LINES`; `#` begins a comment.
fn parse_ratchet(text: &str) -> Result<BTreeMap<Subject, usize>> {
    let mut ratchet = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        let (path, function, size) = match words[..] {
            [] => continue,
            [path, size] => (path, None, size),
            [path, "fn", function, size] => (path, Some(function.to_owned()), size),
            _ => bail!("{RATCHET}:{}: write `PATH LINES` or `PATH fn NAME LINES`", index + 1),
        };
        let size = size.parse().with_context(|| format!("{RATCHET}:{}: {size}", index + 1))?;
        ratchet.insert(Subject { path: path.to_owned(), function }, size);
    }
    Ok(ratchet)
}

#[cfg(test)]
mod tests;
