//! Authorities that a fabric trusts, and their replacement while it runs.
//!
//! ```text
//!   authorities [old]       ── add_authority ──────> authorities [old], next new
//!   authorities [old], next ── sign_by ────────────> authorities [new, old]
//!   authorities [new, old]  ── remove_authority ───> authorities [new]
//!   authorities [old], next ── abandon_authority ──> authorities [old]
//! ```
//!
//! Each operation is taken by all members before the next one: a member trusts the next authority
//! before others show its certificates, and the old one until nobody shows those any more.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::NotApplicable;

/// Digits of a fingerprint.
const FINGERPRINT_SIZE: usize = 64;
/// Digits of the longest serial number (RFC 5280 section 4.1.2.2).
const SERIAL_SIZE_MAX: usize = 40;
/// Largest certificate in PEM.
const CERTIFICATE_SIZE_MAX: usize = 8 << 10;

/// Certificates that are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// Certificates of authorities in PEM, the one that signs first.
    #[serde(default)]
    pub authorities: Vec<String>,
    /// Authority that is trusted already and will sign; absent: none is about to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<AuthorityEntry>,
    /// Serial numbers of certificates that are not believed any more, with their hosts.
    #[serde(default)]
    pub revoked: BTreeMap<String, String>,
    /// The ones among them that were signed by the authority which is about to go.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub outgoing: BTreeSet<String>,
}

/// An authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AuthorityEntry {
    /// Fingerprint of its key, in hexadecimal digits.
    pub fingerprint: String,
    /// Its certificate in PEM.
    pub certificate: String,
}

impl AuthorityEntry {
    /// Returns the first digits of the fingerprint, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        short(&self.fingerprint)
    }
}

/// Returns the first digits of a fingerprint, for people.
#[must_use]
pub fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}

impl Trust {
    /// Returns the certificates of all authorities that are trusted now.
    #[must_use]
    pub fn trusted(&self) -> Vec<String> {
        let next = self.next.iter().map(|next| next.certificate.clone());
        self.authorities.iter().cloned().chain(next).collect()
    }

    pub(super) fn set_authorities(&mut self, all: &[String]) -> Result<(), NotApplicable> {
        if all.is_empty() {
            let why = "without an authority no member would believe another";
            return Err(NotApplicable::of(why.to_owned()));
        }
        self.authorities = all.to_vec();
        Ok(())
    }

    pub(super) fn add(&mut self, authority: &AuthorityEntry) -> Result<(), NotApplicable> {
        let digits = authority.fingerprint.bytes();
        let is_hex = digits.clone().all(|digit| digit.is_ascii_hexdigit());
        if !is_hex || digits.len() != FINGERPRINT_SIZE {
            return Err(NotApplicable::of("the authority's fingerprint is none".to_owned()));
        }
        if authority.certificate.len() > CERTIFICATE_SIZE_MAX {
            return Err(NotApplicable::of(format!(
                "the authority's certificate is larger than {CERTIFICATE_SIZE_MAX} bytes"
            )));
        }
        if self.next.is_some() || self.authorities.len() > 1 {
            return Err(NotApplicable::of(
                "the authority is being replaced already; `sluice fabric rotate-ca` continues that"
                    .to_owned(),
            ));
        }
        if self.authorities.contains(&authority.certificate) {
            return Err(NotApplicable::of("this authority is trusted already".to_owned()));
        }
        self.next = Some(authority.clone());
        Ok(())
    }

    pub(super) fn sign_by(&mut self, fingerprint: &str) -> Result<(), NotApplicable> {
        match self.next.take_if(|next| next.fingerprint == fingerprint) {
            Some(next) => {
                self.authorities.insert(0, next.certificate);
                // No certificate of the new one is there yet.
                self.outgoing = self.revoked.keys().cloned().collect();
                Ok(())
            }
            None => Err(NotApplicable::of(format!(
                "authority {} is not the next one; `sluice fabric rotate-ca` begins with trust in \
                 it",
                short(fingerprint)
            ))),
        }
    }

    pub(super) fn abandon(&mut self, fingerprint: &str) -> Result<(), NotApplicable> {
        let is_it = |next: &mut AuthorityEntry| next.fingerprint == fingerprint;
        match self.next.take_if(is_it) {
            Some(_) => Ok(()),
            None => Err(NotApplicable::of(format!(
                "authority {} is not about to follow, so it cannot be given up",
                short(fingerprint)
            ))),
        }
    }

    pub(super) fn remove(&mut self, authority: &AuthorityEntry) -> Result<(), NotApplicable> {
        let is_it = |known: &String| *known == authority.certificate;
        match self.authorities.iter().position(is_it) {
            None => Err(NotApplicable::of(format!(
                "authority {} is not trusted, so it cannot be removed",
                authority.short()
            ))),
            Some(0) => Err(NotApplicable::of(format!(
                "authority {} signs; another one has to follow it first (`sluice fabric \
                 rotate-ca`)",
                authority.short()
            ))),
            Some(at) => {
                self.authorities.remove(at);
                if self.authorities.len() == 1 {
                    // Nobody believes these certificates any more, revoked or not.
                    let outgoing = std::mem::take(&mut self.outgoing);
                    self.revoked.retain(|serial, _| !outgoing.contains(serial));
                }
                Ok(())
            }
        }
    }

    pub(super) fn revoke(&mut self, serial: &str, host: &str) -> Result<(), NotApplicable> {
        let is_hex = serial.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_hex || serial.is_empty() || serial.len() > SERIAL_SIZE_MAX {
            return Err(NotApplicable::of(
                "the serial number of the certificate is none".to_owned(),
            ));
        }
        self.revoked.insert(serial.to_ascii_lowercase(), host.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
