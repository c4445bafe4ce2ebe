//! Verification of a member by a host that has no certificate of the fabric: the authority whose
//! fingerprint is in the token has to have signed the member's certificate.
//!
//! The member sends the authority's certificate with its own. The name in the certificate is not
//! compared: any member may let a host in, and the host knows an address only.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::authority::fingerprint;
use super::token::Token;

/// Most certificates of a chain that are looked at.
const CHAIN_MAX: usize = 8;

/// Accepts members of the fabric that a token is of.
#[derive(Debug)]
pub(super) struct Pinned {
    token: Token,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    pub(super) const fn new(token: Token, provider: Arc<CryptoProvider>) -> Self {
        Self { token, provider }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        member: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_pinned = |certificate: &&CertificateDer<'_>| {
            fingerprint(certificate).is_some_and(|fingerprint| self.token.is_of(&fingerprint))
        };
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = chain.iter().take(CHAIN_MAX).find(is_pinned).ok_or(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let member = ParsedCertificate::try_from(member)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&member, &roots, &[], now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("joins use TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
