use std::path::PathBuf;

use super::*;
use crate::rust_source::RustSource;

fn file(path: &str, text: &str) -> RustFile {
    RustFile { path: PathBuf::from(path), text: text.to_owned(), source: RustSource::new(text) }
}

#[test]
fn sentences_of_doc_comments_are_counted() {
    let text = "//! Page. Who reads it?\n//!\n//! ```text\n//! What is code\n//! ```\n\
                /// Reads clause 802.1Q of\n/// the bridge: How many.\n// What is no doc.\n";
    assert_eq!(
        paragraphs(text),
        [
            (1, "Page. Who reads it?".to_owned()),
            (6, "Reads clause 802.1Q of the bridge: How many.".to_owned())
        ]
    );
    let all: Vec<String> = paragraphs(text).into_iter().map(|(_, text)| text).collect();
    let all: Vec<&str> = all.iter().flat_map(|paragraph| sentences(paragraph)).collect();
    assert_eq!(all.iter().filter(|sentence| opens_badly(sentence)).count(), 2);
}

#[test]
fn prose_clause_openings_reported_above_crate_limit() {
    let doc = |bad: usize, good: usize| {
        let lines = std::iter::repeat_n("/// Who waits.\n\n", bad);
        lines.chain(std::iter::repeat_n("/// Waits.\n\n", good)).collect::<String>()
    };
    let check = |bad, good| check(&[file("crates/a/src/b.rs", &doc(bad, good))]).problems.len();
    assert_eq!((check(3, 97), check(4, 96)), (0, 1));
}

#[test]
fn retired_words_reported_in_prose_not_code() {
    assert_eq!(retired("a.rs", "// A frame that was lent.\n").len(), 1);
    assert_eq!(retired("a.rs", "// See `lent`.\nlet lent = 1;\n// Silent.\n"), [""; 0]);
}

#[test]
fn words_of_an_opening_are_whole() {
    assert!(opens_badly("Whether it is so."));
    assert!(!opens_badly("However, it is so.") && !opens_badly("When it is so."));
}
