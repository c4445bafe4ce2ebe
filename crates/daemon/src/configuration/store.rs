//! What a member keeps on its disk: the records of the commit protocol, and its place in the
//! fabric. One file, `fabric.redb` in the directory of the state, in which every write is whole or
//! absent, and durable when it returns.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sluice_api::config::LocalUnderlay;
use sluice_api::fabric_config::FabricConfig;
use sluice_control::commit::{Record, Store};

/// Records by key.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// Other values, as JSON, by name.
const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");

/// Name of the file.
pub(crate) const FILE: &str = "fabric.redb";

const PLACE: &str = "place";
const BOOTSTRAP: &str = "bootstrap";
const CANDIDATE: &str = "candidate";
const STARTS: &str = "starts";

/// Place of this host in its fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// Name of the fabric.
    pub(crate) fabric: String,
    /// Name of this host.
    pub(crate) name: String,
    /// Number of this host.
    pub(crate) id: u16,
    /// Identity of this disk.
    pub(crate) seat: u64,
    /// True if the fabric began with this host.
    pub(crate) is_founder: bool,
    /// Underlay, unless the host's file has one.
    pub(crate) underlay: LocalUnderlay,
}

/// A text that may become the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    /// Revision that it was made of.
    pub(super) base: u64,
    /// Text of that revision.
    pub(super) from: String,
    /// The text.
    pub(super) text: String,
}

/// The file. After an error of the disk it is opened anew: the library refuses further work on a
/// file that it could not write, and the disk may have room again.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    database: Arc<Mutex<Option<Database>>>,
    path: PathBuf,
}

impl Disk {
    /// Opens the file of a directory; `None` if there is none.
    ///
    /// # Errors
    /// If it is damaged, or cannot be read, with the remedy.
    pub(super) fn open(state_dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = state_dir.join(FILE);
        if !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))? {
            return Ok(None);
        }
        Self::at(path).map(Some)
    }

    /// Opens the file of a directory, and makes it if there is none.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub(super) fn create(state_dir: &Path) -> anyhow::Result<Self> {
        Self::at(state_dir.join(FILE))
    }

    fn at(path: PathBuf) -> anyhow::Result<Self> {
        let disk = Self { database: Arc::default(), path };
        disk.with(|_| Ok(()))?;
        restrict(&disk.path)?;
        Ok(disk)
    }

    /// Works on the open file.
    fn with<T>(&self, work: impl FnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match database.take() {
            Some(open) => open,
            None => Database::create(&self.path).with_context(|| {
                format!(
                    "cannot open {}, which has this host's part of its fabric; if it is damaged, \
                     evict the host at another member (`sluice fabric evict`), move the file away, \
                     and let the host join again",
                    self.path.display()
                )
            })?,
        };
        let done = work(&open)?;
        *database = Some(open);
        Ok(done)
    }

    /// Returns all records, in the order of their keys.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn records(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        self.with(|database| {
            let read = database.begin_read()?;
            let table = match read.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            };
            let mut all = Vec::new();
            for row in table.iter()? {
                all.push(row?.1.value().to_vec());
            }
            Ok(all)
        })
    }

    /// Makes records durable, all or none.
    ///
    /// # Errors
    /// If the disk is full or fails; then nothing has changed.
    pub(super) fn write(&self, records: &[Record]) -> anyhow::Result<()> {
        self.with(|database| {
            let write = database.begin_write()?;
            {
                let mut rows = Rows { table: write.open_table(RECORDS)?, failed: None };
                for record in records {
                    record.store(&mut rows);
                }
                if let Some(error) = rows.failed {
                    return Err(error.into());
                }
            }
            Ok(write.commit()?)
        })
    }

    /// Returns the place of this host in its fabric, if it has one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn place(&self) -> anyhow::Result<Option<Place>> {
        self.value(PLACE)
    }

    /// Keeps the place of this host, with the fabric as it knows it, in one write. From now on it
    /// is a member.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub(super) fn begin(&self, place: &Place, shared: &FabricConfig) -> anyhow::Result<()> {
        self.with(|database| {
            let write = database.begin_write()?;
            {
                let mut table = write.open_table(VALUES)?;
                table.insert(BOOTSTRAP, serde_json::to_vec(shared)?.as_slice())?;
                table.insert(PLACE, serde_json::to_vec(place)?.as_slice())?;
            }
            Ok(write.commit()?)
        })
    }

    /// Returns the fabric as this host knew it when it became a member.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn bootstrap(&self) -> anyhow::Result<Option<FabricConfig>> {
        self.value(BOOTSTRAP)
    }

    /// Returns the candidate, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn candidate(&self) -> anyhow::Result<Option<Candidate>> {
        Ok(self.value::<Option<Candidate>>(CANDIDATE)?.flatten())
    }

    /// Keeps the candidate, or forgets it.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub(super) fn put_candidate(&self, candidate: Option<&Candidate>) -> anyhow::Result<()> {
        self.put(CANDIDATE, &candidate)
    }

    /// Counts this start, and returns its number.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub(super) fn next_start(&self) -> anyhow::Result<u64> {
        let number = self.value::<u64>(STARTS)?.unwrap_or(0) + 1;
        self.put(STARTS, &number)?;
        Ok(number)
    }

    /// Sets the number of this start.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub(super) fn put_start(&self, number: u64) -> anyhow::Result<()> {
        self.put(STARTS, &number)
    }

    fn value<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let bytes = self.with(|database| {
            let read = database.begin_read()?;
            let table = match read.open_table(VALUES) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            Ok(table.get(name)?.map(|value| value.value().to_vec()))
        })?;
        let Some(bytes) = bytes else { return Ok(None) };
        let value = serde_json::from_slice(&bytes);
        value.map(Some).with_context(|| format!("`{name}` of {} is damaged", self.path.display()))
    }

    fn put(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        self.with(|database| {
            let write = database.begin_write()?;
            write.open_table(VALUES)?.insert(name, serde_json::to_vec(value)?.as_slice())?;
            Ok(write.commit()?)
        })
    }
}

/// Only the owner may read it: it has what the fabric's trust rests on.
fn restrict(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot change who may read {}", path.display()))
}

/// A table of records that is being written. The first failure is kept.
struct Rows<'a> {
    table: Table<'a, &'static [u8], &'static [u8]>,
    failed: Option<redb::StorageError>,
}

impl Store for Rows<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        if let Err(error) = self.table.insert(key, value) {
            self.failed.get_or_insert(error);
        }
    }

    fn remove(&mut self, first: &[u8], end: &[u8]) {
        if let Err(error) = self.table.retain_in(first..end, |_, _| false) {
            self.failed.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests;
