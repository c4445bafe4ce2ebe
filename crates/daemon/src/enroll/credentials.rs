//! Credentials of a host: its certificate and key, the authorities that it trusts, and the key with
//! which it signs for others.
//!
//! Each function returns new credentials and writes nothing: [`super::files`] replaces those on the
//! disk in one step. A change of authority has this order, each step done at all members before the
//! next:
//!
//! ```text
//!   trust old and new ──> certificates of the new one ──> trust the new one alone
//!   trusting(both)         reissued_by(new)                trusting(new)
//! ```

use std::fmt;
use std::sync::Arc;

use rcgen::{KeyPair, PublicKeyData as _};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::X509Certificate;

use super::authority::{Authority, AuthorityError, AuthorityPem, fingerprint};
use super::fingerprint::Fingerprint;
use super::profile::{DAY, Validity};
use super::request::SigningRequest;

/// Validity of a host's certificate, in days.
pub const HOST_DAYS: u32 = 365;
/// Days before the end from which on a certificate is renewed.
pub const RENEWAL_DAYS: i64 = 30;
/// Most authorities that a fabric trusts at a time.
pub const AUTHORITIES_MAX: usize = 8;

const PEM_END: &str = "-----END CERTIFICATE-----";

/// Reason why credentials cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No authority is trusted, or one of them cannot be read, or there are too many.
    #[error("the trusted authorities (`ca.pem`) are unusable; join again, or restore the file")]
    Authorities,
    /// The certificate cannot be read.
    #[error("the host's certificate (`host.pem`) is unusable; join again, or restore the file")]
    Certificate,
    /// The key cannot be read.
    #[error("the host's key (`host.key`) is unusable; join again, or restore the file")]
    Key,
    /// The key is not that of the certificate.
    #[error("the host's key does not belong to its certificate; join again")]
    Pair,
    /// No trusted authority has signed the certificate.
    #[error("no authority that is trusted has signed the certificate of this host; join again")]
    Untrusted,
    /// The certificate is that of another host.
    #[error("the certificate is not that of `{0}`; join again, or correct `name`")]
    OtherName(String),
    /// The host has no key of an authority, so that it can sign nothing.
    #[error("this host has no key of the fabric's authority (`ca.key`); ask another member")]
    NoAuthority,
    /// The authority cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A key or a certificate could not be made.
    #[error("cannot make a key or a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Key of a host that has no certificate yet.
pub struct JoinKey(KeyPair);

impl JoinKey {
    /// Makes a key.
    ///
    /// # Errors
    /// If the kernel has no random bytes.
    pub fn generate() -> Result<Self, CredentialsError> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Reads a key in PEM.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(pem: &str) -> Result<Self, CredentialsError> {
        KeyPair::from_pem(pem).map(Self).map_err(|_| CredentialsError::Key)
    }

    /// Returns the key in PEM: secret.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// Returns the request for the certificate of host `name`, in PEM.
    pub(crate) fn request(&self, name: &str) -> Result<String, CredentialsError> {
        Ok(SigningRequest::make(name, &self.0)?)
    }
}

impl fmt::Debug for JoinKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JoinKey([secret])")
    }
}

