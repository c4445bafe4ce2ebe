//! `planted/verdicts.txt`: the faults that were caught, with digests of the content.
//!
//! One line per fault, `NAME NEAR WHOLE`, with the digests of [`Evidence`] in hexadecimal. Git
//! merges it by taking the lines of both sides (`.gitattributes`), so a fault may have several
//! lines; each of them is a verdict. A fault without a line is not proved yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use super::content::Evidence;
use super::fault::Fault;
use crate::workspace::{self, Stamp};

pub(super) const FILE: &str = "planted/verdicts.txt";

const HEAD: &str = "\
# Faults that were caught: name, digest of patch and test, digest of all that is built.
# Written by `cargo xtask planted --record`. Lines may be lost in a merge, never made by hand.
";

/// Verdicts of the past.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record(BTreeMap<String, BTreeSet<Evidence>>);

impl Record {
    /// Reads the file; an empty record if there is none.
    pub(super) fn load() -> Result<Self> {
        if !workspace::root().join(FILE).exists() {
            return Ok(Self::default());
        }
        Self::parse(&workspace::read(Path::new(FILE))?).with_context(|| {
            format!("{FILE}: delete that line, then run `cargo xtask planted --record`")
        })
    }

    fn parse(text: &str) -> Result<Self> {
        let mut record = Self::default();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        for line in lines.filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, near, whole] = *words else { bail!("{line:?} is no verdict") };
            let number = |text| u64::from_str_radix(text, 16);
            let (Ok(near), Ok(whole)) = (number(near), number(whole)) else {
                bail!("{line:?} has no digests")
            };
            record.add(name, Evidence { near, whole });
        }
        Ok(record)
    }

    pub(super) fn add(&mut self, name: &str, evidence: Evidence) {
        self.0.entry(name.to_owned()).or_default().insert(evidence);
    }

    /// Forgets all verdicts about the fault.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Keeps faults of these names only.
    pub(super) fn retain(&mut self, names: &BTreeSet<&str>) {
        self.0.retain(|name, _| names.contains(&**name));
    }

    /// Returns the verdicts about the fault.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = Evidence> + '_ {
        self.0.get(name).into_iter().flatten().copied()
    }

    fn save(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.text()).with_context(|| format!("cannot write {path:?}"))
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (name, verdicts) in &self.0 {
            for Evidence { near, whole } in verdicts {
                writeln!(text, "{name} {near:016x} {whole:016x}").expect("a string has room");
            }
        }
        text
    }
}

/// Writer of the record. Each verdict is written as soon as it is known, so that an early end loses
/// none.
pub(super) struct Keeper {
    record: Mutex<Record>,
    /// File of the record; `None`: nothing is kept.
    file: Option<PathBuf>,
    /// True if the caller asked for the record.
    is_asked: bool,
    evidence: BTreeMap<String, Evidence>,
    /// The work tree that the evidence is about.
    stamp: Stamp,
}

impl Keeper {
    /// Makes a writer that saves all verdicts of `record` and new ones to `file`. If the caller
    /// asked for the record, a change of the work tree during the run is an error.
    pub(super) fn new(
        mut record: Record,
        faults: &[(&Fault, Evidence)],
        stamp: Stamp,
        file: Option<PathBuf>,
        is_asked: bool,
    ) -> Self {
        record.retain(&faults.iter().map(|(fault, _)| &*fault.name).collect());
        let evidence = faults.iter().map(|(fault, evidence)| (fault.name.clone(), *evidence));
        let (record, evidence) = (Mutex::new(record), evidence.collect());
        Self { record, file, is_asked, evidence, stamp }
    }

    /// Replaces the verdicts about the fault.
    pub(super) fn keep(&self, name: &str, is_caught: bool) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if workspace::stamp(Path::new(FILE))? != self.stamp {
            ensure!(!self.is_asked, "the work tree changed meanwhile: {name} is not recorded");
            return Ok(());
        }
        record.forget(name);
        if let Some(evidence) = self.evidence.get(name).filter(|_| is_caught) {
            record.add(name, *evidence);
        }
        record.save(file)
    }
}

#[cfg(test)]
mod tests;
