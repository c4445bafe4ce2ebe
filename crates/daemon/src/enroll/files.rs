//! Credentials on the disk.
//!
//! ```text
//!   STATE_DIR/tls/ca.pem      authorities that are trusted
//!   STATE_DIR/tls/ca.key      key of the authority with which this host signs
//!   STATE_DIR/tls/host.pem    certificate of this host
//!   STATE_DIR/tls/host.key    its key
//!   STATE_DIR/join.key        key of a host whose join has not been answered
//!   STATE_DIR/ca.next         authority that is to follow, with its key
//! ```
//!
//! The files belong together, so the folder is replaced as one: a new folder is written and synced
//! beside it, then the two change places. A crash leaves the old credentials or the new ones. The
//! folder and its files are for their owner alone.
//!
//! The key of a join is on the disk before it is sent: after a crash, or an answer that was lost,
//! the host asks again with the same key and token.

mod next;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::authority::{Authority, AuthorityPem};
use super::credentials::{Credentials, CredentialsError, JoinKey, common_name, split};

/// Authorities that are trusted.
pub(crate) const AUTHORITY: &str = "ca.pem";
/// Key of an authority.
pub(crate) const AUTHORITY_KEY: &str = "ca.key";
/// Certificate of the host.
pub(crate) const CERTIFICATE: &str = "host.pem";
/// Key of the host.
pub(crate) const KEY: &str = "host.key";

/// Beginning of a key in a text with several parts.
const PEM_KEY: &str = "-----BEGIN PRIVATE KEY-----";

const FOLDER: &str = "tls";
const NEXT: &str = "tls.next";
const BEFORE: &str = "tls.before";
const JOIN_KEY: &str = "join.key";

/// Reason why credentials are not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Error of the file system.
    #[error("cannot {what} {}: {error}; is the disk full, or read-only?", .path.display())]
    Io {
        /// The attempt.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The files are no usable credentials.
    #[error("{}: {error}", .path.display())]
    Credentials {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: CredentialsError,
    },
}

/// The files of one host. At most one process writes them.
#[derive(Clone, Debug)]
pub struct Files {
    state_dir: PathBuf,
}

