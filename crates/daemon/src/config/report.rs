//! Errors of a configuration: every problem with its line, its key and the remedy.

use std::fmt;

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; `None` if the problem is about the whole file.
    pub line: Option<usize>,
    /// The key, as `port[2].mac`; empty if the file cannot be read at all.
    pub key: String,
    /// Description of the problem.
    pub what: String,
    /// Remedy.
    pub remedy: String,
}

/// All errors of one file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file.
    pub file: String,
    /// The errors.
    pub problems: Vec<Problem>,
    /// True if the form is so wrong that the meaning was not checked.
    pub meaning_unchecked: bool,
}

impl Report {
    /// Returns an empty report.
    #[must_use]
    pub fn new(file: &str) -> Self {
        Self { file: file.to_owned(), problems: Vec::new(), meaning_unchecked: false }
    }

    /// Sorts the problems by their lines.
    pub fn sort(&mut self) {
        self.problems.sort_by_key(|problem| problem.line.unwrap_or(0));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            if !problem.key.is_empty() {
                write!(f, ": {}", problem.key)?;
            }
            write!(f, ": {}", problem.what)?;
            if !problem.remedy.is_empty() {
                write!(f, "\n    {}", problem.remedy)?;
            }
        }
        if self.meaning_unchecked {
            write!(f, "\n{}: what the values mean is checked when these are mended", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}
