//! Allowed edges between the modules of a crate that has several parts, and the crates that each
//! part may not use. A part that needs more than its row says is in the wrong place. A row names
//! rows above it only, so that there is no circle.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Findings, RustFile};
use crate::rust_source::has_word;

/// A crate whose parts are kept apart.
struct Parted {
    folder: &'static str,
    /// From the bottom up. Production code only: tests may use any part.
    parts: &'static [Part],
}

const CRATES: [Parted; 2] = [
    Parted { folder: "crates/daemon/src/", parts: DAEMON },
    Parted { folder: "crates/sim/src/", parts: SIM },
];

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

const DAEMON: &[Part] = &[
    part("sys", &[], &["sluice_switch", "sluice_control", "rcgen", "rustls", "x509_parser"]),
    part("ipc", &["sys"], &["sluice_switch", "sluice_control", "rcgen", "rustls", "x509_parser"]),
    part("discovery", &["sys"], &["sluice_switch", "sluice_control", "sluice_host"]),
    part(
        "client",
        &["sys", "ipc", "discovery"],
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
    part("enroll", &["sys"], &["sluice_switch", "sluice_control", "sluice_host"]),
    part("registry", &[], &["sluice_switch", "sluice_control", "rcgen", "rustls", "x509_parser"]),
    part("telemetry", &["sys", "enroll"], &["sluice_switch", "sluice_control"]),
    part("data", &["sys", "ipc", "config", "registry"], &TLS),
    part(
        "fabric",
        &["sys", "ipc", "config", "registry", "enroll", "telemetry"],
        &["sluice_switch", "sluice_host"],
    ),
    part(
        "configuration",
        &["sys", "config", "fabric", "enroll", "discovery", "telemetry"],
        &["sluice_switch", "sluice_host", "sluice_placement"],
    ),
    part(
        "metrics",
        &[],
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
    part(
        "control",
        &[
            "sys",
            "ipc",
            "config",
            "fabric",
            "enroll",
            "discovery",
            "configuration",
            "metrics",
            "telemetry",
        ],
        &["sluice_switch", "sluice_host", "sluice_ports", "sluice_placement"],
    ),
    part("check", &["config", "fabric"], &[]),
    part("doctor", &["sys", "config", "check"], &["sluice_switch", "sluice_control"]),
    part(
        "import",
        &["sys", "client", "config", "configuration"],
        &["sluice_switch", "sluice_control", "sluice_host", "rcgen", "rustls", "x509_parser"],
    ),
    part(
        "sysdump",
        &["sys", "ipc", "doctor"],
        &["sluice_switch", "sluice_control", "sluice_host", "rcgen", "rustls", "x509_parser"],
    ),
    part("lib", &["check", "doctor", "sysdump"], &[]),
];

const SIM: &[Part] = &[
    part("ids", &[], &[]),
    part("slab", &[], &[]),
    part("pages", &[], &[]),
    part("topology", &[], &[]),
    part("tcp", &[], &[]),
    part("events", &[], &[]),
    part("event", &["events", "ids", "topology"], &[]),
    part("net", &["event", "ids", "slab", "topology"], &[]),
    part("packets", &["ids", "tcp"], &[]),
    part("overlay", &["packets", "topology"], &[]),
    part("ledger", &["ids", "packets"], &[]),
    part(
        "world",
        &[
            "event", "events", "ids", "ledger", "net", "overlay", "packets", "slab", "tcp",
            "topology",
        ],
        &[],
    ),
    part("check", &["event", "ledger", "net", "overlay", "topology", "world"], &[]),
    part("workload", &["slab", "tcp", "world"], &[]),
    part("trace", &["ids", "net", "topology", "world"], &[]),
    part("cpu", &["events"], &[]),
    part("lib", &[], &[]),
];

pub(super) fn check(files: &[RustFile]) -> Findings {
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    for parted in &CRATES {
        let mut edges = BTreeSet::new();
        for file in files.iter().filter(|file| !file.is_test()) {
            let Some(inside) = file.path.strip_prefix(parted.folder).ok() else { continue };
            check_file(parted, file, inside, &mut edges, &mut problems);
        }
        notes.push(format!(
            "{} parts of {}, {} edges",
            parted.parts.len(),
            parted.folder,
            edges.len()
        ));
    }
    Findings { problems, note: notes.join("; ") }
}

/// Checks a file of a crate by its path in the crate's folder; adds its edges between parts.
fn check_file(
    parted: &Parted,
    file: &RustFile,
    inside: &Path,
    edges: &mut BTreeSet<(&'static str, &'static str)>,
    problems: &mut Vec<String>,
) {
    let Some(name) = part_of(inside) else { return };
    let Some(part) = parted.find(&name) else {
        problems.push(format!(
            "{}: `{name}` is no part in the table of xtask/src/tidy/modules.rs: move the module \
             into a part, or add one with what it may use",
            file.path.display()
        ));
        return;
    };
    for (number, line) in file.source.production_lines() {
        let at = format!("{}:{number}", file.path.display());
        for to in used_parts(line).filter_map(|to| parted.find(to)) {
            if to.name == part.name {
                continue;
            }
            edges.insert((part.name, to.name));
            if !part.may_use.contains(&to.name) {
                problems.push(format!(
                    "{at}: `{}` uses `{}`; it may use {:?}: move the code to the part it belongs \
                     to, or pass the value in",
                    part.name, to.name, part.may_use
                ));
            }
        }
        if let Some(form) = hidden_form(inside, line) {
            problems.push(format!(
                "{at}: `{form}` hides which part is meant: write `use crate::PART::…;`"
            ));
        }
        for name in part.without.iter().filter(|name| has_word(line, name)) {
            problems.push(format!(
                "{at}: `{}` names the crate `{name}`, which it may not: move the code to a part \
                 that may",
                part.name
            ));
        }
    }
}

impl Parted {
    fn find(&self, name: &str) -> Option<&'static Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

/// Returns the part that a file of the crate belongs to.
fn part_of(inside: &Path) -> Option<String> {
    let first = inside.components().next()?.as_os_str().to_str()?;
    Some(first.strip_suffix(".rs").unwrap_or(first).to_owned())
}

/// Returns a form of a path that this check cannot follow: a group of parts, or as many `super` as
/// lead to the crate's root.
fn hidden_form(inside: &Path, line: &str) -> Option<String> {
    let to_root = "super::".repeat(inside.components().count());
    ["crate::{", &to_root].into_iter().find(|form| line.contains(form)).map(str::to_owned)
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
    fn tables_have_no_circle() {
        for parted in &CRATES {
            for (at, part) in parted.parts.iter().enumerate() {
                let is_above = |name: &&str| parted.parts[..at].iter().any(|p| p.name == *name);
                let wrong: Vec<_> = part.may_use.iter().filter(|name| !is_above(name)).collect();
                assert!(wrong.is_empty(), "{}: {} uses {wrong:?}", parted.folder, part.name);
            }
        }
    }

    #[test]
    fn each_crate_has_its_own_table() {
        let found = problems("crates/sim/src/packets.rs", "use crate::world::Packet;\n");
        assert!(found[0].contains("`packets` uses `world`"), "{found:?}");
        assert!(problems("crates/sim/src/check.rs", "use crate::world::World;\n").is_empty());
        assert!(problems("crates/sim/src/client.rs", "")[0].contains("no part"));
    }

    #[test]
    fn super_up_to_root_is_refused() {
        let text = "use super::super::check::Ledger;\n";
        assert!(problems("crates/sim/src/world/census.rs", text)[0].contains("hides"));
        assert!(problems("crates/sim/src/tcp/control/cubic.rs", text).is_empty());
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
