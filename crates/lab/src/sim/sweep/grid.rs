//! The file of a sweep: a base scenario, and lists of values for some of its keys.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::sim::experiment::{Experiment, Overrides};
use crate::sim::scenario::{Any, text_of};

/// Largest number of cells of a sweep.
const CELLS_MAX: usize = 100_000;

/// The file of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grid {
    /// A scenario's name, or its file, relative to the folder of this one.
    base: String,
    /// Values by key, `table.key`. Every combination is a cell; the last key changes fastest.
    grid: BTreeMap<String, Vec<toml::Value>>,
    /// Statements of a publication about the same cells, to be shown beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) says: Option<Says>,
    /// Text of the base.
    #[serde(skip)]
    text: String,
}

/// Statements of a publication, in our words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Says {
    /// The publication, and the place in it.
    pub(super) source: String,
    /// Its statements.
    pub(super) statements: Vec<String>,
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) number: usize,
    pub(super) parameters: BTreeMap<String, serde_json::Value>,
    /// Text of the scenario.
    pub(super) text: String,
    /// Digest of the scenario's text.
    pub(super) digest: String,
}

/// Formats parameters for people.
pub(super) fn words(parameters: &BTreeMap<String, serde_json::Value>) -> String {
    let pairs: Vec<String> =
        parameters.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    pairs.join(", ")
}

/// Formats parameters for a chart: values only.
pub(super) fn short(parameters: &BTreeMap<String, serde_json::Value>) -> String {
    parameters.values().map(word).collect::<Vec<_>>().join(", ")
}

/// Formats a value in few words: for a list its values.
pub(super) fn word(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

impl Grid {
    /// Reads the file of a sweep.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is no sweep, or its base is no scenario.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let read = || {
            let mut grid: Self = toml::from_str(&text)?;
            let beside = path.parent().map(|folder| folder.join(&grid.base));
            let name = beside.filter(|file| file.is_file());
            grid.text = text_of(name.as_ref().and_then(|file| file.to_str()).unwrap_or(&grid.base))
                .context("base")?;
            anyhow::Ok(grid)
        };
        read().with_context(|| format!("sweep {}", path.display()))
    }

    /// Returns every combination, each a scenario that can be simulated.
    ///
    /// # Errors
    ///
    /// A key has no values, or a combination is no scenario.
    pub(super) fn cells(&self) -> anyhow::Result<Vec<Cell>> {
        for (key, values) in &self.grid {
            ensure!(!values.is_empty(), "grid.\"{key}\": a list with one value at least");
        }
        let count = self.grid.values().fold(1_usize, |n, values| n.saturating_mul(values.len()));
        ensure!(count <= CELLS_MAX, "grid: {count} cells; {CELLS_MAX} at most");
        (0..count).map(|number| self.cell(number)).collect()
    }

    fn cell(&self, number: usize) -> anyhow::Result<Cell> {
        let mut table: toml::Table = toml::from_str(&self.text).context("base")?;
        let mut parameters = BTreeMap::new();
        let mut rest = number;
        for (key, values) in self.grid.iter().rev() {
            let value = &values[rest % values.len()];
            rest /= values.len();
            set(&mut table, key, value)?;
            parameters.insert(key.clone(), serde_json::to_value(value)?);
        }
        let text = toml::to_string(&table)?;
        let cell = Cell { number, parameters, digest: digest(&text), text };
        // All cells are checked before the first one runs.
        Any::parse(&cell.text)
            .and_then(|scenario| Experiment::new(scenario, &Overrides::default()))
            .with_context(|| format!("cell {number} ({})", words(&cell.parameters)))?;
        Ok(cell)
    }
}

/// Sets `table.key` of a scenario, or a whole table.
fn set(table: &mut toml::Table, key: &str, value: &toml::Value) -> anyhow::Result<()> {
    let mut at = table;
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().unwrap_or(key);
    ensure!(
        !parts.is_empty() || value.is_table(),
        "grid.\"{key}\": a key has the form \"table.key\", or names a table and has tables as \
         values"
    );
    for part in parts {
        let entry = at.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        match entry {
            toml::Value::Table(inner) => at = inner,
            _ => bail!("grid.\"{key}\": {part} is no table of the base scenario"),
        }
    }
    at.insert(last.to_owned(), value.clone());
    Ok(())
}

/// Returns the 64-bit FNV-1a hash of a text: enough to tell the cells of a sweep apart.
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
