//! Inputs of a package beyond the sources here: its part of the lock file and of the manifest of
//! the workspace. A new dependency of one package changes nothing for the others.
//!
//! Packages of others are told apart by name alone: where the lock file has two versions of one,
//! both count. Features that another member switches on count only where the manifest of the
//! workspace names them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::{Table, Value};

/// The lock file, and the manifest of the workspace.
#[derive(Debug, Default)]
pub(super) struct Outside {
    locked: BTreeMap<String, Vec<Locked>>,
    /// The manifest without what `dependencies` has.
    common: Table,
    /// `workspace.dependencies`.
    dependencies: Table,
}

/// One package of the lock file.
#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
    /// Names, with a version where there are several.
    #[serde(default)]
    dependencies: Vec<String>,
}

#[derive(Default, Deserialize)]
struct LockFile {
    #[serde(default)]
    package: Vec<Locked>,
}

impl Outside {
    /// Reads both files; those that are not there say nothing.
    pub(super) fn read(texts: &BTreeMap<PathBuf, Vec<u8>>) -> Result<Self> {
        let text = |name: &str| {
            let text = texts.get(Path::new(name)).map_or(&[][..], Vec::as_slice);
            std::str::from_utf8(text).with_context(|| format!("{name} is not UTF-8"))
        };
        let mut common: Table = text("Cargo.toml")?.parse().context("cannot read Cargo.toml")?;
        let mut dependencies = Table::new();
        if let Some(Value::Table(workspace)) = common.get_mut("workspace") {
            workspace.remove("members");
            if let Some(Value::Table(all)) = workspace.remove("dependencies") {
                dependencies = all;
            }
        }
        let lock: LockFile =
            toml::from_str(text("Cargo.lock")?).context("cannot read Cargo.lock")?;
        let mut locked: BTreeMap<String, Vec<Locked>> = BTreeMap::new();
        for package in lock.package {
            locked.entry(package.name.clone()).or_default().push(package);
        }
        Ok(Self { locked, common, dependencies })
    }

    /// Everything said about what is built from packages of these `names`.
    pub(super) fn of(&self, names: &BTreeSet<&str>) -> String {
        let mut all = self.common.to_string();
        for name in self.closure(names) {
            if let Some(said) = self.dependencies.get(name) {
                writeln!(all, "{name} = {said}").expect("a string has room");
            }
            for Locked { version, checksum, .. } in self.locked.get(name).into_iter().flatten() {
                writeln!(all, "{name} {version} {checksum:?}").expect("a string has room");
            }
        }
        all
    }

    /// The packages, and all that they are built from.
    fn closure<'a>(&'a self, names: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut closure = names.clone();
        let mut line: Vec<&str> = names.iter().copied().collect();
        while let Some(name) = line.pop() {
            for package in self.locked.get(name).into_iter().flatten() {
                let names = package.dependencies.iter();
                let names = names.filter_map(|named| named.split_whitespace().next());
                line.extend(names.filter(|&name| closure.insert(name)));
            }
        }
        closure
    }
}

#[cfg(test)]
mod tests;
