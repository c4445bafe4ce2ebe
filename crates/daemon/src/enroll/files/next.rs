//! Authority that is to follow the present one, with its key.
//!
//! It is a file of its own beside the credentials: no certificate of it exists before all members
//! trust it, and the folder of the credentials holds one key of an authority.

use std::fs;
use std::io;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Files, FilesError, PEM_KEY, failed, make_folder, read, sync, write};
use crate::enroll::authority::{Authority, AuthorityPem};
use crate::enroll::credentials::{CredentialsError, split};

/// The file in the state directory.
const NEXT_AUTHORITY: &str = "ca.next";

impl Files {
    /// Returns the authority that is to follow; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is unusable.
    pub(crate) fn next_authority(&self) -> Result<Option<Authority>, FilesError> {
        let path = self.state_dir.join(NEXT_AUTHORITY);
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        let unusable = |error| FilesError::Credentials { path: path.clone(), error };
        let is_whole = CertificateDer::from_pem_slice(text.as_bytes()).is_ok()
            && PrivateKeyDer::from_pem_slice(text.as_bytes()).is_ok();
        let certificate = split(&text).into_iter().next().filter(|_| is_whole);
        let (Some(certificate), Some(at)) = (certificate, text.find(PEM_KEY)) else {
            return Err(unusable(CredentialsError::Authorities));
        };
        let pem = AuthorityPem { certificate, key: text[at..].to_owned() };
        Authority::read(&pem).map(Some).map_err(|error| unusable(error.into()))
    }

    /// Keeps the authority that is to follow, in place of another one. It survives a power failure.
    ///
    /// # Errors
    /// If the state directory cannot be written; what was there stays.
    pub(crate) fn keep_next(&self, authority: &AuthorityPem) -> Result<(), FilesError> {
        let _writing = self.writing();
        make_folder(&self.state_dir)?;
        let path = self.state_dir.join(NEXT_AUTHORITY);
        let unfinished = self.state_dir.join("ca.next.new");
        write(&unfinished, &format!("{}{}", authority.certificate, authority.key))?;
        fs::rename(&unfinished, &path).map_err(failed("rename", &unfinished))?;
        sync(&self.state_dir)
    }

    /// Forgets the authority that was to follow.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub(crate) fn forget_next(&self) -> Result<(), FilesError> {
        let path = self.state_dir.join(NEXT_AUTHORITY);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("delete", &path)(error)),
            Ok(()) => sync(&self.state_dir),
        }
    }
}
