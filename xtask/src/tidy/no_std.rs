//! The pure crates cannot name a clock, a socket, a thread or the machine's randomness: they are
//! `no_std`. Two proofs: their source names `std` nowhere outside of tests, and they compile for a
//! machine without `std`, if that target is installed and their dependencies do, too.

use std::path::Path;

use anyhow::Result;

use super::{Findings, PURE_CRATES, RustFile};
use crate::rust_source::word_positions;
use crate::workspace;

/// Pure crates whose source alone is checked: `raft`, the engine of control's log, needs `std`.
const WITH_STD: [&str; 1] = ["control"];

/// A target without an operating system.
const BARE_TARGET: &str = "x86_64-unknown-none";

pub(super) fn check(files: &[RustFile]) -> Result<Findings> {
    let mut problems = Vec::new();
    for name in PURE_CRATES {
        let folder = Path::new("crates").join(name).join("src");
        let root = folder.join("lib.rs");
        match files.iter().find(|file| file.path == root) {
            Some(file) => problems.extend(missing_attributes(file)),
            None => problems.push(format!("{} is missing", root.display())),
        }
        let sources = files.iter().filter(|file| file.path.starts_with(&folder));
        problems.extend(sources.filter(|file| !file.is_test()).flat_map(names_std));
    }
    let note = if !problems.is_empty() {
        "their source checked, nothing compiled".to_owned()
    } else if bare_target_is_installed()? {
        problems.extend(compile());
        format!("their source checked, compiled for {BARE_TARGET}")
    } else {
        format!(
            "their source checked, NOT compiled for {BARE_TARGET} (`rustup target add \
             {BARE_TARGET}` makes this check complete)"
        )
    };
    Ok(Findings { problems, note: format!("{}: {note}", PURE_CRATES.join(", ")) })
}

fn missing_attributes(file: &RustFile) -> Vec<String> {
    let has = |attribute: &str| file.source.lines().any(|(_, line)| line.trim() == attribute);
    ["#![no_std]", "#![forbid(unsafe_code)]"]
        .into_iter()
        .filter(|attribute| !has(attribute))
        .map(|attribute| format!("{}: add `{attribute}`", file.path.display()))
        .collect()
}

fn names_std(file: &RustFile) -> Vec<String> {
    let names = |line: &str| {
        word_positions(line, "std").any(|at| {
            line[at + 3..].trim_start().starts_with("::")
                || line[..at].trim_end().ends_with("crate")
        })
    };
    file.source
        .production_lines()
        .filter(|(_, line)| names(line))
        .map(|(number, _)| {
            format!(
                "{}:{number}: names `std`: use `core` or `alloc`; a clock, a seed or a file is an \
                 argument, given by a crate above",
                file.path.display()
            )
        })
        .collect()
}

fn bare_target_is_installed() -> Result<bool> {
    let mut rustc = std::process::Command::new("rustc");
    let sysroot = workspace::output(rustc.args(["--print", "sysroot"]))?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(BARE_TARGET).join("lib").is_dir())
}

fn compile() -> Option<String> {
    let mut cargo = workspace::cargo();
    cargo.args(["check", "--quiet", "--target", BARE_TARGET]);
    for name in PURE_CRATES.into_iter().filter(|name| !WITH_STD.contains(name)) {
        cargo.arg("--package").arg(format!("sluice-{name}"));
    }
    let failed = workspace::output(&mut cargo).err()?;
    Some(format!("a pure crate does not compile without `std`: {failed:#}"))
}

#[cfg(test)]
mod tests;
