//! Source of a host's configuration: a file that says everything, or a fabric that was made by
//! command together with a file that says what is the host's own.

use std::path::{Path, PathBuf};

use sluice_api::config::{HttpApi, LocalConfig};

use crate::config::Plan;
use crate::config::member::{HostFile, local_default};

/// Source of a host's configuration.
#[derive(Clone, Debug)]
pub(super) enum Source<'a> {
    /// A file that says everything.
    File(&'a Path),
    /// A fabric, and what is the host's own, by its file if it has one.
    Fabric(Box<LocalConfig>, Option<PathBuf>),
}

impl<'a> Source<'a> {
    /// Reads the file, if there is one. Without a name, the host has that of the machine.
    ///
    /// # Errors
    /// If the file cannot be read, or says what the fabric says.
    pub(super) fn read(file: Option<&'a Path>, name: Option<&str>) -> anyhow::Result<Self> {
        let Some(path) = file else {
            let own = match name {
                Some(name) => name.to_owned(),
                None => machine()?,
            };
            return Ok(Self::Fabric(Box::new(local_default(&own)), None));
        };
        match HostFile::open(path).map_err(anyhow::Error::msg)? {
            HostFile::Whole => Ok(Self::File(path)),
            HostFile::Local(mut local) => {
                if let Some(name) = name {
                    name.clone_into(&mut local.host.name);
                }
                Ok(Self::Fabric(local, Some(std::path::absolute(path)?)))
            }
        }
    }

    /// Returns the HTTP interface; `whole` is the plan of a file that says everything.
    pub(super) fn api(&self, whole: Option<&Plan>) -> HttpApi {
        match (self, whole) {
            (Self::Fabric(local, _), None) => local.api.clone(),
            (_, plan) => plan.map(|plan| plan.config.api.clone()).unwrap_or_default(),
        }
    }
}

/// Returns the name of this machine, up to its first dot.
fn machine() -> anyhow::Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default();
    anyhow::ensure!(!first.is_empty(), "this machine has no name; say `--name`");
    Ok(first.to_owned())
}
