//! Allowed edges between the modules of a crate that is one program with several parts, and the
//! crates that each part may not use. A part that needs more than its row says is in the wrong
//! place.

use std::path::Path;

use super::{Findings, RustFile};
use crate::rust_source::has_word;

/// Folder of the crate whose parts are kept apart.
const CRATE: &str = "crates/daemon/src/";

/// A part: a module of the crate's root, the parts it may use, and the crates it may not name.
struct Part {
    name: &'static str,
    may_use: &'static [&'static str],
    without: &'static [&'static str],
}

const fn part(
    name: &'static str,
    may_use: &'static [&'static str],
    without: &'static [&'static str],
) -> Part {
    Part { name, may_use, without }
}

/// Keys and certificates.
const TLS: [&str; 3] = ["rcgen", "rustls", "x509_parser"];

/// The parts, from the bottom up. Production code only: tests may use any part.
const PARTS: &[Part] = &[
    part("sys", &[], &["sluice_switch", "sluice_control", "rcgen", "rustls", "x509_parser"]),
    part("ipc", &["sys"], &["sluice_switch", "sluice_control", "rcgen", "rustls", "x509_parser"]),
    part(
        "client",
        &["sys", "ipc"],
        &[
            "sluice_switch",
            "sluice_control",
            "sluice_host",
            "sluice_ports",
            "rcgen",
            "rustls",
            "x509_parser",
        ],
    ),
    part("config", &["sys"], &TLS),
    part("registry", &[], &["sluice_switch", "sluice_control", "rcgen", "rustls", "x509_parser"]),
    part("data", &["sys", "ipc", "config", "registry"], &TLS),
    part("fabric", &["sys", "ipc", "config", "registry"], &["sluice_switch", "sluice_host"]),
    part(
        "control",
        &["sys", "ipc", "config", "fabric"],
        &["sluice_switch", "sluice_host", "sluice_ports", "sluice_placement"],
    ),
    part("check", &["config", "fabric"], &[]),
    part("lib", &["check"], &[]),
];

pub(super) fn check(files: &[RustFile]) -> Findings {
    let mut problems = Vec::new();
    let mut edges = std::collections::BTreeSet::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        let Some(name) = part_of(&file.path) else { continue };
        let Some(part) = PARTS.iter().find(|part| part.name == name) else {
            problems.push(format!(
                "{}: `{name}` is no part in the table of xtask/src/tidy/modules.rs: move the \
                 module into a part, or add one with what it may use",
                file.path.display()
            ));
            continue;
        };
        for (number, line) in file.source.production_lines() {
            let at = format!("{}:{number}", file.path.display());
            for to in used_parts(line).filter(|to| *to != part.name) {
                edges.insert((part.name, to.to_owned()));
                if is_part(to) && !part.may_use.contains(&to) {
                    problems.push(format!(
                        "{at}: `{}` uses `{to}`; it may use {:?}: move the code to the part it \
                         belongs to, or pass the value in",
                        part.name, part.may_use
                    ));
                }
            }
            if let Some(form) = hidden_form(&file.path, line) {
                problems.push(format!(
                    "{at}: `{form}` hides which part is meant: write `use crate::PART::…;`"
                ));
            }
            for name in part.without.iter().filter(|name| has_word(line, name)) {
                problems.push(format!(
                    "{at}: `{}` names the crate `{name}`, which it may not: move the code to a \
                     part that may",
                    part.name
                ));
            }
        }
    }
    let note = format!("{} parts of {CRATE}, {} edges", PARTS.len(), edges.len());
    Findings { problems, note }
}

/// Returns the part that a file of the crate belongs to.
fn part_of(path: &Path) -> Option<String> {
    let inside = path.strip_prefix(CRATE).ok()?;
    let first = inside.components().next()?.as_os_str().to_str()?;
    Some(first.strip_suffix(".rs").unwrap_or(first).to_owned())
}

/// Returns a form of a path that this check cannot follow: a group of parts, or `super` in a file
/// of the crate's root.
fn hidden_form(path: &Path, line: &str) -> Option<&'static str> {
    let is_root = path.strip_prefix(CRATE).is_ok_and(|inside| inside.components().count() == 1);
    if line.contains("crate::{") {
        Some("crate::{")
    } else if is_root && line.contains("super::") {
        Some("super::")
    } else {
        None
    }
}

fn is_part(name: &str) -> bool {
    PARTS.iter().any(|part| part.name == name)
}

/// Returns the modules of the crate's root that a line names.
fn used_parts(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("crate::").skip(1);
    after.filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::RustSource;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let file =
            RustFile { path: path.into(), text: text.to_owned(), source: RustSource::new(text) };
        check(&[file]).problems
    }

    #[test]
    fn part_uses_listed_parts_only() {
        let text = "use crate::sys::log::say;\nuse crate::ipc::protocol;\n";
        assert!(problems("crates/daemon/src/client/show.rs", text).is_empty());
        let found = problems("crates/daemon/src/client/show.rs", "use crate::data::look;\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`client` uses `data`"), "{found:?}");
        let found =
            problems("crates/daemon/src/control.rs", "fn f() { sluice_ports::tap::x(); }\n");
        assert!(found[0].contains("names the crate `sluice_ports`"), "{found:?}");
        assert!(problems("crates/daemon/src/other.rs", "")[0].contains("no part"));
        let grouped = "use crate::{data, sys};\n";
        assert!(problems("crates/daemon/src/client/show.rs", grouped)[0].contains("hides"));
        assert!(problems("crates/daemon/src/client.rs", "use super::data;\n")[0].contains("hides"));
        assert!(problems("crates/daemon/src/client/show.rs", "use super::Row;\n").is_empty());
    }

    #[test]
    fn tests_and_other_crates_may_use_all() {
        assert!(
            problems("crates/daemon/src/client/show/tests.rs", "use crate::data::x;").is_empty()
        );
        assert!(problems("crates/switch/src/lib.rs", "use crate::control::x;").is_empty());
        let text = "#[cfg(test)]\nmod tests {\n    use crate::data::x;\n}\n";
        assert!(problems("crates/daemon/src/client/show.rs", text).is_empty());
    }

    #[test]
    fn names_are_whole() {
        assert_eq!(used_parts("crate::data::x, crate::sys;").collect::<Vec<_>>(), ["data", "sys"]);
        let data = "crates/daemon/src/data.rs";
        assert!(problems(data, "use rustls::x;\n")[0].contains("`rustls`"));
        assert!(problems(data, "use rustls as keys;\n")[0].contains("`rustls`"));
        assert!(problems(data, "use my_rustls::x; // rustls\n").is_empty());
    }
}