/// Credentials of a host, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    name: String,
    certificate: String,
    key: String,
    authorities: Vec<String>,
    authority: Option<AuthorityPem>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Makes a fabric's authority, and the credentials of its first host. `now` is in seconds since
    /// 1970.
    ///
    /// # Errors
    /// If no certificate can carry the name.
    pub fn create(name: &str, now: i64) -> Result<Self, CredentialsError> {
        let authority = Authority::create(now)?;
        let key = KeyPair::generate()?;
        let request = SigningRequest::own(name, &key);
        let certificate = authority.sign(&request, name, now, HOST_DAYS)?;
        let authorities = vec![authority.pem().certificate.clone()];
        let authority = Some(authority.pem().clone());
        Self {
            name: name.to_owned(),
            certificate,
            key: key.serialize_pem(),
            authorities,
            authority,
        }
        .checked(now)
    }

    /// Puts credentials together, and checks them.
    ///
    /// # Errors
    /// If a part is unusable, or the parts do not belong together.
    pub fn assemble(
        name: &str,
        (certificate, key): (String, String),
        authorities: Vec<String>,
        authority: Option<AuthorityPem>,
        now: i64,
    ) -> Result<Self, CredentialsError> {
        Self { name: name.to_owned(), certificate, key, authorities, authority }.checked(now)
    }

    /// Returns the name of the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the certificate of the host, in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the key of the host, in PEM: secret.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the certificates of the authorities that are trusted, in PEM.
    #[must_use]
    pub fn authorities(&self) -> &[String] {
        &self.authorities
    }

    /// Returns the authority with which this host signs, with its key.
    #[must_use]
    pub const fn authority_pem(&self) -> Option<&AuthorityPem> {
        self.authority.as_ref()
    }

    /// Returns the authority with which this host signs.
    ///
    /// # Errors
    /// If the host has none, or it is unusable.
    pub fn authority(&self) -> Result<Authority, CredentialsError> {
        let pem = self.authority.as_ref().ok_or(CredentialsError::NoAuthority)?;
        Ok(Authority::read(pem)?)
    }

    /// Returns the days until the host's certificate ends; negative once it is over.
    #[must_use]
    pub fn days_left(&self, now: i64) -> i64 {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok();
        let validity = certificate.and_then(|certificate| Validity::of(&certificate));
        validity.map_or(-1, |validity| (validity.until - now).div_euclid(DAY))
    }

    /// Returns true if the host's certificate is to be renewed.
    #[must_use]
    pub fn renewal_due(&self, now: i64) -> bool {
        self.days_left(now) <= RENEWAL_DAYS
    }

    /// Returns credentials with a new certificate for the same key.
    ///
    /// # Errors
    /// If this host has no key of an authority.
    pub fn renewed(&self, now: i64) -> Result<Self, CredentialsError> {
        let key = KeyPair::from_pem(&self.key).map_err(|_| CredentialsError::Key)?;
        self.signed(&self.authority()?, &key, now)
    }

    /// Returns credentials with a new key, and a certificate for it.
    ///
    /// # Errors
    /// If this host has no key of an authority.
    pub fn rekeyed(&self, now: i64) -> Result<Self, CredentialsError> {
        self.signed(&self.authority()?, &KeyPair::generate()?, now)
    }

    /// Returns credentials that trust these authorities and no others.
    ///
    /// # Errors
    /// If they are unusable, or none of them has signed the certificate of this host, or the
    /// authority with which it signs is not among them.
    pub fn trusting(&self, authorities: Vec<String>, now: i64) -> Result<Self, CredentialsError> {
        Self { authorities, ..self.clone() }.checked(now)
    }

    /// Returns credentials with a certificate of a new authority, with which this host signs from
    /// now on. It has to be trusted already.
    ///
    /// # Errors
    /// If the authority is unusable, or not trusted.
    pub fn reissued_by(
        &self,
        authority: &AuthorityPem,
        now: i64,
    ) -> Result<Self, CredentialsError> {
        let key = KeyPair::from_pem(&self.key).map_err(|_| CredentialsError::Key)?;
        self.signed(&Authority::read(authority)?, &key, now)
    }

    fn signed(
        &self,
        authority: &Authority,
        key: &KeyPair,
        now: i64,
    ) -> Result<Self, CredentialsError> {
        let request = SigningRequest::own(&self.name, key);
        let certificate = authority.sign(&request, &self.name, now, HOST_DAYS)?;
        let (key, authority) = (key.serialize_pem(), Some(authority.pem().clone()));
        Self { certificate, key, authority, ..self.clone() }.checked(now)
    }

    /// Checks that the parts are usable and belong together. An expired certificate is usable: the
    /// host can renew it.
    fn checked(self, now: i64) -> Result<Self, CredentialsError> {
        let (roots, trusted) = roots(&self.authorities)?;
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|_| CredentialsError::Certificate)?;
        let parsed =
            ParsedCertificate::try_from(&certificate).map_err(|_| CredentialsError::Certificate)?;
        let (_, plain) =
            parse_x509_certificate(&certificate).map_err(|_| CredentialsError::Certificate)?;
        let at = Validity::of(&certificate).ok_or(CredentialsError::Certificate)?.nearest(now);
        let algorithms = default_provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], at, algorithms)
            .map_err(|_| CredentialsError::Untrusted)?;
        let is_named = ServerName::try_from(self.name.as_str())
            .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
        if !is_named {
            return Err(CredentialsError::OtherName(self.name));
        }
        let key = KeyPair::from_pem(&self.key).map_err(|_| CredentialsError::Key)?;
        if key.subject_public_key_info() != plain.public_key().raw {
            return Err(CredentialsError::Pair);
        }
        if let Some(pem) = &self.authority {
            let own = Authority::read(pem)?.fingerprint();
            if !trusted.contains(&own) {
                return Err(CredentialsError::Untrusted);
            }
        }
        Ok(self)
    }
}

/// Returns the trusted authorities of a list in PEM, and their fingerprints.
pub(super) fn roots(
    authorities: &[String],
) -> Result<(Arc<RootCertStore>, Vec<Fingerprint>), CredentialsError> {
    if authorities.is_empty() || authorities.len() > AUTHORITIES_MAX {
        return Err(CredentialsError::Authorities);
    }
    let (mut roots, mut fingerprints) = (RootCertStore::empty(), Vec::new());
    for pem in authorities {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| CredentialsError::Authorities)?;
        fingerprints.push(fingerprint(&certificate).ok_or(CredentialsError::Authorities)?);
        roots.add(certificate).map_err(|_| CredentialsError::Authorities)?;
    }
    Ok((Arc::new(roots), fingerprints))
}

/// Splits a text with several certificates.
pub(crate) fn split(text: &str) -> Vec<String> {
    let parts = text.split_inclusive(PEM_END);
    let parts = parts.filter(|part| part.contains(PEM_END));
    parts.map(|part| format!("{}\n", part.trim_start())).collect()
}

/// Returns the common name of a certificate.
pub(super) fn common_name(pem: &str) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, parsed): (_, X509Certificate<'_>) = parse_x509_certificate(&certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests;
