//! The known differences in `docs/bridge-parity.md`: rows with a case in backquotes, its differing
//! observation, the values on the bridge and on Sluice, and the reason.

use std::collections::BTreeMap;
use std::path::Path;

/// A known difference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// True if the difference depends on a race, and may be absent.
    pub(crate) at_times: bool,
}

/// All known differences, by case and observation.
pub(crate) type Known = BTreeMap<(String, String), Row>;

/// Reads all rows of the page.
pub(crate) fn read() -> Known {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bridge-parity.md");
    rows(&std::fs::read_to_string(path).unwrap())
}

pub(crate) fn rows(page: &str) -> Known {
    let mut known = Known::new();
    for line in page.lines() {
        let cells: Vec<_> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let case = cells[0].strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        // The name of a theme ends with a slash.
        let case = case.filter(|case| line.starts_with('|') && !case.ends_with('/'));
        let Some(case) = case else { continue };
        let &[_, of, _, own, reason] = &cells[..] else {
            panic!("{line}: a row has five cells");
        };
        assert!(!reason.is_empty(), "{case} ({of}) has no reason");
        let row = Row { at_times: own.ends_with("at times") };
        assert!(known.insert((case.to_owned(), of.to_owned()), row).is_none(), "{line}: twice");
    }
    known
}

#[test]
fn rows_are_those_with_a_case() {
    let page = "# x\n| case | of |\n|---|---|\n| `arp/x` | answers | 2 | 1 | why |\n\
                | `arp/` | a theme |\n| `arp/y` | heals | 0.0 s | never, at times | why |\n`a/b`";
    let row = |case: &str, of: &str, at_times| ((case.to_owned(), of.to_owned()), Row { at_times });
    let expected = [row("arp/x", "answers", false), row("arp/y", "heals", true)];
    assert_eq!(rows(page), Known::from(expected));
    assert_eq!(rows(""), Known::new());
}

#[test]
#[should_panic(expected = "has no reason")]
fn a_row_without_a_reason_is_refused() {
    rows("| `arp/x` | answers | 2 | 1 | |");
}

#[test]
#[should_panic(expected = "twice")]
fn a_row_that_is_there_twice_is_refused() {
    rows("| `arp/x` | answers | 2 | 1 | why |\n| `arp/x` | answers | 2 | 1 | why |");
}
