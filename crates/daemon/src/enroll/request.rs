//! Request for a certificate (PKCS #10, RFC 2986): the name of one host and its public key, signed
//! with that key.
//!
//! Nothing else may be in it. What a certificate allows is decided by the fabric
//! ([`super::profile`]), so that a request has nothing to ask for.

use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_SIG_ECDSA_WITH_SHA256, OID_X509_COMMON_NAME};
use x509_parser::prelude::FromDer as _;

use super::fingerprint::Fingerprint;
use super::profile::{self, NAME_SIZE_MAX};

/// Longest request in PEM: one with a name of the largest size has half as much.
const REQUEST_SIZE_MAX: usize = 2_048;

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is none.
    #[error("it is no request for a certificate (PKCS #10)")]
    Form,
    /// The subject is more than a name, or less.
    #[error("its subject has to be the name of the host (CN) and nothing else")]
    Subject,
    /// The name cannot stand in a certificate.
    #[error("its name is none of a host: use letters, digits, `-` and `.`, 63 at most")]
    Name,
    /// It asks for extensions.
    #[error("it asks for more than a name; the fabric decides what a certificate allows")]
    Extensions,
    /// The key is of another kind.
    #[error("its key is not ECDSA P-256")]
    Key,
    /// The signature is wrong.
    #[error("its signature is not that of its key")]
    Signature,
    /// It names another host.
    #[error("it is for `{asked}`, and only one for `{expected}` is signed")]
    OtherName {
        /// Name in the request.
        asked: String,
        /// Name of the host that asks.
        expected: String,
    },
}

/// A request that was checked: its sender has the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    name: String,
    /// The point of the public key (SEC 1 section 2.3.3, not compressed).
    point: Vec<u8>,
}

impl SigningRequest {
    /// Makes the request of host `name` for the key, in PEM.
    ///
    /// # Errors
    /// If no certificate can carry the name.
    pub(super) fn make(name: &str, key: &KeyPair) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = profile::named(name);
        params.serialize_request(key)?.pem()
    }

    /// Returns the request for a key of this host, which needs no proof.
    pub(super) fn own(name: &str, key: &KeyPair) -> Self {
        Self { name: name.to_owned(), point: key.public_key_raw().to_vec() }
    }

    /// Reads and checks a request in PEM.
    ///
    /// # Errors
    /// If it is not exactly one name and one key, signed with the key.
    pub fn parse(pem: &str) -> Result<Self, RequestError> {
        if pem.len() > REQUEST_SIZE_MAX {
            return Err(RequestError::Form);
        }
        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| RequestError::Form)?;
        Self::parse_der(&der)
    }

    /// Reads and checks a request in DER.
    ///
    /// # Errors
    /// See [`Self::parse`].
    pub fn parse_der(der: &[u8]) -> Result<Self, RequestError> {
        let (rest, request) =
            X509CertificationRequest::from_der(der).map_err(|_| RequestError::Form)?;
        if !rest.is_empty() {
            return Err(RequestError::Form);
        }
        let info = &request.certification_request_info;
        let name = common_name(&info.subject)?;
        if !info.attributes().is_empty() {
            return Err(RequestError::Extensions);
        }
        let point = info.subject_pki.subject_public_key.data.to_vec();
        let checked = Self { name, point };
        // One encoding alone, so that a key has one fingerprint.
        if checked.subject_public_key_info() != info.subject_pki.raw {
            return Err(RequestError::Key);
        }
        if request.signature_algorithm.algorithm != OID_SIG_ECDSA_WITH_SHA256 {
            return Err(RequestError::Signature);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &checked.point)
            .verify(info.raw, &request.signature_value.data)
            .map_err(|_| RequestError::Signature)?;
        Ok(checked)
    }

    /// Returns the name of the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fingerprint of the key.
    #[must_use]
    pub fn key(&self) -> Fingerprint {
        Fingerprint::of_key(&self.subject_public_key_info())
    }
}

impl PublicKeyData for SigningRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// Returns the common name of a subject that has nothing else.
fn common_name(subject: &x509_parser::x509::X509Name<'_>) -> Result<String, RequestError> {
    let mut parts = subject.iter_attributes();
    let (Some(part), None) = (parts.next(), parts.next()) else {
        return Err(RequestError::Subject);
    };
    if *part.attr_type() != OID_X509_COMMON_NAME {
        return Err(RequestError::Subject);
    }
    let name = part.as_str().map_err(|_| RequestError::Name)?;
    if name.len() > NAME_SIZE_MAX || !profile::is_name(name) {
        return Err(RequestError::Name);
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests;
