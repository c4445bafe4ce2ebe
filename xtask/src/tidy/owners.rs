//! The parts of the switch keep what they own: from `Switch` down, no field is open to another
//! module, and each `impl` stands in the file of its type or below it. So an invariant of a part is
//! kept by its own methods, and a reader finds all of them in one place.
//!
//! A public type of the crate that is no part, such as a counter, has the public fields of its
//! interface.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Findings, RustFile};
use crate::rust_source::{has_word, word_positions};

/// The crate that is checked, and the type that has all others.
const FOLDER: &str = "crates/switch/src";
const ROOT: &str = "Switch";

/// Values: plain amounts without an invariant, by file. The part that counts in one keeps it
/// private.
const VALUES: [(&str, &str); 1] = [("place.rs", "Held")];

/// A type of the crate.
struct Type {
    name: String,
    path: PathBuf,
    is_public: bool,
    fields: Vec<Field>,
}

/// A field, or a variant of an enumeration.
struct Field {
    line: usize,
    /// Its visibility; empty if it is private.
    visibility: String,
    text: String,
}

/// An `impl` of methods.
struct Impl {
    name: String,
    path: PathBuf,
    line: usize,
}

pub(super) fn check(files: &[RustFile]) -> Findings {
    let own = files.iter().filter(|file| file.path.starts_with(FOLDER) && !file.is_test());
    let (mut types, mut impls) = (Vec::new(), Vec::new());
    for file in own {
        let path = file.path.strip_prefix(FOLDER).unwrap_or(&file.path);
        let text = production_text(file);
        types.extend(types_of(path, &text));
        impls.extend(impls_of(path, &text));
    }
    let parts = parts(&types);
    if parts.is_empty() {
        let problem =
            format!("{FOLDER} has no `{ROOT}`: name the root of its parts in {}", file!());
        return Findings { problems: vec![problem], note: String::new() };
    }
    let mut problems: Vec<String> = parts.iter().flat_map(|part| open_fields(part)).collect();
    problems.extend(impls.iter().filter_map(|found| misplaced(found, &parts)));
    let fields: usize = parts.iter().map(|part| part.fields.len()).sum();
    let note = format!("{} types with {fields} fields below `{ROOT}`", parts.len());
    Findings { problems, note }
}

/// Returns the text of a file without comments, literals and tests, with its line ends.
fn production_text(file: &RustFile) -> String {
    let mut lines = vec![""; file.text.lines().count()];
    for (number, line) in file.source.production_lines() {
        lines[number - 1] = line;
    }
    lines.join("\n")
}

/// Returns the types that the root has, itself included.
fn parts(types: &[Type]) -> Vec<&Type> {
    let mut found: Vec<&Type> = types.iter().filter(|of| of.name == ROOT).collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut at = 0;
    while at < found.len() {
        let part = found[at];
        at += 1;
        for (index, other) in types.iter().enumerate() {
            let is_named = part.fields.iter().any(|field| has_word(&field.text, &other.name));
            // A type of the same file hides another one of its name.
            let has_own = || types.iter().any(|of| of.name == other.name && of.path == part.path);
            let is_meant = is_named && (other.path == part.path || !has_own());
            if is_meant && other.name != ROOT && seen.insert(index) {
                found.push(other);
            }
        }
    }
    found
}

fn open_fields(part: &Type) -> Vec<String> {
    let Type { name, path, is_public, fields } = part;
    if VALUES.iter().any(|(file, value)| path == Path::new(file) && name == value) {
        return Vec::new();
    }
    // The fields of a public value are the crate's interface; the root is no value.
    let is_value = *is_public && name != ROOT;
    let is_open = |field: &&Field| match field.visibility.as_str() {
        "" => false,
        "pub" => !is_value,
        _ => true,
    };
    let open = fields.iter().filter(is_open).map(|field| {
        let (file, line) = (Path::new(FOLDER).join(path), field.line);
        format!(
            "{}:{line}: `{name}` has a field that is `{}`: a part of the switch keeps its fields \
             private; give `{name}` a method that does what is needed",
            file.display(),
            field.visibility
        )
    });
    open.collect()
}

