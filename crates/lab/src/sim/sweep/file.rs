//! The file of a sweep's results: a line of JSON per cell.
//!
//! A line is written whole and flushed when its cell is done. A process that is killed may leave an
//! incomplete last line: it is discarded, and its cell runs again. A cell that broke a promise runs
//! again, too. Lines of another base or of other values are discarded. When all cells are there the
//! lines are sorted, in a new file that atomically replaces the old one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sluice_api::results::Row;

use super::grid::Cell;

/// A cell that is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) cell: usize,
    pub(super) parameters: BTreeMap<String, serde_json::Value>,
    pub(super) digest: String,
    pub(super) broken: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// The lines, in memory and in the file.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: File,
    lines: BTreeMap<usize, Line>,
}

impl Lines {
    /// Opens the file and keeps the lines that belong to these cells.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub(super) fn open(path: &Path, cells: &[Cell]) -> anyhow::Result<Self> {
        let old = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let whole = old.split_inclusive(|&byte| byte == b'\n').filter(|l| l.ends_with(b"\n"));
        let known = whole.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let mut lines = BTreeMap::new();
        for line in known.filter(|line| line.broken.is_empty()) {
            let same = cells.iter().find(|cell| cell.digest == line.digest);
            if let Some(cell) = same {
                // The grid may have grown: the same scenario may have another number now.
                let line = Line { cell: cell.number, parameters: cell.parameters.clone(), ..line };
                lines.insert(cell.number, line);
            }
        }
        let file = write(path, lines.values())?;
        Ok(Self { path: path.to_owned(), file, lines })
    }

    /// Returns true if a cell is done.
    pub(super) fn has(&self, cell: &Cell) -> bool {
        self.lines.contains_key(&cell.number)
    }

    /// Appends the line of one more cell.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn append(&mut self, line: Line) -> anyhow::Result<()> {
        let text = serde_json::to_string(&line)? + "\n";
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.flush())
            .with_context(|| format!("writing {}", self.path.display()))?;
        self.lines.insert(line.cell, line);
        Ok(())
    }

    /// Sorts the file. Returns all lines in order.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn finish(self) -> anyhow::Result<Vec<Line>> {
        write(&self.path, self.lines.values())?;
        Ok(self.lines.into_values().collect())
    }
}

/// Writes these lines to a new file that replaces the old one. Returns the file, open at its end.
fn write<'a>(path: &Path, lines: impl Iterator<Item = &'a Line>) -> anyhow::Result<File> {
    let fresh = path.with_extension("jsonl.new");
    let make = || {
        let mut file = File::create(&fresh)?;
        for line in lines {
            file.write_all((serde_json::to_string(line)? + "\n").as_bytes())?;
        }
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        anyhow::Ok(file)
    };
    make().with_context(|| format!("writing {}", path.display()))
}
