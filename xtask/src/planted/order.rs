//! Order in which faults are proved.
//!
//! A copy that had a fault is mended by writing the file anew, and whatever was built from that
//! file is built again as soon as a test needs it. So the tests of a package come before those of
//! the packages that it is built from, and among them the faults of its own code before those of
//! code further down. What a fault has made stale is then of no use to the tests that follow.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use super::fault::Fault;
use crate::workspace::{Metadata, Package};

/// Number of packages of the workspace on the longest way down from each of them.
pub(super) struct Depths(BTreeMap<String, (usize, PathBuf)>);

impl Depths {
    pub(super) fn new(metadata: &Metadata) -> Self {
        let packages: BTreeMap<&str, &Package> =
            metadata.packages.iter().map(|package| (&*package.name, package)).collect();
        let mut known = BTreeMap::new();
        for name in packages.keys() {
            depth(name, &packages, &mut known);
        }
        let with_folder = |package: &Package| {
            (package.name.clone(), (known[&*package.name], package.folder().to_owned()))
        };
        Self(metadata.packages.iter().map(with_folder).collect())
    }

    /// Depth of the package of the fault's test.
    fn of_test(&self, fault: &Fault) -> usize {
        self.0.get(&fault.test.package).map_or(0, |(depth, _)| *depth)
    }

    /// Depth of the lowest package that the fault changes.
    fn of_change(&self, fault: &Fault) -> usize {
        let changes = |folder: &PathBuf| fault.files.iter().any(|file| file.starts_with(folder));
        self.0
            .values()
            .filter(|(_, folder)| changes(folder))
            .map(|(depth, _)| *depth)
            .min()
            .unwrap_or(0)
    }

    /// Sorts faults into lines, one for each test program. Within a line, faults that change the
    /// same files are adjacent, so that these are built once.
    pub(super) fn lines<'a>(&self, faults: &[&'a Fault]) -> Vec<VecDeque<&'a Fault>> {
        let mut sorted = faults.to_vec();
        sorted.sort_by(|a, b| {
            let program = |it: &'a Fault| (&it.test.package, &it.test.target);
            self.of_test(b)
                .cmp(&self.of_test(a))
                .then_with(|| program(a).cmp(&program(b)))
                .then_with(|| self.of_change(b).cmp(&self.of_change(a)))
                .then_with(|| a.files.cmp(&b.files))
        });
        let lines = sorted.chunk_by(|a, b| a.test.same_program(&b.test));
        lines.map(|line| line.iter().copied().collect()).collect()
    }
}

/// The faults that nobody has taken yet, a line for each test program.
pub(super) struct Lines<'a> {
    lines: Vec<VecDeque<&'a Fault>>,
    /// Number of lines that were begun; those behind are untouched.
    begun: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(lines: Vec<VecDeque<&'a Fault>>) -> Self {
        Self { lines, begun: 0 }
    }

    /// Takes the next fault for a worker that is at the line `at`: of this line, of one that nobody
    /// has begun, of the one with the most faults left. Sets `at` to the line taken from.
    pub(super) fn next(&mut self, at: &mut Option<usize>) -> Option<&'a Fault> {
        if let Some(fault) = at.and_then(|at| self.lines.get_mut(at)?.pop_front()) {
            return Some(fault);
        }
        let from = if self.begun < self.lines.len() {
            self.begun += 1;
            self.begun - 1
        } else {
            (0..self.lines.len()).max_by_key(|&line| self.lines[line].len())?
        };
        *at = Some(from);
        self.lines[from].pop_front()
    }
}

/// Depth of the package `name`. Cargo allows circles through tests only, and a library that is on
/// the way already adds nothing.
fn depth<'a>(
    name: &'a str,
    packages: &BTreeMap<&'a str, &'a Package>,
    known: &mut BTreeMap<&'a str, usize>,
) -> usize {
    if let Some(depth) = known.get(name) {
        return *depth;
    }
    let Some(package) = packages.get(name) else { return 0 };
    known.insert(name, 1);
    let below = package.dependencies.iter().map(|below| depth(&below.name, packages, known)).max();
    let depth = 1 + below.unwrap_or(0);
    known.insert(name, depth);
    depth
}

#[cfg(test)]
mod tests;
