//! Prose of comments: sentences that begin with the subject, and words of the field.
//!
//! A sentence such as "Who sleeps is woken by whoever has something for it" makes its reader guess
//! who is meant. Some of them are good, so only their share is limited. Words that only this
//! project used, where the field has one, were retired (`docs/glossary.md`).

use std::collections::BTreeMap;

use super::{Findings, RustFile};
use crate::rust_source::has_word;

/// Words that open a relative clause.
const OPENINGS: [&str; 9] =
    ["What", "How", "Whether", "Who", "Whose", "Those", "Which", "Whoever", "Whatever"];

/// Limit of their share of the sentences of doc comments, by crate.
const OPENINGS_PERCENT_MAX: usize = 3;

/// Sentences of a crate that are named when there are too many.
const NAMED_MAX: usize = 5;

/// Private words of the past, each with the word of the field.
const RETIRED: [(&str, &str); 15] = [
    ("bay", "spare port"),
    ("bays", "spare ports"),
    ("belongings", "state of the port"),
    ("knock", "connect"),
    ("lane", "queue group"),
    ("lanes", "queue groups"),
    ("lend", "pass a remote reference"),
    ("lent", "passed as a remote reference"),
    ("lies down", "prepares to sleep"),
    ("gets up", "wakes"),
    ("loan", "remote reference"),
    ("loans", "remote references"),
    ("spill", "copy to the shared buffer"),
    ("spilled", "copied to the shared buffer"),
    ("surplus", "overflow"),
];

/// Sentences of doc comments in one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    sentences: usize,
    /// Places of those that open with a relative clause.
    openings: Vec<String>,
}

pub(super) fn check(files: &[RustFile]) -> Findings {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut problems = Vec::new();
    for file in files {
        let path = file.path.display().to_string();
        let package = path.split('/').take(2).collect::<Vec<_>>().join("/");
        let count = counts.entry(package).or_default();
        for (line, paragraph) in paragraphs(&file.text) {
            for sentence in sentences(&paragraph) {
                count.sentences += 1;
                if opens_badly(sentence) {
                    count.openings.push(format!("{path}:{line}: {sentence}"));
                }
            }
        }
        if !file.is_test() {
            problems.extend(retired(&path, &file.text));
        }
    }
    problems.extend(counts.iter().filter_map(|(package, count)| too_many(package, count)));
    let sum = |of: fn(&Count) -> usize| counts.values().map(of).sum::<usize>();
    let (sentences, openings) = (sum(|c| c.sentences), sum(|c| c.openings.len()));
    let note = format!("{openings} of {sentences} sentences open with a relative clause");
    Findings { problems, note }
}

fn too_many(package: &str, count: &Count) -> Option<String> {
    if count.openings.len() * 100 <= count.sentences * OPENINGS_PERCENT_MAX {
        return None;
    }
    let named = count.openings.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("\n  ");
    Some(format!(
        "{package}: {} of {} sentences of doc comments open with {} or the like, \
         {OPENINGS_PERCENT_MAX} % are the limit: begin with a verb or the thing itself\n  {named}",
        count.openings.len(),
        count.sentences,
        OPENINGS[0]
    ))
}

/// Returns the paragraphs of doc comments, each with its first line, numbered from one. Code blocks
/// are left out.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let (mut open, mut in_code) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(words) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            (open, in_code) = (false, false);
            continue;
        };
        let words = words.trim();
        if words.starts_with("```") {
            in_code = !in_code;
        }
        if in_code || words.is_empty() || words.starts_with("```") {
            open = false;
        } else if let (true, Some((_, paragraph))) = (open, all.last_mut()) {
            paragraph.push(' ');
            paragraph.push_str(words);
        } else {
            all.push((index + 1, words.to_owned()));
            open = true;
        }
    }
    all
}

/// Returns the sentences of a paragraph.
fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    paragraph.split_inclusive(['.', '?', '!', ':']).map(str::trim).filter(|part| {
        // A part such as "802" of "802.1Q" is no sentence.
        part.chars().next().is_some_and(|first| first.is_uppercase() || first == '`')
    })
}

fn opens_badly(sentence: &str) -> bool {
    let first = sentence.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    OPENINGS.contains(&first)
}

/// Returns the retired words in the comments of a file. Names in backticks are the code's.
fn retired(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("//") else { continue };
        let prose: String = comment.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        for (word, better) in RETIRED.iter().filter(|(word, _)| has_word(&prose, word)) {
            problems.push(format!("{path}:{}: {word:?} is retired: {better:?}", index + 1));
        }
    }
    problems
}

#[cfg(test)]
mod tests;
