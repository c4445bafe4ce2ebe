//! Digests of everything that a verdict depends on.
//!
//! - `near`: the patch with its command, the files that it changes, the sources of the test;
//! - `whole`: that, and all that is compiled or read: every file of the packages that the test is
//!   built from, files outside of packages that these name, what the lock file and the manifest of
//!   the workspace say about what they are built from (`outside`), compiler.
//!
//! A fault whose `whole` is as recorded has the recorded verdict. One whose `near` differs is
//! touched: the change is about this fault. Git's history plays no part, so a fresh clone judges as
//! a developer's checkout does. Comments decide nothing, and neither does the context of a patch:
//! prose can be mended without a proof of every fault near it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::fault::{Fault, Target};
use crate::rust_source;
use crate::workspace::{self, Dependency, Metadata};

mod outside;

use outside::Outside;

/// Raise this when faults are judged by other rules, so that no older verdict counts.
const RULES: u32 = 3;

/// Settings outside of packages that decide how every package is built.
const COMMON: &str = ".cargo";

/// FNV-1a of 128 bits: tells contents apart that differ by accident, not by intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest(u128);

impl Digest {
    pub(super) const EMPTY: Self = Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);

    /// Adds `bytes` and an end mark, so that no byte moves from one part to the next unseen.
    #[must_use]
    pub(super) fn and(self, bytes: &[u8]) -> Self {
        let step = |hash: u128, byte: u8| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        };
        let hash = bytes.iter().fold(self.0, |hash, &byte| step(hash, byte));
        Self(bytes.len().to_le_bytes().into_iter().fold(hash, step))
    }

    /// The upper half, which every bit of the input reaches.
    #[must_use]
    pub(super) fn short(self) -> u64 {
        u64::try_from(self.0 >> 64).expect("64 bits are left")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.short())
    }
}

/// Basis of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Evidence {
    pub(super) near: u64,
    pub(super) whole: u64,
}

/// A member of the workspace.
#[derive(Debug, Default)]
struct Member {
    folder: PathBuf,
    /// Members that its library is built from.
    normal: Vec<String>,
    /// Members that only its tests are built from.
    dev: Vec<String>,
    /// Packages of others that its library is built from.
    normal_outside: Vec<String>,
    /// Packages of others that only its tests are built from.
    dev_outside: Vec<String>,
}

/// All files of the work tree, and which package needs which.
pub(super) struct Sources {
    texts: BTreeMap<PathBuf, Vec<u8>>,
    digests: BTreeMap<PathBuf, Digest>,
    /// For each Rust source, the paths from the root that it names.
    named: BTreeMap<PathBuf, Vec<PathBuf>>,
    /// Digests of all that tests of a package are built from, or read.
    wholes: RefCell<BTreeMap<String, Digest>>,
    members: BTreeMap<String, Member>,
    outside: Outside,
    compiler: String,
}

impl Sources {
    /// Reads the work tree.
    pub(super) fn read(metadata: &Metadata) -> Result<Self> {
        let mut texts = BTreeMap::new();
        for path in workspace::files()? {
            let full = workspace::root().join(&path);
            let text = std::fs::read(&full).with_context(|| format!("cannot read {full:?}"))?;
            texts.insert(path, text);
        }
        let compiler = workspace::output(std::process::Command::new("rustc").arg("-vV"))?;
        Self::new(texts, members(metadata), compiler)
    }

    fn new(
        texts: BTreeMap<PathBuf, Vec<u8>>,
        members: BTreeMap<String, Member>,
        compiler: String,
    ) -> Result<Self> {
        let outside = Outside::read(&texts)?;
        let (mut digests, mut named) = (BTreeMap::new(), BTreeMap::new());
        for (path, text) in &texts {
            let essence = essence(path, text);
            digests.insert(path.clone(), Digest::EMPTY.and(&essence));
            if path.extension().is_some_and(|extension| extension == "rs") {
                let paths = named_outside(&String::from_utf8_lossy(&essence));
                named.insert(path.clone(), paths);
            }
        }
        let wholes = RefCell::default();
        Ok(Self { texts, digests, named, wholes, members, outside, compiler })
    }

    /// Digest of all that is in the work tree but the record of verdicts.
    pub(super) fn all(&self) -> Digest {
        let record = Path::new(super::record::FILE);
        self.of(self.digests.keys().filter(|path| *path != record))
    }

