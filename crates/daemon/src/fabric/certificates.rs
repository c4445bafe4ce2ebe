//! Certificates for the hosts of a fabric: output of `sluice fabric cert`.
//!
//! ```text
//!   DIR/ca.key          signs hosts; stays with the operator of the fabric
//!   DIR/ca.pem          trusted by all hosts
//!   DIR/HOST/host.key   for one host alone
//!   DIR/HOST/host.pem   certifies that the key is that of HOST
//!   DIR/HOST/ca.pem     a copy, so that the host needs only this folder
//! ```
//!
//! An existing authority is used again, so that hosts can be added one at a time. Keys are readable
//! by their owner alone, and no file of an existing host is replaced unless asked for.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use rcgen::{Issuer, KeyPair};

use super::identity::{AUTHORITY, CERTIFICATE, KEY};
use crate::enroll::AUTHORITY_KEY;
use crate::enroll::profile::{self, DAYS_MAX};

/// Certificates to make.
#[derive(Clone, Debug)]
pub struct CertificateRequest<'a> {
    /// Folder of the certificates.
    pub folder: &'a Path,
    /// Hosts, by the names in their configurations.
    pub hosts: &'a [String],
    /// Validity in days; negative: expired so many days ago.
    pub days: i32,
    /// True if existing certificates of hosts are replaced.
    pub replace: bool,
}

/// Makes the certificates, and the authority if there is none, and returns the folder of each host.
///
/// # Errors
/// A name that no certificate can carry, a host that has one, or a file that cannot be written.
pub fn make(wanted: &CertificateRequest<'_>) -> anyhow::Result<Vec<PathBuf>> {
    let limit = i32::try_from(DAYS_MAX).unwrap_or(i32::MAX);
    ensure!(wanted.days.abs() <= limit, "--days: {DAYS_MAX} at most");
    for name in wanted.hosts {
        ensure!(
            profile::is_name(name),
            "`{name}` cannot stand in a certificate: use letters, digits, `-` and `.`"
        );
        let folder = wanted.folder.join(name);
        if folder.join(CERTIFICATE).exists() && !wanted.replace {
            bail!("{} has a certificate; `--replace` makes a new one", folder.display());
        }
    }
    let today = today();
    let (issuer, authority) = authority(wanted.folder, today)?;
    let mut folders = Vec::with_capacity(wanted.hosts.len());
    for name in wanted.hosts {
        let folder = wanted.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let key = KeyPair::generate()?;
        let params = profile::host(name, today, wanted.days)?;
        let certificate = params.signed_by(&key, &issuer)?;
        write(&folder.join(KEY), &key.serialize_pem(), 0o600)?;
        write(&folder.join(CERTIFICATE), &certificate.pem(), 0o644)?;
        write(&folder.join(AUTHORITY), &authority, 0o644)?;
        folders.push(folder);
    }
    Ok(folders)
}

/// Loads or makes the authority of a folder, and returns it with its certificate.
fn authority(folder: &Path, today: i64) -> anyhow::Result<(Issuer<'static, KeyPair>, String)> {
    let (key_path, path) = (folder.join(AUTHORITY_KEY), folder.join(AUTHORITY));
    let params = profile::authority(today);
    if key_path.exists() {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let key = KeyPair::from_pem(&read(&key_path)?)
            .with_context(|| format!("{} is no key", key_path.display()))?;
        return Ok((Issuer::new(params, key), read(&path)?));
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    write(&key_path, &key.serialize_pem(), 0o600)?;
    write(&path, &pem, 0o644)?;
    Ok((Issuer::new(params, key), pem))
}

/// Returns the days since 1970.
fn today() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs() / 86_400).unwrap_or(0)
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let next = path.with_extension("next");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let written = options.open(&next).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written
        .and_then(|()| fs::rename(&next, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
