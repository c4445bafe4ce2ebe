//! Secrets that no archive may have which is sent to others: private keys, tokens, values of the
//! configuration and of the kernel that are named as secrets.
//!
//! Two nets, one behind the other. Forms are known: a key as PEM, a token by its first letters, a
//! value by the name of its key. And the keys of this host are read: a file that has a part of one
//! in it all the same is left out whole.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::host::Found;

/// Text in the place of a secret.
const LEFT_OUT: &str = "(left out)";
/// First letters of a token.
const TOKEN: &str = "sluice1-";
/// Shortest part of a key that counts: less may be anywhere.
const PART_SIZE: usize = 24;
/// Folders below one that are looked at for keys.
const DEPTH_MAX: usize = 4;
/// Largest file of a key.
const KEY_SIZE_MAX: u64 = 64 << 10;

/// Form of a file, which says how its values are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    /// Lines of `name = value` or `name: value`.
    Values,
    Text,
}

/// Parts of the keys of this host.
#[derive(Debug, Default)]
pub(super) struct Known(Vec<Vec<u8>>);

impl Known {
    /// Reads the keys of a host.
    pub(super) fn of(found: &Found) -> Self {
        let mut parts = Vec::new();
        for folder in found.folders() {
            read_keys(&folder, DEPTH_MAX, &mut parts);
        }
        Self(parts)
    }

    /// Takes secrets out.
    ///
    /// # Errors
    /// The reason why all of it is left out.
    pub(super) fn clean(&self, form: Form, bytes: Vec<u8>) -> Result<Vec<u8>, &'static str> {
        let text = String::from_utf8_lossy(&bytes);
        let named = match form {
            Form::Json => of_json(&text).unwrap_or_else(|| of_values(&text)),
            Form::Values => of_values(&text),
            Form::Text => text.into_owned(),
        };
        let text = without_tokens(&without_keys(&named));
        if self.0.iter().any(|part| has(text.as_bytes(), part)) {
            return Err("left out: there is a part of a private key in it");
        }
        Ok(text.into_bytes())
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Reads all private keys below a folder.
fn read_keys(folder: &Path, depth: usize, parts: &mut Vec<Vec<u8>>) {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in paths.collect::<Vec<PathBuf>>() {
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_dir() && depth > 0 {
            read_keys(&path, depth - 1, parts);
        }
        let is_small = about.is_file() && about.len() <= KEY_SIZE_MAX;
        let Some(text) = is_small.then(|| fs::read_to_string(&path).ok()).flatten() else {
            continue;
        };
        let (mut is_key, mut lines) = (false, text.lines());
        while let Some(line) = lines.next().map(str::trim) {
            match line.strip_prefix("-----") {
                Some(mark) => is_key = mark.starts_with("BEGIN") && mark.contains("PRIVATE KEY"),
                None if is_key && line.len() >= PART_SIZE => parts.push(line.as_bytes().to_vec()),
                None => {}
            }
        }
    }
}

/// Returns true if the value of this name is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let contains = ["secret", "passw", "token", "private", "psk", "credential"];
    contains.iter().any(|word| name.contains(word)) || name.ends_with("key") || name == "hash"
}

/// Takes secrets out of JSON by their names; `None` if it is none.
fn of_json(text: &str) -> Option<String> {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    match value {
                        Value::String(text) if is_secret(name) => LEFT_OUT.clone_into(text),
                        _ => walk(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(walk),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).ok()?;
    walk(&mut value);
    serde_json::to_string_pretty(&value).ok().map(|text| text + "\n")
}

/// Takes the values out whose names are those of secrets.
fn of_values(text: &str) -> String {
    let clean = |line: &str| {
        let end = line.find(['=', ':']).filter(|end| is_secret(line[..*end].trim()));
        end.map_or_else(|| line.to_owned(), |end| format!("{} {LEFT_OUT}", &line[..=end]))
    };
    text.lines().map(|line| clean(line) + "\n").collect()
}

/// Takes private keys out that are written as PEM.
fn without_keys(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("PRIVATE KEY-----") {
        let end = at + "PRIVATE KEY-----".len();
        kept += &rest[..end];
        kept += LEFT_OUT;
        // Without an end it goes on to the last letter.
        rest = rest[end..].find("-----END").map_or("", |size| &rest[end + size..]);
        let close = rest.find("KEY-----").map_or(rest.len(), |size| size + "KEY-----".len());
        kept += &rest[..close];
        rest = &rest[close..];
    }
    kept + rest
}

/// Takes tokens out.
fn without_tokens(text: &str) -> String {
    let mut parts = text.split(TOKEN);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_digit = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        kept += TOKEN;
        kept += LEFT_OUT;
        kept += part.trim_start_matches(is_digit);
    }
    kept
}

#[cfg(test)]
mod tests;