    /// Returns the basis of the verdict about this fault.
    pub(super) fn evidence(&self, fault: &Fault) -> Evidence {
        let near = self.of(self.near(fault));
        let command = fault.test.to_string();
        let package = &fault.test.package;
        let whole = self.whole_of(package).and(self.compiler.as_bytes());
        let whole = whole.and(&RULES.to_le_bytes()).and(command.as_bytes());
        Evidence { near: near.short(), whole: whole.and(&near.short().to_le_bytes()).short() }
    }

    /// The patch, the files that it changes, and those that the test is written in.
    fn near<'a>(&'a self, fault: &'a Fault) -> BTreeSet<&'a PathBuf> {
        let is_near = |path: &&PathBuf| **path == fault.path || fault.files.contains(*path);
        let mut files: BTreeSet<&PathBuf> = self.texts.keys().filter(is_near).collect();
        files.extend(self.test_sources(fault));
        files
    }

    /// Where the test is written. All sources of its package if no file has a test of that name.
    fn test_sources(&self, fault: &Fault) -> Vec<&PathBuf> {
        let Some(member) = self.members.get(&fault.test.package) else { return Vec::new() };
        match &fault.test.target {
            Target::Test(name) => self.program_sources(&member.folder.join("tests"), name),
            Target::Lib => {
                let folder = member.folder.join("src");
                let filter = fault.test.rest.first().map_or("", String::as_str);
                self.unit_test_sources(&folder, filter)
            }
        }
    }

    /// Files of the test program `name`, and those that the programs of the folder share.
    fn program_sources(&self, folder: &Path, name: &str) -> Vec<&PathBuf> {
        let is_root = |path: &&PathBuf| path.parent() == Some(folder) || path.ends_with("main.rs");
        let programs: BTreeSet<PathBuf> =
            self.below(folder).filter(is_root).map(|path| top(path, folder)).collect();
        let is_shared_or_own = |path: &&PathBuf| {
            let top = top(path, folder);
            top == Path::new(name) || !programs.contains(&top)
        };
        self.below(folder).filter(is_shared_or_own).collect()
    }

    fn unit_test_sources(&self, folder: &Path, filter: &str) -> Vec<&PathBuf> {
        let has_it = |path: &&PathBuf| {
            let text = String::from_utf8_lossy(&self.texts[*path]);
            text.contains("#[test]") && names_test(path, folder, &text, filter)
        };
        let found: Vec<&PathBuf> = self.below(folder).filter(has_it).collect();
        if found.is_empty() { self.below(folder).collect() } else { found }
    }

    fn below<'a>(&'a self, folder: &Path) -> impl Iterator<Item = &'a PathBuf> + use<'a> {
        let folder = folder.to_owned();
        self.texts.keys().filter(move |path| path.starts_with(&folder))
    }

    fn whole_of(&self, package: &str) -> Digest {
        let of_package = || {
            self.of(self.whole(package))
                .and(self.outside.of(&self.outside_names(package)).as_bytes())
        };
        *self.wholes.borrow_mut().entry(package.to_owned()).or_insert_with(of_package)
    }

    /// All files that tests of the package are built from, or may read.
    fn whole(&self, package: &str) -> BTreeSet<&PathBuf> {
        let folders: Vec<&Path> =
            self.closure(package).iter().map(|name| &*self.members[*name].folder).collect();
        let in_package = |path: &&PathBuf| folders.iter().any(|folder| path.starts_with(folder));
        let mut files: BTreeSet<&PathBuf> = self.texts.keys().filter(in_package).collect();
        let mut outside = BTreeSet::from([PathBuf::from(COMMON)]);
        outside.extend(files.iter().filter_map(|path| self.named.get(*path)).flatten().cloned());
        let is_named = |path: &&PathBuf| outside.iter().any(|outer| path.starts_with(outer));
        files.extend(self.texts.keys().filter(is_named));
        files
    }

    /// The members that tests of `package` are built from.
    fn closure(&self, package: &str) -> BTreeSet<&str> {
        let mut closure = BTreeSet::new();
        let mut line: Vec<&str> = Vec::new();
        if let Some((name, member)) = self.members.get_key_value(package) {
            closure.insert(&**name);
            line.extend(member.normal.iter().chain(&member.dev).map(String::as_str));
        }
        while let Some(name) = line.pop() {
            if let Some(member) = self.members.get(name)
                && closure.insert(name)
            {
                line.extend(member.normal.iter().map(String::as_str));
            }
        }
        closure
    }

    /// Packages of others that tests of `package` are built from at first hand.
    fn outside_names(&self, package: &str) -> BTreeSet<&str> {
        let of_tests = self.members.get(package).map(|member| &member.dev_outside);
        let closure = self.closure(package);
        let of_libraries = closure.iter().map(|name| &self.members[*name].normal_outside);
        of_libraries.chain(of_tests).flatten().map(String::as_str).collect()
    }

    fn of<'a>(&self, files: impl IntoIterator<Item = &'a PathBuf>) -> Digest {
        files.into_iter().fold(Digest::EMPTY, |digest, path| {
            let own = self.digests.get(path).map_or(0, |own| own.0);
            digest.and(path.as_os_str().as_encoded_bytes()).and(&own.to_le_bytes())
        })
    }
}

