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
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::DnsName;
use sluice_api::envelope::civil;

use super::identity::{AUTHORITY, CERTIFICATE, KEY};

/// File of the authority's key.
const AUTHORITY_KEY: &str = "ca.key";
/// Validity of an authority, in days: ten years.
const AUTHORITY_DAYS: u32 = 3_653;
/// Longest validity of a certificate, in days.
const DAYS_MAX: u32 = 36_525;

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
            DnsName::try_from(name.as_str()).is_ok(),
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
        let mut params = CertificateParams::new(vec![name.clone()])?;
        params.distinguished_name = named(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        valid(&mut params, today, wanted.days);
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
    let mut params = CertificateParams::default();
    // The same name each time: keys identify authorities, and an old one can continue to sign.
    params.distinguished_name = named("Sluice fabric");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
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
    valid(&mut params, today, i32::try_from(AUTHORITY_DAYS).unwrap_or(i32::MAX));
    let pem = params.self_signed(&key)?.pem();
    write(&key_path, &key.serialize_pem(), 0o600)?;
    write(&path, &pem, 0o644)?;
    Ok((Issuer::new(params, key), pem))
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Returns the days since 1970.
fn today() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs() / 86_400).unwrap_or(0)
}

/// Sets the validity: from yesterday on, as clocks differ, or from long ago for an expired
/// certificate.
fn valid(params: &mut CertificateParams, today: i64, days: i32) {
    let end = today + i64::from(days);
    let date = |day| {
        let (year, month, day) = civil(day);
        let year = i32::try_from(year).unwrap_or(i32::MAX);
        let small = |n: i64| u8::try_from(n).unwrap_or(1);
        rcgen::date_time_ymd(year, small(month), small(day))
    };
    params.not_before = date(end.min(today) - 1);
    params.not_after = date(end);
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
