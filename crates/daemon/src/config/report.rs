//! What is wrong with a configuration: every problem with its line, its key and the remedy.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; `None` if the problem is about the whole file.
    pub line: Option<usize>,
    /// The key, as `port[2].mac`; empty if the file cannot be read at all.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// All that is wrong with one file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// Whether the form is so wrong that the meaning was not looked at.
    pub meaning_unchecked: bool,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(file: &str) -> Self {
        Self { file: file.to_owned(), problems: Vec::new(), meaning_unchecked: false }
    }

    /// Puts the problems into the order of their lines.
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
