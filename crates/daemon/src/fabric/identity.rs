//! Who this host is, and whom it believes: TLS 1.3 (RFC 8446) in both directions, with the
//! certificates of one fabric and no others.
//!
//! Whoever connects shows a certificate, and so does whoever is connected to. A certificate names
//! its host, and a connection counts as that host's and nobody else's: a session takes claims of
//! its own peer only, so nobody can claim for another.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig,
    ServerConnection,
};

/// The certificate of the fabric, in the folder of a host.
pub(super) const AUTHORITY: &str = "ca.pem";
/// The certificate of the host.
pub(super) const CERTIFICATE: &str = "host.pem";
/// Its key.
pub(super) const KEY: &str = "host.key";

/// What this host shows and what it believes.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// The identity of host `own` from the files of `folder`.
    ///
    /// # Errors
    /// A file that cannot be read, or a certificate that no other host would believe.
    pub(super) fn load(folder: &Path, own: &str) -> anyhow::Result<Self> {
        let load = || Self::read(folder, own);
        load().with_context(|| {
            let folder = folder.display();
            format!("the certificates in {folder}; `sluice fabric cert` makes new ones")
        })
    }

    fn read(folder: &Path, own: &str) -> anyhow::Result<Self> {
        let of = |name: &str| {
            let path = folder.join(name);
            CertificateDer::from_pem_file(&path).with_context(|| format!("{name} is unusable"))
        };
        let mut roots = RootCertStore::empty();
        roots.add(of(AUTHORITY)?).context("ca.pem is no authority")?;
        let roots = Arc::new(roots);
        let certificate = of(CERTIFICATE)?;
        let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).context("host.key is unusable")?;
        let provider = Arc::new(default_provider());
        check_own(&roots, &provider, &certificate, own)?;
        let believes =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(believes.build()?)
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .context("host.pem and host.key do not belong together")?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The side that connects to host `peer`.
    pub(super) fn connect(&self, peer: &str) -> Result<ClientConnection, Error> {
        let name = ServerName::try_from(peer.to_owned())
            .map_err(|_| Error::InvalidCertificate(CertificateError::NotValidForName))?;
        ClientConnection::new(Arc::clone(&self.client), name)
    }

    /// The side that is connected to.
    pub(super) fn accept(&self) -> Result<ServerConnection, Error> {
        ServerConnection::new(Arc::clone(&self.server))
    }
}

/// Whether a certificate is that of host `name`.
pub(super) fn is_of(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
}

/// Looks at one's own certificate with the eyes of others.
fn check_own(
    roots: &Arc<RootCertStore>,
    provider: &Arc<rustls::crypto::CryptoProvider>,
    certificate: &CertificateDer<'_>,
    own: &str,
) -> anyhow::Result<()> {
    use rustls::client::danger::ServerCertVerifier as _;
    let others =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
            .build()?;
    let name = ServerName::try_from(own)
        .with_context(|| format!("`{own}` is no name that a certificate can carry"))?;
    match others.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()) {
        Ok(_) => Ok(()),
        Err(error) => bail!("host.pem: {}", reason(&error)),
    }
}

/// What is wrong with a certificate, in words.
pub(super) fn reason(error: &Error) -> String {
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
