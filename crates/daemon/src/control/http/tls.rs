//! The listener for other machines: TCP with TLS 1.3.
//!
//! ```text
//!   certificate, key ──▶ shown to clients
//!   client_ca ─────────▶ signs certificates of clients ─▶ names ─▶ `guard`: role
//! ```
//!
//! A client need not show a certificate: it may have a token. One that shows a certificate which
//! does not hold (another authority, expired, not for clients) is refused in the handshake. No
//! session is resumed: each handshake looks at the certificate anew.
//!
//! All files are read again when they change, so that a certificate that was renewed holds without
//! a restart. Without a certificate handshakes fail; without authorities no client is asked for
//! one. The log says why.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use sluice_api::config::HttpTls;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::files::{FromFiles, Words, in_file};
use super::accept::{Listener, Peer};
use super::guard::Shown;
use crate::enroll;
use crate::sys::log::say;

mod files;
mod names;

/// The listener.
pub(super) struct Secured {
    tcp: TcpListener,
    /// The session's parameters for clients without a certificate.
    plain: Arc<ServerConfig>,
    /// Authorities of clients that may show a certificate; `None`: no client is known by one.
    mutual: Option<FromFiles<Arc<ServerConfig>>>,
}

impl Secured {
    /// Adds TLS to a listener, by the files of the configuration, or those of the fabric in a state
    /// directory.
    ///
    /// # Errors
    /// If the library refuses its own parameters.
    pub(super) fn new(
        tcp: TcpListener,
        tls: &HttpTls,
        state_dir: &Path,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let folder = enroll::Files::of(state_dir).folder();
        let file = |said: &Option<PathBuf>, name| said.clone().unwrap_or(folder.join(name));
        let certificates = Arc::new(certificates(
            file(&tls.certificate, enroll::CERTIFICATE),
            file(&tls.key, enroll::KEY),
            Arc::clone(&provider),
        ));
        // Files are looked at now, so that the log says at once if one cannot be used.
        _ = certificates.0.current();
        let plain = Arc::new(parameters(&provider, &certificates, None)?);
        let mutual = (!tls.clients.is_empty()).then(|| {
            let authorities = file(&tls.client_ca, enroll::AUTHORITY);
            FromFiles::new(vec![authorities.clone()], OF_CLIENTS, move || {
                let verifier = verifier(&authorities, &provider)?;
                let parameters = parameters(&provider, &certificates, Some(verifier));
                parameters.map(Arc::new).map_err(|error| error.to_string())
            })
        });
        _ = mutual.as_ref().and_then(FromFiles::current);
        Ok(Self { tcp, plain, mutual })
    }
}

impl Listener for Secured {
    type Accepted = TcpStream;
    type Stream = TlsStream<TcpStream>;

    async fn next(&self) -> io::Result<TcpStream> {
        self.tcp.accept().await.map(|(stream, _)| stream)
    }

    fn open(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<Self::Stream>> + Send + 'static {
        let mutual = self.mutual.as_ref().and_then(FromFiles::current);
        let parameters =
            mutual.map_or_else(|| Arc::clone(&self.plain), |mutual| Arc::clone(&mutual));
        TlsAcceptor::from(parameters).accept(stream)
    }

    fn peer(_: &TcpStream) -> Peer {
        Peer::Remote
    }

    fn shown(stream: &Self::Stream) -> Shown {
        let (_, session) = stream.get_ref();
        let own = session.peer_certificates().and_then(<[_]>::first);
        Shown(own.map(|certificate| names::of(certificate).into()))
    }
}

/// Returns the parameters of a session.
fn parameters(
    provider: &Arc<CryptoProvider>,
    certificates: &Arc<Certificates>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let certificates: Arc<dyn ResolvesServerCert> = Arc::clone(certificates) as _;
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A certificate that has expired would count on in a resumed session.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

const OF_CLIENTS: Words = Words {
    what: "the authorities for clients of `api.tls`",
    remedy: "`client_ca` may name another file",
    without: "until then only tokens count",
};

/// Returns a check of certificates of clients by the authorities in a file.
fn verifier(
    authorities: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(authorities)? {
        roots.add(certificate).map_err(|error| in_file(authorities, &error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| in_file(authorities, &error))
}

/// A certificate and its key, as their files have them.
#[derive(Debug)]
struct Certificates(FromFiles<CertifiedKey>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.current()
    }
}

const OWN: Words = Words {
    what: "the certificate of `api.tls`",
    remedy: "`certificate` and `key` may name other files",
    without: "until then nobody is answered there",
};

fn certificates(certificate: PathBuf, key: PathBuf, provider: Arc<CryptoProvider>) -> Certificates {
    let files = vec![certificate.clone(), key.clone()];
    Certificates(FromFiles::new(files, OWN, move || pair(&certificate, &key, &provider)))
}

/// Reads a certificate and its key.
fn pair(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = chain(certificate)?;
    let in_key = |error: &dyn fmt::Display| in_file(key, error);
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| in_key(&error))?;
    let private = provider.key_provider.load_private_key(private);
    let pair = CertifiedKey::new(chain, private.map_err(|error| in_key(&error))?);
    match pair.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(pair)
        }
        Err(error) => Err(in_key(&error)),
    }
}

/// Reads the certificates of a file, of which there is at least one.
fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain = chain.map_err(|error| in_file(path, &error))?;
    match chain.is_empty() {
        true => Err(in_file(path, &"it has no certificate")),
        false => Ok(chain),
    }
}

/// Listens for other machines, as soon as no other program has the address.
pub(super) async fn listen(tls: &HttpTls, state_dir: &Path) -> Option<Secured> {
    let at: SocketAddr = tls.listen;
    let tcp = super::listen(at, "api.tls.listen").await;
    match Secured::new(tcp, tls, state_dir) {
        Ok(secured) => Some(secured),
        Err(error) => {
            say!(error: "no TLS on {at}: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests;