impl Files {
    /// Uses this state directory.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned() }
    }

    /// Returns the files whose folder is `folder`; `None` if those of a fabric made by commands are
    /// not there, or others are.
    pub(crate) fn at(folder: &Path) -> Option<Self> {
        let ours = [AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY];
        let mut there = fs::read_dir(folder).ok()?;
        // The folder is replaced as a whole: what does not belong to it would be lost.
        let has_others = there.any(|entry| {
            !entry.is_ok_and(|entry| ours.iter().any(|name| entry.file_name() == *name))
        });
        let is_ours = folder.file_name()? == FOLDER && folder.join(AUTHORITY_KEY).exists();
        folder.parent().filter(|_| is_ours && !has_others).map(Self::of)
    }

    /// Returns the folder with the credentials, in the form that the fabric loads.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.state_dir.join(FOLDER)
    }

    /// Returns true if the host has credentials.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        [FOLDER, BEFORE].iter().any(|name| self.state_dir.join(name).join(CERTIFICATE).exists())
    }

    /// Reads the credentials. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// If a file cannot be read, or they do not belong together.
    pub fn load(&self, now: i64) -> Result<Credentials, FilesError> {
        self.recover()?;
        let folder = self.folder();
        let read = |name: &str| read(&folder.join(name));
        let unusable = |error| FilesError::Credentials { path: folder.clone(), error };
        let authorities = split(&read(AUTHORITY)?);
        let (certificate, key) = (read(CERTIFICATE)?, read(KEY)?);
        let name = common_name(&certificate).ok_or(CredentialsError::Certificate);
        let name = name.map_err(unusable)?;
        let authority = match folder.join(AUTHORITY_KEY).exists() {
            true => Some(owner(&authorities, read(AUTHORITY_KEY)?).map_err(unusable)?),
            false => None,
        };
        Credentials::assemble(&name, (certificate, key), authorities, authority, now)
            .map_err(unusable)
    }

    /// Writes credentials in place of those that are there, in one step. Afterwards they survive a
    /// power failure, and no key of a join is left.
    ///
    /// # Errors
    /// If the state directory cannot be written; what was there stays.
    pub fn install(&self, credentials: &Credentials) -> Result<(), FilesError> {
        self.install_as(&self.writing(), credentials)
    }

    /// Installs while no other thread writes.
    fn install_as(
        &self,
        _writing: &MutexGuard<'static, ()>,
        credentials: &Credentials,
    ) -> Result<(), FilesError> {
        self.recover()?;
        make_folder(&self.state_dir)?;
        let next = self.state_dir.join(NEXT);
        remove_folder(&next)?;
        make_folder(&next)?;
        write(&next.join(AUTHORITY), &credentials.authorities().concat())?;
        write(&next.join(CERTIFICATE), credentials.certificate())?;
        write(&next.join(KEY), credentials.key())?;
        if let Some(authority) = credentials.authority_pem() {
            write(&next.join(AUTHORITY_KEY), &authority.key)?;
        }
        sync(&next)?;
        self.swap()?;
        sync(&self.state_dir)?;
        remove_folder(&next)?;
        self.forget_join_key()
    }

    /// Replaces the credentials by what `change` makes of them, and returns the new ones. No other
    /// change of this process comes in between.
    ///
    /// # Errors
    /// If they are unusable, cannot be changed, or cannot be written.
    pub fn update(
        &self,
        now: i64,
        change: impl FnOnce(&Credentials) -> Result<Credentials, CredentialsError>,
    ) -> Result<Credentials, FilesError> {
        let writing = self.writing();
        let unusable = |error| FilesError::Credentials { path: self.folder(), error };
        let changed = change(&self.load(now)?).map_err(unusable)?;
        self.install_as(&writing, &changed)?;
        Ok(changed)
    }

    /// Renews the host's certificate if few days are left, and returns true if so. A host without a
    /// key of an authority renews nothing, as after `sluice fabric cert`.
    ///
    /// # Errors
    /// If the credentials are unusable, or cannot be written.
    pub fn renew_if_due(&self, now: i64) -> Result<bool, FilesError> {
        let present = self.load(now)?;
        if present.authority_pem().is_none() || !present.renewal_due(now) {
            return Ok(false);
        }
        self.update(now, |present| present.renewed(now))?;
        Ok(true)
    }

    /// Deletes the credentials: the host has left its fabric.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub fn remove(&self) -> Result<(), FilesError> {
        let _writing = self.writing();
        let (folder, next) = (self.folder(), self.state_dir.join(NEXT));
        remove_folder(&next)?;
        remove_folder(&self.state_dir.join(BEFORE))?;
        if folder.exists() {
            // In one step: half of the files would be an error at the next start.
            fs::rename(&folder, &next).map_err(failed("rename", &folder))?;
            sync(&self.state_dir)?;
            remove_folder(&next)?;
        }
        self.forget_next()?;
        self.forget_join_key()
    }

    /// Returns the key with which this host asks to join: that of an attempt without an answer, or
    /// a new one, which is on the disk then.
    ///
    /// # Errors
    /// If it cannot be written, or an earlier one is unusable.
    pub fn join_key(&self) -> Result<JoinKey, FilesError> {
        let path = self.state_dir.join(JOIN_KEY);
        let unusable = |error| FilesError::Credentials { path: path.clone(), error };
        if path.exists() {
            return JoinKey::read(&read(&path)?).map_err(unusable);
        }
        let key = JoinKey::generate().map_err(unusable)?;
        make_folder(&self.state_dir)?;
        let next = path.with_extension("next");
        write(&next, &key.pem())?;
        fs::rename(&next, &path).map_err(failed("rename", &next))?;
        sync(&self.state_dir)?;
        Ok(key)
    }

    /// Deletes the key of a join that was refused.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub fn forget_join_key(&self) -> Result<(), FilesError> {
        let path = self.state_dir.join(JOIN_KEY);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("delete", &path)(error)),
            Ok(()) => sync(&self.state_dir),
        }
    }

    /// Waits until no other thread of this process writes credentials.
    #[allow(clippy::unused_self, reason = "a lock for each directory would do, too")]
    fn writing(&self) -> MutexGuard<'static, ()> {
        static WRITING: Mutex<()> = Mutex::new(());
        WRITING.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the next folder into its place.
    fn swap(&self) -> Result<(), FilesError> {
        let (folder, next) = (self.folder(), self.state_dir.join(NEXT));
        if !folder.exists() {
            return fs::rename(&next, &folder).map_err(failed("rename", &next));
        }
        if renameat_with(CWD, &next, CWD, &folder, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        // A file system that exchanges nothing, such as NFS: `recover` ends what a crash cuts off.
        let before = self.state_dir.join(BEFORE);
        remove_folder(&before)?;
        fs::rename(&folder, &before).map_err(failed("rename", &folder))?;
        fs::rename(&next, &folder).map_err(failed("rename", &next))?;
        remove_folder(&before)
    }

    /// Restores the credentials after a crash between the two steps of a swap.
    fn recover(&self) -> Result<(), FilesError> {
        let (folder, before) = (self.folder(), self.state_dir.join(BEFORE));
        if !folder.exists() && before.exists() {
            fs::rename(&before, &folder).map_err(failed("rename", &before))?;
            sync(&self.state_dir)?;
        }
        Ok(())
    }
}

/// Returns the authority that a key belongs to.
fn owner(authorities: &[String], key: String) -> Result<AuthorityPem, CredentialsError> {
    let pems = authorities
        .iter()
        .map(|certificate| AuthorityPem { certificate: certificate.clone(), key: key.clone() });
    let mut error = CredentialsError::Authorities;
    for pem in pems {
        match Authority::read(&pem) {
            Ok(_) => return Ok(pem),
            Err(other) => error = other.into(),
        }
    }
    Err(error)
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FilesError + 'a {
    move |error| FilesError::Io { what, path: path.to_owned(), error }
}

fn read(path: &Path) -> Result<String, FilesError> {
    fs::read_to_string(path).map_err(failed("read", path))
}

/// Writes a file for its owner alone, and waits until it is on the disk.
fn write(path: &Path, text: &str) -> Result<(), FilesError> {
    let written = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().map_err(failed("write", path))
}

fn sync(folder: &Path) -> Result<(), FilesError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(failed("sync", folder))
}

fn make_folder(path: &Path) -> Result<(), FilesError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make", path))
}

fn remove_folder(path: &Path) -> Result<(), FilesError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("delete", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
