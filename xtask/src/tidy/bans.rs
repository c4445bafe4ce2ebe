//! Words that production code must not have, `unsafe` outside of its allowed places, and lines that
//! are too long.

use super::{Findings, RustFile};
use crate::rust_source::has_word;

const COLUMNS_MAX: usize = 100;

/// Macros that mark unfinished code.
const BANNED_MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// Places where `unsafe` is allowed: folders end with a slash. A new place is a decision: add it
/// here with its reason.
const UNSAFE_PLACES: &[&str] = &[
    // Rings, mapped memory and raw descriptors shared with the kernel and with guests.
    "crates/ports/",
    // The guest's side of the same rings, for tests and benchmarks.
    "crates/testkit/",
];

pub(super) fn check(files: &[RustFile]) -> Findings {
    let problems = files.iter().flat_map(problems).collect();
    Findings { problems, note: format!("{} files", files.len()) }
}

fn problems(file: &RustFile) -> Vec<String> {
    let path = file.path.display().to_string();
    let mut problems = Vec::new();
    if !file.is_test() {
        for (number, line) in file.source.production_lines() {
            for word in BANNED_MACROS.iter().filter(|word| names_macro(line, word)) {
                problems.push(format!(
                    "{path}:{number}: `{word}` in production: finish it, return an error, or say \
                     `unreachable!` with the reason why it cannot happen"
                ));
            }
        }
    }
    if !UNSAFE_PLACES.iter().any(|place| path.starts_with(place)) {
        for (number, _) in file.source.lines().filter(|(_, line)| has_word(line, "unsafe")) {
            problems.push(format!(
                "{path}:{number}: `unsafe` belongs into crates/ports (crates/testkit for tests): \
                 move it there behind a safe function, or list the file in UNSAFE_PLACES of \
                 xtask/src/tidy/bans.rs with its reason"
            ));
        }
    }
    for (index, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.contains("://") {
            problems.push(format!(
                "{path}:{}: {columns} columns, {COLUMNS_MAX} are the limit: break the line",
                index + 1
            ));
        }
    }
    problems
}

fn names_macro(line: &str, name: &str) -> bool {
    let word = name.trim_end_matches('!');
    crate::rust_source::word_positions(line, word).any(|at| line[at..].starts_with(name))
}

#[cfg(test)]
mod tests;
