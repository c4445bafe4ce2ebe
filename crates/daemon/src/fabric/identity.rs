//! Identity of this host, and verification of others: TLS 1.3 (RFC 8446) in both directions, with
//! the certificates of one fabric and no others.
//!
//! Both ends of a connection show a certificate. A certificate names its host, and a connection
//! counts as that host's only: a session accepts claims of its own peer only, so no host can claim
//! for another.
//!
//! A certificate that has expired, or is not valid yet, is loaded all the same: the host forwards,
//! and other members refuse it until there is another one ([`super::trust`]).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::client::{
    Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    ServerConfig, ServerConnection,
};

pub(crate) use crate::enroll::Wall;
pub(super) use crate::enroll::{AUTHORITY, CERTIFICATE, KEY, Validity};

/// Certificate of this host, and authorities that it accepts.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// Validity of its own certificate.
    pub(super) own: Validity,
    /// Validity of the authority that ends first.
    pub(super) anchor: Validity,
    roots: Arc<RootCertStore>,
}

impl Identity {
    /// Loads the identity of host `own` from the files of `folder`.
    ///
    /// # Errors
    /// If a file cannot be read, or no other host would accept the certificate at any time.
    pub(super) fn load(folder: &Path, own: &str, wall: &Wall) -> anyhow::Result<Self> {
        let load = || Self::read(folder, own, wall);
        load().with_context(|| {
            let folder = folder.display();
            format!("the certificates in {folder}; `sluice fabric cert` makes new ones")
        })
    }

    fn read(folder: &Path, own: &str, wall: &Wall) -> anyhow::Result<Self> {
        let (roots, anchor) = authorities(&folder.join(AUTHORITY))?;
        let certificate = CertificateDer::from_pem_file(folder.join(CERTIFICATE))
            .context("host.pem is unusable")?;
        let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).context("host.key is unusable")?;
        let validity = Validity::of(&certificate).context("host.pem is no certificate")?;
        let provider = Arc::new(default_provider());
        let at = validity.nearest(seconds(wall));
        check_own(&roots, &provider, (&certificate, own), at)?;
        let believes =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let mut server = ServerConfig::builder_with_details(Arc::clone(&provider), wall.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(believes.build()?)
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .context("host.pem and host.key do not belong together")?;
        let mut client = ClientConfig::builder_with_details(provider, wall.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(vec![certificate], key)?;
        // A resumed session shows no certificate: each connection must show its own.
        server.send_tls13_tickets = 0;
        client.resumption = Resumption::disabled();
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(Self { client, server, own: validity, anchor, roots })
    }

    /// Returns the client side of a connection to host `peer`.
    pub(super) fn connect(&self, peer: &str) -> Result<ClientConnection, Error> {
        let name = ServerName::try_from(peer.to_owned())
            .map_err(|_| Error::InvalidCertificate(CertificateError::NotValidForName))?;
        ClientConnection::new(Arc::clone(&self.client), name)
    }

    /// Returns the server side of a connection.
    pub(super) fn accept(&self) -> Result<ServerConnection, Error> {
        ServerConnection::new(Arc::clone(&self.server))
    }
}

impl Identity {
    /// Returns true if an authority that is trusted has signed a certificate. Its dates are those
    /// of the handshake: what has expired since ends no connection.
    pub(super) fn believes(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
        let Some(validity) = Validity::of(certificate) else { return false };
        let (at, all) = (validity.nearest(validity.from), default_provider());
        let algorithms = all.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, &[], at, algorithms).is_ok()
    }
}

/// Returns true if a certificate is that of host `name`.
pub(super) fn is_of(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
}

/// Returns the authorities of a file, several during a change of authority, and the validity that
/// ends first.
fn authorities(path: &Path) -> anyhow::Result<(Arc<RootCertStore>, Validity)> {
    let mut roots = RootCertStore::empty();
    let mut first: Option<Validity> = None;
    let all = CertificateDer::pem_file_iter(path).context("ca.pem is unusable")?;
    for certificate in all {
        let certificate = certificate.context("ca.pem is unusable")?;
        let validity = Validity::of(&certificate).context("ca.pem is no authority")?;
        first = first.into_iter().chain([validity]).min_by_key(|validity| validity.until);
        roots.add(certificate).context("ca.pem is no authority")?;
    }
    Ok((Arc::new(roots), first.context("ca.pem is unusable: no certificate is in it")?))
}

/// Returns the seconds since 1970; a clock without an answer counts as never set.
pub(super) fn seconds(wall: &Wall) -> i64 {
    let now = wall.current_time().map_or(0, |now| now.as_secs());
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// Checks the own certificate as other hosts would, at a moment when it is valid.
fn check_own(
    roots: &Arc<RootCertStore>,
    provider: &Arc<rustls::crypto::CryptoProvider>,
    (certificate, own): (&CertificateDer<'_>, &str),
    at: UnixTime,
) -> anyhow::Result<()> {
    use rustls::client::danger::ServerCertVerifier as _;
    let others =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
            .build()?;
    let name = ServerName::try_from(own)
        .with_context(|| format!("`{own}` is no name that a certificate can carry"))?;
    match others.verify_server_cert(certificate, &[], &name, &[], at) {
        Ok(_) => Ok(()),
        Err(error) => bail!("host.pem: {}", reason(&error)),
    }
}

/// Returns the error of a certificate, in words.
pub(super) fn reason(error: &Error) -> String {
    if *error == Error::AlertReceived(AlertDescription::CertificateExpired) {
        return "it says that this host's certificate has expired or is not valid yet; see \
                `sluice fabric status`"
            .to_owned();
    }
    let Error::InvalidCertificate(why) = error else { return error.to_string() };
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet; is the clock right?".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is that of another host".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate is of another fabric".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
