//! The file as text: checks its form, and finds a key by its path, so that messages about a value
//! name its line.
//!
//! `serde` stops at the first error. To report all errors, the offending part is removed from the
//! parsed tree and the reading starts again, until it succeeds or the whole tree is gone. The tree
//! shrinks each time, so this ends.

use std::fmt::Write as _;
use std::ops::Range;

use serde::Deserialize as _;
use sluice_api::config::HostConfig;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::report::{Problem, Report};

use Step::{At, Key};

/// One step of a path into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// A key of a table.
    Key(&'a str),
    /// A position in an array of tables.
    At(usize),
}

/// A parsed file.
pub(super) struct Document<'a> {
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// Parses `text` and reads it as a configuration. All errors of form go into `report`; the
    /// configuration is `None` if its meaning cannot be checked.
    pub(super) fn read(text: &'a str, report: &mut Report) -> (Self, Option<HostConfig>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let document = Self { text, root };
        if !errors.is_empty() {
            report.meaning_unchecked = true;
            for error in errors {
                let line = error.span().map(|span| document.line_at(span.start));
                let what = error.message().to_owned();
                report.problems.push(Problem {
                    line,
                    key: String::new(),
                    what,
                    remedy: remedy_syntax(),
                });
            }
            return (document, None);
        }
        let config = document.deserialize(report);
        (document, config)
    }

    fn deserialize(&self, report: &mut Report) -> Option<HostConfig> {
        let mut tree = self.root.clone();
        let mut whole = true;
        loop {
            let error = match HostConfig::deserialize(Deserializer::from(tree.clone())) {
                Ok(config) => {
                    report.meaning_unchecked |= !whole;
                    return whole.then_some(config);
                }
                Err(error) => error,
            };
            let message = error.message();
            let unknown = message.starts_with("unknown field");
            let missing = message.strip_prefix("missing field ").map(|rest| rest.trim_matches('`'));
            let span = error.span();
            let mut path = Vec::new();
            _ = span.as_ref().is_some_and(|span| path_of(self.root.get_ref(), span, &mut path));
            path.extend(missing.map(Key));
            let key = path_text(&path);
            // A field that is missing because it was removed has been reported already.
            let echo =
                missing.is_some() && report.problems.iter().any(|p| is_at_or_in(&p.key, &key));
            if !echo {
                let (what, remedy) = explain(message, missing);
                let line = span.as_ref().map(|span| self.line_at(span.start));
                report.problems.push(Problem { line, key, what, remedy });
            }
            whole &= unknown;
            if !span.is_some_and(|span| take_out(tree.get_mut(), &span)) {
                report.meaning_unchecked = true;
                return None;
            }
        }
    }

    /// Returns the line of `path`; if the file does not contain it, the line of the nearest table
    /// around it.
    pub(super) fn line(&self, path: &[Step<'_>]) -> Option<usize> {
        let mut best = None;
        let mut value: Option<&DeValue<'_>> = None;
        for step in path {
            let table = match value {
                None => Some(self.root.get_ref()),
                Some(DeValue::Table(table)) => Some(table),
                Some(_) => None,
            };
            let next = match (step, value) {
                (Key(name), _) => table.and_then(|table| {
                    table
                        .iter()
                        .find(|(key, _)| key.get_ref() == name)
                        .map(|(key, value)| (key.span(), value.get_ref()))
                }),
                (At(index), Some(DeValue::Array(array))) => {
                    array.get(*index).map(|value| (value.span(), value.get_ref()))
                }
                (At(_), _) => None,
            };
            let Some((span, inner)) = next else { break };
            best = Some(span.start);
            value = Some(inner);
        }
        best.map(|offset| self.line_at(offset))
    }

    fn line_at(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        self.text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count() + 1
    }
}

/// Formats a path: `port[2].mac`. Positions count from 1.
pub(super) fn path_text(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Key(name) if text.is_empty() => text.push_str(name),
            Key(name) => _ = write!(text, ".{name}"),
            At(index) => _ = write!(text, "[{}]", index + 1),
        }
    }
    text
}

fn is_at_or_in(key: &str, place: &str) -> bool {
    key.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Finds the path of the smallest key or value that `span` names; empty for the root.
fn path_of<'t>(table: &'t DeTable<'_>, span: &Range<usize>, path: &mut Vec<Step<'t>>) -> bool {
    let inside = table.iter().any(|(key, value)| {
        path.push(Key(key.get_ref()));
        let found = path_in_value(value.get_ref(), span, path);
        if !found {
            path.pop();
        }
        found
    });
    let named = || table.iter().find(|(key, value)| key.span() == *span || value.span() == *span);
    if !inside && let Some((key, _)) = named() {
        path.push(Key(key.get_ref()));
        return true;
    }
    inside
}

fn path_in_value<'t>(
    value: &'t DeValue<'_>,
    span: &Range<usize>,
    path: &mut Vec<Step<'t>>,
) -> bool {
    match value {
        DeValue::Table(table) => path_of(table, span, path),
        DeValue::Array(array) => {
            for (index, item) in array.iter().enumerate() {
                path.push(At(index));
                if path_in_value(item.get_ref(), span, path) || item.span() == *span {
                    return true;
                }
                path.pop();
            }
            false
        }
        _ => false,
    }
}

/// Removes the smallest key or value that `span` names from the tree; returns false for the root.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    if table.iter_mut().any(|(_, value)| take_out_of_value(value.get_mut(), span)) {
        return true;
    }
    let mut found =
        table.iter().filter(|(key, value)| key.span() == *span || value.span() == *span);
    let Some(name) = found.next().map(|(key, _)| key.get_ref().to_string()) else { return false };
    table.remove(name.as_str());
    true
}

fn take_out_of_value(value: &mut DeValue<'_>, span: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => take_out(table, span),
        DeValue::Array(array) => {
            if array.iter_mut().any(|item| take_out_of_value(item.get_mut(), span)) {
                return true;
            }
            let before = array.len();
            let kept = std::mem::replace(array, DeArray::new()).into_iter();
            *array = kept.filter(|item| item.span() != *span).collect();
            array.len() < before
        }
        _ => false,
    }
}

fn remedy_syntax() -> String {
    "The file is TOML: see https://toml.io.".to_owned()
}

/// Rephrases `serde`'s message, and adds the remedy.
fn explain(message: &str, missing: Option<&str>) -> (String, String) {
    if let Some(name) = missing {
        return ("is missing".to_owned(), format!("Add a line `{name} = …`."));
    }
    let known: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.starts_with("unknown field") || message.starts_with("unknown variant") {
        let (given, known) =
            known.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
        let what = if message.starts_with("unknown field") {
            "no such key".to_owned()
        } else {
            format!("`{given}` is none of its values")
        };
        return (what, suggestion(given, known));
    }
    (message.to_owned(), String::new())
}

/// Returns "Did you mean …", or the possible names.
pub(super) fn suggestion(given: &str, known: &[&str]) -> String {
    let given = given.to_lowercase();
    let near = known
        .iter()
        .map(|name| (strsim::jaro_winkler(&given, &name.to_lowercase()), *name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match (near, known) {
        (Some((_, name)), _) => format!("Did you mean `{name}`?"),
        (None, []) => "There is none of that kind.".to_owned(),
        (None, _) => format!("There is: {}.", known.join(", ")),
    }
}
