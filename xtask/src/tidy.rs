//! `cargo xtask tidy`: what neither the compiler nor clippy checks.
//!
//! Every check looks at the work tree and gives back its problems; every problem says what to do.
//! A check that could only do part of its work says so in its note.

mod bans;
mod configs;
mod edges;
mod links;
mod no_std;
mod size;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::rust_source::RustSource;
use crate::workspace;

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What must be changed, and how.
    problems: Vec<String>,
    /// What was checked, in a few words.
    note: String,
}

/// The crates below L4: nothing in them can name a clock, a socket, a thread or the machine's
/// randomness.
const PURE_CRATES: [&str; 6] = ["base", "wire", "switch", "control", "placement", "host"];

/// A Rust file of the work tree.
struct RustFile {
    path: PathBuf,
    text: String,
    source: RustSource,
}

impl RustFile {
    /// Files of tests and test helpers may be long and may say what production must not.
    fn is_test(&self) -> bool {
        is_test_path(&self.path)
    }
}

fn is_test_path(path: &Path) -> bool {
    let in_tests = path.components().any(|part| part.as_os_str() == "tests");
    in_tests || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// Runs all checks. `false` if there is a problem.
pub(crate) fn run() -> Result<bool> {
    let files = workspace::files()?;
    let metadata = workspace::metadata()?;
    let rust_files = files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let text = workspace::read(path)?;
            let source = RustSource::new(&text);
            Ok(RustFile { path: path.clone(), text, source })
        })
        .collect::<Result<Vec<_>>>()?;
    let checks = [
        ("edges", edges::check(&metadata)),
        ("size", size::check(&rust_files)?),
        ("no_std", no_std::check(&rust_files)?),
        ("bans", bans::check(&rust_files)),
        ("links", links::check(&files)?),
        ("configs", configs::check(&files)?),
    ];
    let mut problem_count = 0;
    for (name, findings) in &checks {
        for problem in &findings.problems {
            println!("error[{name}]: {problem}");
        }
        problem_count += findings.problems.len();
        let word = if findings.problems.is_empty() { "ok" } else { "FAILED" };
        println!("tidy {name}: {word}, {}", findings.note);
    }
    Ok(problem_count == 0)
}
