use std::path::Path;

use super::*;
use crate::workspace::{self, Dependency};

/// A package of the workspace with the packages below it.
fn package(name: &str, below: &[&str]) -> Package {
    let dependency = |name: &&str| Dependency { name: (*name).to_owned(), kind: None, path: None };
    Package {
        name: name.to_owned(),
        manifest_path: workspace::root().join(name).join("Cargo.toml"),
        dependencies: below.iter().map(dependency).collect(),
        targets: Vec::new(),
    }
}

/// `top` is built from `middle` and from another workspace's package, `middle` from `base`.
fn metadata() -> Metadata {
    Metadata {
        packages: vec![
            package("base", &[]),
            package("middle", &["base"]),
            package("side", &["base"]),
            package("top", &["middle", "base", "elsewhere"]),
        ],
        target_directory: "target".into(),
    }
}

fn fault(name: &str, test: &str, file: &str) -> Fault {
    let text = format!(
        "# fault: x\n# caught by: cargo test -p {test} it\n--- a/{file}\n+++ b/{file}\n\
         @@ -1 +1 @@\n-a\n+b\n"
    );
    super::super::fault::parse(&Path::new("planted").join(name).with_extension("patch"), &text)
        .unwrap()
}

fn names(lines: &[VecDeque<&Fault>]) -> Vec<String> {
    let line = |line: &VecDeque<&Fault>| {
        line.iter().map(|fault| &*fault.name).collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(line).collect()
}

#[test]
fn no_line_needs_what_earlier_fault_changed() {
    let faults = [
        fault("base", "base --lib", "base/a.rs"),
        fault("middle", "middle --test swarm", "middle/a.rs"),
        fault("middle-unit", "middle --lib", "middle/a.rs"),
        fault("top-of-base", "top --lib", "base/a.rs"),
        fault("top-b", "top --lib", "top/b.rs"),
        fault("top-of-middle", "top --lib", "middle/a.rs"),
        fault("top-a", "top --lib", "top/a.rs"),
        fault("side", "side --lib", "side/a.rs"),
    ];
    let all: Vec<&Fault> = faults.iter().collect();
    assert_eq!(
        names(&Depths::new(&metadata()).lines(&all)),
        ["top-a top-b top-of-middle top-of-base", "middle-unit", "middle", "side", "base"]
    );
}

#[test]
fn worker_stays_at_its_line() {
    let faults = ["a", "b", "c", "d", "e"].map(|name| fault(name, "base --lib", "base/a.rs"));
    let [a, b, c, d, e] = &faults;
    let mut lines = Lines::new(vec![[a, b, c, d].into(), [e].into()]);
    let mut at = [None, None];
    let mut take = |worker: usize| lines.next(&mut at[worker]).map(|fault| &*fault.name);
    let taken = [0, 1, 0, 1, 0, 0, 1].map(&mut take);
    let expected = [Some("a"), Some("e"), Some("b"), Some("c"), Some("d"), None, None];
    assert_eq!(taken, expected, "the second helps with the longest line");
    assert!(Lines::new(Vec::new()).next(&mut None).is_none());
}
