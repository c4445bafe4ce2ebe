//! Properties of a Rust file that the checks need: its lines of production code, and the extent of
//! its functions.
//!
//! This is a lexer, not a parser: comments and literals are blanked out, then braces are matched.
//! So it also sees functions inside `macro_rules!`, which a parser of the file would not. It does
//! not expand macros and does not resolve names.

/// A Rust file with comments and literals blanked out.
#[derive(Debug)]
pub(crate) struct RustSource {
    /// Masked text, as long as the file, with the same line ends.
    masked: String,
    /// For every line, true if it belongs to an item under `#[cfg(test)]`.
    test_lines: Vec<bool>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Number of the line of `fn`, from one.
    pub(crate) line: usize,
    /// Number of lines from the line of `fn` to that of the closing brace.
    pub(crate) lines: usize,
}

impl RustSource {
    /// Parses the text of a file.
    pub(crate) fn new(text: &str) -> Self {
        let masked = mask(text);
        let mut test_lines = vec![false; masked.lines().count()];
        for (start, end) in test_spans(&masked) {
            let (first, last) = (line_index(&masked, start), line_index(&masked, end));
            let last = last.min(test_lines.len().saturating_sub(1));
            test_lines[first..=last].fill(true);
        }
        Self { masked, test_lines }
    }

    /// Returns the number of lines that are not under `#[cfg(test)]`.
    pub(crate) fn production_line_count(&self) -> usize {
        self.test_lines.iter().filter(|&&test| !test).count()
    }

    /// Returns the production lines without comments and literals, numbered from one.
    pub(crate) fn production_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|&(number, _)| !self.test_lines[number - 1])
    }

    /// Returns all lines without comments and literals, numbered from one.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.masked.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the production functions in source order.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for start in word_positions(&self.masked, "fn") {
            let first = line_index(&self.masked, start);
            let Some((name, body)) = signature(&self.masked, start) else { continue };
            let Some(end) = closing_brace(self.masked.as_bytes(), body) else { continue };
            if !self.test_lines[first] {
                let lines = line_index(&self.masked, end) - first + 1;
                functions.push(Function { name: name.to_owned(), line: first + 1, lines });
            }
        }
        functions
    }
}

/// Returns true if `line` contains `word` as a whole identifier.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    word_positions(line, word).next().is_some()
}

/// Returns the positions of `word` as a whole identifier.
pub(crate) fn word_positions<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |byte: Option<&u8>| byte.is_some_and(|&byte| is_name_byte(byte));
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_name(before) && !is_name(bytes.get(at + word.len()))
    })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn line_index(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the text without its comments, and without the lines that hold nothing else.
pub(crate) fn without_comments(text: &str) -> String {
    let blanked = blank(text, &[Part::Comment]);
    let lines = text.lines().zip(blanked.lines());
    let code = lines.filter_map(|(line, code)| match code.trim_end() {
        _ if line == code => Some(line),
        "" => None,
        code => Some(code),
    });
    code.flat_map(|line| [line, "\n"]).collect()
}

/// Part of a Rust file that is no code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Comment,
    /// A string or a character, with its quotes.
    Literal,
}

/// Replaces comments and the contents of string and character literals by spaces, byte by byte.
fn mask(text: &str) -> String {
    blank(text, &[Part::Comment, Part::Literal])
}

