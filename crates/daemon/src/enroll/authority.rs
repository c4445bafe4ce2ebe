//! Authority of a fabric: it signs the certificates of hosts.

use std::fmt;

use rcgen::{Issuer, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use x509_parser::parse_x509_certificate;

use super::fingerprint::Fingerprint;
use super::profile::{self, DAY, DAYS_MAX};
use super::request::{RequestError, SigningRequest};

/// Reason why an authority cannot be used, or does not sign.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate cannot be read, or is none of an authority.
    #[error("the authority's certificate is unusable; restore `ca.pem` from another member")]
    Certificate,
    /// The key cannot be read.
    #[error("the authority's key is unusable; restore `ca.key` from another member")]
    Key,
    /// The key is not that of the certificate.
    #[error(
        "the authority's key does not belong to its certificate; copy `ca.key` and `ca.pem` of \
         one member"
    )]
    Pair,
    /// The request asks for something that is not signed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The time asked for is too long.
    #[error("a certificate is valid for {DAYS_MAX} days at most; ask for fewer")]
    Days,
    /// The certificate could not be made.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// Certificate and key of an authority in PEM, as they are kept in files and sent to members over
/// mutually authenticated connections.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityPem {
    /// Its certificate.
    pub certificate: String,
    /// Its key: secret.
    pub key: String,
}

impl fmt::Debug for AuthorityPem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AuthorityPem").field("key", &"[secret]").finish_non_exhaustive()
    }
}

/// Authority of a fabric, with its key.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    fingerprint: Fingerprint,
    pem: AuthorityPem,
}

impl Authority {
    /// Makes an authority with a new key. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// If the kernel has no random bytes.
    pub fn create(now: i64) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let params = profile::authority(now.div_euclid(DAY));
        let certificate = params.self_signed(&key)?.pem();
        let fingerprint = Fingerprint::of_key(&key.subject_public_key_info());
        let pem = AuthorityPem { certificate, key: key.serialize_pem() };
        Ok(Self { issuer: Issuer::new(params, key), fingerprint, pem })
    }

    /// Reads an authority.
    ///
    /// # Errors
    /// If either part is unusable, or they do not belong together.
    pub fn read(pem: &AuthorityPem) -> Result<Self, AuthorityError> {
        let certificate = CertificateDer::from_pem_slice(pem.certificate.as_bytes())
            .map_err(|_| AuthorityError::Certificate)?;
        let fingerprint = fingerprint(&certificate).ok_or(AuthorityError::Certificate)?;
        let key = KeyPair::from_pem(&pem.key).map_err(|_| AuthorityError::Key)?;
        if Fingerprint::of_key(&key.subject_public_key_info()) != fingerprint {
            return Err(AuthorityError::Pair);
        }
        // Name and use of every authority are the same; only its key matters for a signature.
        let issuer = Issuer::new(profile::authority(0), key);
        Ok(Self { issuer, fingerprint, pem: pem.clone() })
    }

    /// Returns the fingerprint of its key.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns its certificate and key.
    #[must_use]
    pub const fn pem(&self) -> &AuthorityPem {
        &self.pem
    }

    /// Signs the certificate of host `name` for a checked request, and returns it in PEM.
    ///
    /// # Errors
    /// If the request is for another name.
    pub fn sign(
        &self,
        request: &SigningRequest,
        name: &str,
        now: i64,
        days: u32,
    ) -> Result<String, AuthorityError> {
        if request.name() != name {
            let asked = request.name().to_owned();
            return Err(RequestError::OtherName { asked, expected: name.to_owned() }.into());
        }
        let days = i32::try_from(days).ok().filter(|_| days <= DAYS_MAX);
        let days = days.ok_or(AuthorityError::Days)?;
        let params = profile::host(name, now.div_euclid(DAY), days)?;
        Ok(params.signed_by(request, &self.issuer)?.pem())
    }
}

/// Returns the fingerprint of an authority's certificate; `None` if it is not one of an authority.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    parsed.is_ca().then(|| Fingerprint::of_key(parsed.public_key().raw))
}

#[cfg(test)]
mod tests;
