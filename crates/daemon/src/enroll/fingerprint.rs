//! Fingerprint of an authority.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use x509_parser::parse_x509_certificate;

/// Bytes of a fingerprint that a token carries: nobody finds another key with the same ones.
pub(super) const PREFIX_SIZE: usize = 16;

const SIZE: usize = 32;

/// SHA-256 of the public key of an authority, as in RFC 7469 section 2.4: of its
/// SubjectPublicKeyInfo. A certificate that is issued again for the same key has the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint([u8; SIZE]);

impl Fingerprint {
    /// Returns the fingerprint of a SubjectPublicKeyInfo in DER.
    pub(super) fn of_key(info: &[u8]) -> Self {
        let mut all = [0; SIZE];
        all.copy_from_slice(digest(&SHA256, info).as_ref());
        Self(all)
    }

    /// Returns the fingerprint of a certificate's key; `None` if it cannot be parsed.
    #[must_use]
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        Some(Self::of_key(parsed.public_key().raw))
    }

    /// Returns the fingerprint of an authority's certificate in PEM; `None` if it is none.
    pub(crate) fn of_pem(pem: &str) -> Option<Self> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        super::authority::fingerprint(&certificate)
    }

    /// Returns the part that a token carries.
    pub(super) fn prefix(&self) -> [u8; PREFIX_SIZE] {
        let mut prefix = [0; PREFIX_SIZE];
        prefix.copy_from_slice(&self.0[..PREFIX_SIZE]);
        prefix
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Fingerprint({self})")
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for Fingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a fingerprint is 64 hexadecimal digits";
        let mut all = [0; SIZE];
        hex(text, &mut all).ok_or(WRONG)?;
        Ok(Self(all))
    }
}

/// Reads as many hexadecimal digits as fill `into`, and no more.
pub(super) fn hex(text: &str, into: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != 2 * into.len() {
        return None;
    }
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    for (byte, pair) in into.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(())
}