/// Replaces parts of these kinds by spaces, byte by byte.
fn blank(text: &str, parts: &[Part]) -> String {
    let bytes = text.as_bytes();
    let mut masked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let in_name = at > 0 && is_name_byte(bytes[at - 1]);
        let (part, end) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (Part::Comment, find(bytes, at, b"\n")),
            b'/' if bytes[at..].starts_with(b"/*") => (Part::Comment, block_comment_end(bytes, at)),
            b'"' => (Part::Literal, string_end(bytes, at)),
            b'r' | b'b' | b'c' if !in_name => match raw_string_end(bytes, at) {
                Some(end) => (Part::Literal, end),
                None => (Part::Literal, at),
            },
            b'\'' => (Part::Literal, character_end(text, at)),
            _ => (Part::Literal, at),
        };
        for byte in &mut masked[at..end] {
            if *byte != b'\n' && parts.contains(&part) {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(masked).expect("characters are blanked out as a whole")
}

/// Returns the position of `needle` at or after `from`; the end of the text if there is none.
fn find(bytes: &[u8], from: usize, needle: &[u8]) -> usize {
    let found = bytes[from..].windows(needle.len()).position(|window| window == needle);
    found.map_or(bytes.len(), |offset| from + offset)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at.min(bytes.len())
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Returns the end of a raw string that starts with `r`, `br` or `cr` at `start`, if there is one.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let letters = if bytes[start] == b'r' { 1 } else { 2 };
    if letters == 2 && bytes.get(start + 1) != Some(&b'r') {
        return None;
    }
    let open = start + letters;
    let hashes = bytes[open..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(open + hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    Some((find(bytes, open + hashes + 1, &close) + close.len()).min(bytes.len()))
}

/// Returns the end of a character literal at `start`; `start` itself if it is a lifetime.
fn character_end(text: &str, start: usize) -> usize {
    let mut after = text[start + 1..].char_indices();
    match (after.next(), after.next()) {
        (Some((_, '\\')), Some((escape, letter))) => {
            let from = start + 1 + escape + letter.len_utf8();
            (find(text.as_bytes(), from, b"'") + 1).min(text.len())
        }
        (Some(_), Some((close, '\''))) => start + 1 + close + 1,
        _ => start,
    }
}

/// Returns the position of the brace that closes the one at `open`.
fn closing_brace(bytes: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return Some(open + offset);
        }
    }
    None
}

/// Returns the name of the function whose `fn` is at `start`, and the position of its opening
/// brace.
fn signature(masked: &str, start: usize) -> Option<(&str, usize)> {
    let rest = masked[start + 2..].trim_start();
    let length = rest.bytes().take_while(|&b| is_name_byte(b) || b == b'$').count();
    if length == 0 {
        return None;
    }
    let from = masked.len() - rest.len();
    let mut depth = 0_i32;
    for (offset, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some((&rest[..length], from + offset)),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the start and end of every item under `#[cfg(test)]`.
fn test_spans(masked: &str) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (start, _) in masked.match_indices("#[cfg(").chain(masked.match_indices("#![cfg(")) {
        let Some(close) = masked[start..].find(']').map(|offset| start + offset) else { continue };
        let condition = &masked[start..close];
        if !has_word(condition, "test") || condition.contains("not(test") {
            continue;
        }
        let whole_file = masked[start..].starts_with("#!");
        spans.push((start, if whole_file { masked.len() } else { item_end(masked, close + 1) }));
    }
    spans
}

/// Returns the end of the item that begins at `start`, after its first attribute.
fn item_end(masked: &str, start: usize) -> usize {
    const ITEMS: [&str; 13] = [
        "pub",
        "mod",
        "fn",
        "use",
        "impl",
        "struct",
        "enum",
        "trait",
        "const",
        "static",
        "type",
        "macro_rules",
        "extern",
    ];
    let mut rest = masked[start..].trim_start();
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute.split_once(']').map_or("", |(_, after)| after).trim_start();
    }
    let word_length = rest.bytes().take_while(|&byte| is_name_byte(byte)).count();
    let is_item = ITEMS.contains(&&rest[..word_length]) || &rest[..word_length] == "let";
    let from = masked.len() - rest.len();
    let mut depth = 0_i32;
    for (offset, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' => return closing_brace(masked.as_bytes(), from + offset).unwrap_or(masked.len()),
            b';' if depth == 0 => return from + offset,
            b',' if depth == 0 && !is_item => return from + offset,
            b'}' => return from + offset.saturating_sub(1),
            _ => {}
        }
    }
    masked.len()
}

#[cfg(test)]
mod tests;
