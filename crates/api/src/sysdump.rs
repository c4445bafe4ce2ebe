//! Report of `sluice sysdump`.

use serde::{Deserialize, Serialize};

/// An archive for a bug report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Path of the archive.
    pub file: String,
    /// Its size in bytes.
    pub size: u64,
    /// Files in it.
    pub entries: usize,
    /// Things that could not be had, or not whole.
    pub errors: Vec<Missing>,
}

/// A part of the archive that could not be had, or not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Its path in the archive.
    pub entry: String,
    /// The reason.
    pub why: String,
}
