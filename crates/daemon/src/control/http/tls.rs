//! The listener for other machines: TCP with TLS 1.3.
//!
//! The certificate is read again when its files change, so that one that was renewed holds without
//! a restart. One that cannot be read leaves the one before; without any, handshakes fail and the
//! log says why.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sluice_api::config::HttpTls;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::accept::{Listener, Peer};
use crate::enroll;
use crate::sys::log::say;

/// The listener.
pub(super) struct Secured {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
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
        let certificates = Certificates {
            certificate: file(&tls.certificate, enroll::CERTIFICATE),
            key: file(&tls.key, enroll::KEY),
            provider: Arc::clone(&provider),
            known: Mutex::default(),
        };
        // Its certificate is looked at now, so that the log says at once if there is none.
        _ = certificates.current();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tcp, acceptor: Arc::new(config).into() })
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
        self.acceptor.accept(stream)
    }

    fn peer(_: &TcpStream) -> Peer {
        Peer::Remote
    }
}

/// State of a file: another one has another inode, time or size.
type Mark = (u64, i64, i64, u64);

/// The pair that was read last.
#[derive(Default)]
struct Known {
    marks: Option<[Mark; 2]>,
    pair: Option<Arc<CertifiedKey>>,
    /// The reason why the files as they are cannot be used, as it was logged.
    failed: Option<String>,
}

/// A certificate and its key, as their files have them.
struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    known: Mutex<Known>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Certificates").field("certificate", &self.certificate).finish()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl Certificates {
    /// Returns the certificate with its key, as the files are now.
    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let read = self.marks().and_then(|marks| match known.marks == Some(marks) {
            true => Ok(None),
            false => self.read().map(|pair| Some((marks, pair))),
        });
        match read {
            Ok(None) => {}
            Ok(Some((marks, pair))) => {
                *known = Known { marks: Some(marks), pair: Some(Arc::new(pair)), failed: None };
            }
            Err(why) if known.failed.as_ref() == Some(&why) => {}
            Err(why) => {
                say!(
                    warn: "the certificate of `api.tls` cannot be used: {why}; `certificate` and \
                           `key` may name other files; {}",
                    match &known.pair {
                        Some(_) => "the one before stays",
                        None => "until then nobody is answered there",
                    }
                );
                known.failed = Some(why);
            }
        }
        known.pair.clone()
    }

    fn marks(&self) -> Result<[Mark; 2], String> {
        let mark = |path: &Path| {
            let seen =
                std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>((seen.ino(), seen.mtime(), seen.mtime_nsec(), seen.size()))
        };
        Ok([mark(&self.certificate)?, mark(&self.key)?])
    }

    fn read(&self) -> Result<CertifiedKey, String> {
        let in_file = |path: &Path, why: &dyn fmt::Display| format!("{}: {why}", path.display());
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect);
        let chain = chain.map_err(|error| in_file(&self.certificate, &error))?;
        if chain.is_empty() {
            return Err(in_file(&self.certificate, &"it has no certificate"));
        }
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| in_file(&self.key, &error))?;
        let key = self.provider.key_provider.load_private_key(key);
        let key = key.map_err(|error| in_file(&self.key, &error))?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(pair)
            }
            Err(error) => Err(in_file(&self.key, &error)),
        }
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