/// Returns the part of a file that a verdict can rest on: Rust without comments, a patch without
/// context, and any other file as it is.
fn essence<'a>(path: &Path, text: &'a [u8]) -> Cow<'a, [u8]> {
    let (Ok(text), Some(extension)) = (std::str::from_utf8(text), path.extension()) else {
        return Cow::Borrowed(text);
    };
    if extension == "rs" {
        return Cow::Owned(rust_source::without_comments(text).into_bytes());
    }
    if extension != "patch" {
        return Cow::Borrowed(text.as_bytes());
    }
    let is_comment = |line: &str| line[1..].trim_start().starts_with("//");
    let decides = |line: &&str| line.starts_with(['#', '+', '-']) && !is_comment(line);
    let lines = text.lines().filter(decides);
    Cow::Owned(lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes())
}

/// The first part of the path below `folder`, without its extension.
fn top(path: &Path, folder: &Path) -> PathBuf {
    let inner = path.strip_prefix(folder).unwrap_or(path);
    let first = inner.components().next().map_or_else(Default::default, Component::as_os_str);
    Path::new(first).with_extension("")
}

/// The members as cargo knows them.
fn members(metadata: &Metadata) -> BTreeMap<String, Member> {
    let names: BTreeSet<&str> = metadata.packages.iter().map(|package| &*package.name).collect();
    let of_kind = |package: &workspace::Package, dev: bool, inside: bool| {
        let wanted = |dependency: &&Dependency| {
            names.contains(&*dependency.name) == inside
                && (dependency.kind.as_deref() == Some("dev")) == dev
        };
        let wanted = package.dependencies.iter().filter(wanted);
        wanted.map(|dependency| dependency.name.clone()).collect()
    };
    let member = |package: &workspace::Package| Member {
        folder: package.folder().to_owned(),
        normal: of_kind(package, false, true),
        dev: of_kind(package, true, true),
        normal_outside: of_kind(package, false, false),
        dev_outside: of_kind(package, true, false),
    };
    metadata.packages.iter().map(|package| (package.name.clone(), member(package))).collect()
}

/// Returns true if the file `path` below the source folder `src` has a function that the filter of
/// `cargo test` fits. Modules are named after their files; `mod tests` inside of a file is known.
fn names_test(path: &Path, src: &Path, text: &str, filter: &str) -> bool {
    let inner = path.strip_prefix(src).unwrap_or(path).with_extension("");
    let parts = inner.components().filter_map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    let module: Vec<&str> = parts.filter(|&part| part != "mod" && part != "lib").collect();
    let module = module.join("::");
    let functions = text.lines().filter_map(|line| {
        let rest = line.trim_start();
        let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
        Some(&rest[..rest.find(['(', '<'])?])
    });
    functions.into_iter().any(|function| {
        [format!("{module}::{function}"), format!("{module}::tests::{function}")]
            .iter()
            .any(|full| full.contains(filter))
    })
}

/// Paths from the root of the workspace that a source names by `../`: all of them lead there.
fn named_outside(text: &str) -> Vec<PathBuf> {
    let quoted = text.split("../").skip(1);
    let ends = |c: char| c == '"' || c.is_whitespace();
    let path = |rest: &str| rest[..rest.find(ends).unwrap_or(rest.len())].to_owned();
    quoted.map(path).filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests;
