//! Files that must exist in every crate so that the compiler's and clippy's rules apply there.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Findings, PURE_CRATES};
use crate::workspace;

/// The clippy rules of the pure crates: no ambient clock, randomness, thread or environment.
/// Clippy takes the nearest `clippy.toml` above a crate's manifest, so each pure crate links here.
const PURE_RULES: &str = ".config/clippy-pure.toml";

pub(super) fn check(files: &[PathBuf]) -> Result<Findings> {
    let mut problems = Vec::new();
    let rules = workspace::read(Path::new(PURE_RULES))?;
    for name in PURE_CRATES {
        let path = Path::new("crates").join(name).join("clippy.toml");
        if workspace::read(&path).ok().as_deref() != Some(&rules) {
            let path = path.display();
            problems.push(format!(
                "{path} is not {PURE_RULES}: run `ln -sf ../../{PURE_RULES} {path}`"
            ));
        }
    }
    let is_manifest = |path: &Path| path.file_name().is_some_and(|name| name == "Cargo.toml");
    let is_member = |path: &Path| path.starts_with("crates") || path.starts_with("xtask");
    let manifests = || files.iter().filter(|path| is_manifest(path) && is_member(path));
    for path in manifests() {
        if !takes_workspace_lints(&workspace::read(path)?) {
            let path = path.display();
            problems.push(format!("{path}: add `[lints]` with `workspace = true`"));
        }
    }
    Ok(Findings { problems, note: format!("{} manifests", manifests().count()) })
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    lines.next() == Some("workspace = true")
}

#[cfg(test)]
mod tests;
