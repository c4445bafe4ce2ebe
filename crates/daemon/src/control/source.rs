//! Source of a host's configuration: a file that says everything, or a fabric that was made by
//! command together with a file that says what is the host's own.

use std::path::Path;

use anyhow::Context as _;
use sluice_api::config::LocalConfig;

use crate::config::member::{HostFile, local_default};

/// Source of a host's configuration.
#[derive(Clone, Debug)]
pub(super) enum Source<'a> {
    /// A file that says everything.
    File(&'a Path),
    /// A fabric, and what is the host's own.
    Fabric(Box<LocalConfig>),
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
            return Ok(Self::Fabric(Box::new(local_default(&own))));
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            // The reader of a whole file says so.
            Err(_) => return Ok(Self::File(path)),
        };
        let read = HostFile::read(&text).map_err(anyhow::Error::msg);
        match read.with_context(|| path.display().to_string())? {
            HostFile::Whole => Ok(Self::File(path)),
            HostFile::Local(mut local) => {
                anchor(&mut local, path);
                if let Some(name) = name {
                    name.clone_into(&mut local.host.name);
                }
                Ok(Self::Fabric(local))
            }
        }
    }
}

/// Makes relative paths of a file relative to its directory.
fn anchor(local: &mut LocalConfig, file: &Path) {
    let Some(dir) = std::path::absolute(file).ok().and_then(|file| Some(file.parent()?.to_owned()))
    else {
        return;
    };
    let host = [&mut local.host.run_dir, &mut local.host.state_dir];
    let sockets = local.ports.iter_mut().map(|port| &mut port.socket);
    for path in host.into_iter().chain(sockets).filter_map(Option::as_mut) {
        // An absolute path stays as it is.
        if let Some(whole) = dir.join(&*path).to_str() {
            whole.clone_into(path);
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
