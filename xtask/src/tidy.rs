//! `cargo xtask tidy`: checks that neither the compiler nor clippy makes.
//!
//! Every check examines the work tree and returns its problems, each with a remedy. A check that
//! could do only part of its work says so in its note.

mod bans;
mod configs;
mod edges;
mod links;
mod modules;
mod no_std;
mod owners;
mod prose;
mod size;
mod subjects;
mod test_names;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::rust_source::RustSource;
use crate::workspace;

/// Findings of a check.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Problems, each with a remedy.
    problems: Vec<String>,
    /// Extent of the check, in a few words.
    note: String,
}

/// The crates below L4: they cannot name a clock, a socket, a thread or the machine's randomness.
const PURE_CRATES: [&str; 6] = ["base", "wire", "switch", "control", "placement", "host"];

/// A Rust file of the work tree.
struct RustFile {
    path: PathBuf,
    text: String,
    source: RustSource,
}

impl RustFile {
    /// Returns true for files of tests and test helpers, which may be long and may use banned
    /// words.
    fn is_test(&self) -> bool {
        is_test_path(&self.path)
    }
}

fn is_test_path(path: &Path) -> bool {
    let in_tests = path.components().any(|part| part.as_os_str() == "tests");
    in_tests || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// Runs all checks. Returns `false` if there is a problem.
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
        ("modules", modules::check(&rust_files)),
        ("owners", owners::check(&rust_files)),
        ("size", size::check(&rust_files)?),
        ("no_std", no_std::check(&rust_files)?),
        ("bans", bans::check(&rust_files)),
        ("links", links::check(&files)?),
        ("configs", configs::check(&files)?),
        ("prose", prose::check(&rust_files)),
        ("subjects", subjects::check()?),
        ("test names", test_names::check(&rust_files)),
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