fn misplaced(found: &Impl, parts: &[&Type]) -> Option<String> {
    let homes: Vec<&&Type> = parts.iter().filter(|part| part.name == found.name).collect();
    let is_beside = |home: &&&Type| {
        found.path == home.path || found.path.starts_with(home.path.with_extension(""))
    };
    if homes.is_empty() || homes.iter().any(is_beside) {
        return None;
    }
    let (file, home) =
        (Path::new(FOLDER).join(&found.path), Path::new(FOLDER).join(&homes[0].path));
    Some(format!(
        "{}:{}: methods of `{}` stand beside it: move them to {} or below it",
        file.display(),
        found.line,
        found.name,
        home.display()
    ))
}

/// Returns the structures and enumerations of a text.
fn types_of(path: &Path, text: &str) -> Vec<Type> {
    let keywords = ["struct", "enum"].into_iter();
    let starts = keywords.flat_map(|word| word_positions(text, word).map(move |at| (at, word)));
    let of = |(at, word): (usize, &str)| {
        let head = text[..at].rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
        let rest = &text[at + word.len()..];
        let name: String = rest.trim_start().chars().take_while(|c| is_name(*c)).collect();
        let open = rest.find(['{', '(', ';'])?;
        let close = match rest.as_bytes()[open] {
            b'{' => matching(rest, open, ('{', '}'))?,
            b'(' => matching(rest, open, ('(', ')'))?,
            _ => open + 1,
        };
        let first = line_of(text, at + word.len() + open);
        let fields =
            if close > open { fields_of(&rest[open + 1..close], first) } else { Vec::new() };
        let is_public = head.rsplit(']').next().unwrap_or_default().trim() == "pub";
        (!name.is_empty()).then(|| Type { name, path: path.to_owned(), is_public, fields })
    };
    starts.filter_map(of).collect()
}

/// Returns the fields of a body that begins in a line.
fn fields_of(body: &str, first: usize) -> Vec<Field> {
    let (mut fields, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    let mut add = |from: usize, to: usize| {
        let text = without_attributes(&body[from..to]);
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return;
        }
        let skipped = body[from..to].find(trimmed).unwrap_or(0);
        let line = first + body[..from + skipped].matches('\n').count();
        let visibility = visibility_of(trimmed).to_owned();
        fields.push(Field { line, visibility, text: trimmed.to_owned() });
    };
    for (at, c) in body.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if body[..at].ends_with('-') => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                add(start, at);
                start = at + 1;
            }
            _ => {}
        }
    }
    add(start, body.len());
    fields
}

/// Returns the visibility at the start of a field: `pub`, `pub(…)`, or nothing.
fn visibility_of(field: &str) -> &str {
    let Some(rest) = field.strip_prefix("pub") else { return "" };
    match rest.chars().next() {
        Some('(') => rest.find(')').map_or(field, |end| &field[..end + 4]),
        Some(c) if c.is_whitespace() => "pub",
        _ => "",
    }
}

/// Returns a field without the attributes in front of it.
fn without_attributes(text: &str) -> &str {
    let mut rest = text.trim_start();
    while rest.starts_with("#[") {
        let Some(end) = matching(rest, 1, ('[', ']')) else { break };
        rest = rest[end + 1..].trim_start();
    }
    rest
}

/// Returns the `impl`s of methods, without those of traits.
fn impls_of(path: &Path, text: &str) -> Vec<Impl> {
    let of = |at: usize| {
        let starts_line = text[..at].rsplit('\n').next().is_some_and(|head| head.trim().is_empty());
        let head = text[at + "impl".len()..].split('{').next()?;
        let head = head.trim_start();
        let head = match head.starts_with('<') {
            true => &head[matching(head, 0, ('<', '>'))? + 1..],
            false => head,
        };
        let name: String = head.trim_start().chars().take_while(|c| is_name(*c)).collect();
        let is_trait = has_word(head, "for");
        let line = line_of(text, at);
        (starts_line && !is_trait && !name.is_empty()).then(|| Impl {
            name,
            path: path.to_owned(),
            line,
        })
    };
    word_positions(text, "impl").filter_map(of).collect()
}

/// Returns the place of the bracket that closes the one at `open`.
fn matching(text: &str, open: usize, (left, right): (char, char)) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in text[open..].char_indices() {
        if c == left {
            depth += 1;
        } else if c == right && !(right == '>' && text[..open + at].ends_with('-')) {
            depth -= 1;
            if depth == 0 {
                return Some(open + at);
            }
        }
    }
    None
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
