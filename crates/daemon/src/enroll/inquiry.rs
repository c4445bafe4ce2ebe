//! The side of a member that nobody speaks to: it asks another one how it stands.
//!
//! The answer is taken only from a member of that name, by a certificate that an authority has
//! signed which this host trusts, and that is not revoked as far as this host knows.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Error as TlsError, RootCertStore, StreamOwned};

use super::client::{connect, tls_error};
use super::credentials::{Credentials, CredentialsError};
use super::messages::{AnswerError, FORMAT};
use super::profile::serial;
use super::refusal::Refused;
use super::standing::{StandingAnswer, StandingMessage, StandingRequest};
use super::timed::{LineError, Timed, read_line};
use super::{STANDING, Wall};

/// Longest time from the established connection to the answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest answer, with the end of its line.
const ANSWER_LINE_MAX: usize = 8 << 10;

/// A member as the asking host knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Its name.
    pub(crate) name: String,
    /// Its port for hosts that join.
    pub(crate) at: SocketAddr,
}

/// The asking host, and what it proves it with.
#[derive(Clone, Debug)]
pub(crate) struct Inquirer {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) id: u16,
    /// Identity of its disk.
    pub(crate) seat: u64,
    /// Its credentials.
    pub(crate) credentials: Credentials,
    /// Serial numbers of certificates that it does not believe.
    pub(crate) revoked: BTreeSet<String>,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InquiryError {
    /// There is no connection, or it broke: so does that to a program which does not know the
    /// question.
    #[error("it cannot be asked: {0}; does its program know the question?")]
    Io(#[from] std::io::Error),
    /// Its program knows the question in another format.
    #[error("it runs sluice {0}, whose answers have another format")]
    Version(String),
    /// Its certificate is not believed.
    #[error("its certificate is not believed: {0}")]
    Untrusted(TlsError),
    /// Its certificate is revoked.
    #[error("its certificate is revoked")]
    Revoked,
    /// It refuses.
    #[error("it refuses: {0}")]
    Refused(Refused),
    /// The answer is unreadable.
    #[error("its answer is unreadable")]
    BadAnswer,
    /// The credentials of this host are unusable.
    #[error(transparent)]
    Own(#[from] CredentialsError),
    /// TLS refuses the credentials of this host.
    #[error("the credentials of this host are unusable in TLS: {0}")]
    Tls(#[from] TlsError),
}

impl Inquirer {
    /// Asks a member how this host stands. It waits, for some seconds at the longest.
    ///
    /// # Errors
    /// Reason why there is no answer that can be believed.
    pub(crate) fn ask(&self, member: &Known, wall: &Wall) -> Result<StandingAnswer, InquiryError> {
        let request = StandingRequest {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.name.clone(),
            id: self.id,
            seat: self.seat,
        };
        let mut line = serde_json::to_vec(&request).expect("texts and numbers");
        line.push(b'\n');
        let tls = self.tls(&member.name, wall)?;
        let stream = connect(member.at)?;
        let mut peer = StreamOwned::new(tls, Timed::new(stream, ANSWER_MAX));
        while peer.conn.is_handshaking() {
            peer.conn.complete_io(&mut peer.sock).map_err(reason)?;
        }
        let shown = peer.conn.peer_certificates().and_then(<[_]>::first);
        let is_revoked = shown.and_then(serial).is_none_or(|shown| self.revoked.contains(&shown));
        if is_revoked {
            return Err(InquiryError::Revoked);
        }
        peer.write_all(&line).and_then(|()| peer.flush()).map_err(reason)?;
        let line = read_line(&mut peer, ANSWER_LINE_MAX).map_err(|error| match error {
            LineError::Io(error) => reason(error),
            LineError::TooLong => InquiryError::BadAnswer,
        })?;
        peer.conn.send_close_notify();
        // The answer is here; the peer may be gone.
        _ = peer.flush();
        StandingMessage::parse(&line).map_err(|error| match error {
            AnswerError::Refused(refused) => InquiryError::Refused(refused),
            AnswerError::Version(theirs) => InquiryError::Version(theirs),
            AnswerError::Unreadable => InquiryError::BadAnswer,
        })
    }

    fn tls(&self, member: &str, wall: &Wall) -> Result<ClientConnection, InquiryError> {
        let own = &self.credentials;
        let der = |pem: &String| {
            CertificateDer::from_pem_slice(pem.as_bytes())
                .map_err(|_| CredentialsError::Certificate)
        };
        let mut roots = RootCertStore::empty();
        for authority in own.authorities() {
            roots.add(der(authority)?)?;
        }
        let certificate = der(&own.certificate().to_owned())?;
        let key = PrivateKeyDer::from_pem_slice(own.key().as_bytes())
            .map_err(|_| CredentialsError::Key)?;
        let mut config =
            ClientConfig::builder_with_details(Arc::new(default_provider()), wall.clone())
                .with_protocol_versions(&[&TLS13])?
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![STANDING.to_vec()];
        config.enable_sni = false;
        let name = ServerName::try_from(member.to_owned())
            .map_err(|_| TlsError::General(format!("`{member}` is no name of a host")))?;
        Ok(ClientConnection::new(Arc::new(config), name)?)
    }
}

/// Returns the reason of a failure in TLS or below.
fn reason(error: std::io::Error) -> InquiryError {
    match tls_error(&error) {
        Some(why @ TlsError::InvalidCertificate(_)) => InquiryError::Untrusted(why.clone()),
        _ => InquiryError::Io(error),
    }
}

#[cfg(test)]
mod tests;
