//! The side of the host that joins.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, ClientConnection, Error as TlsError, StreamOwned};
use sluice_api::config::UnderlayKind;

use super::authority::{Authority, AuthorityPem};
use super::credentials::{Credentials, CredentialsError, JoinKey};
use super::fingerprint::hex;
use super::messages::{
    ANSWER_LINE_MAX, AnswerError, FORMAT, JoinAnswer, JoinRequest, JoinedMessage, MemberAddress,
};
use super::pin::Pinned;
use super::refusal::Refused;
use super::timed::{LineError, Timed, read_line};
use super::token::Token;
use super::{PROTOCOL, Wall};
use crate::sys::marked::mark;

/// Longest time until a member has accepted the connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest time for the verification of a member.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Longest time for the answer: the member adds the new one by a transaction.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Reason why a host is no member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nothing listens there, or there is no way.
    #[error(
        "cannot reach a member at {to}: {error}; is the address right, is `sluice daemon` running \
         there as a member, and does a firewall let TCP port {} pass?", .to.port()
    )]
    Unreachable {
        /// The address.
        to: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// It does not speak as a member.
    #[error("{to} does not answer as a member: {why}; compare `sluice --version` there")]
    NoMember {
        /// The address.
        to: SocketAddr,
        /// The reason.
        why: String,
    },
    /// Its certificate is of another fabric than the token.
    #[error(
        "{0} is not of the fabric that the token is of, or somebody is in between: nothing was \
         sent to it; compare the fingerprint in `sluice fabric status` of a member with \
         `sluice fabric discover`, or make another token if the authority has changed"
    )]
    OtherFabric(SocketAddr),
    /// Its certificate is over, or has not begun.
    #[error(
        "the certificate of the member at {0} has expired, or is not valid yet; compare the clocks \
         of both hosts, then `sluice fabric status` there"
    )]
    Expired(SocketAddr),
    /// It refused.
    #[error("the member at {from} refuses: {refused}")]
    Refused {
        /// The member's address.
        from: SocketAddr,
        /// The refusal, with the remedy.
        refused: Refused,
    },
    /// The member may have added this host, and its answer did not come.
    #[error(
        "the member at {to} has the request, and its answer did not come ({why}); try again with \
         the same token: this host may be a member already"
    )]
    NoAnswer {
        /// The address.
        to: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The answer does not fit what was asked for.
    #[error("the answer of the member at {to} cannot be used: {why}; ask another member")]
    BadAnswer {
        /// The address.
        to: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The request cannot be made.
    #[error(transparent)]
    Own(#[from] CredentialsError),
}

/// A host as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applicant {
    /// Its name.
    pub name: String,
    /// Its VTEP.
    pub vtep: IpAddr,
    /// Address and port at which it will listen.
    pub address: SocketAddr,
    /// Kind of its underlay.
    pub underlay: UnderlayKind,
}

/// Membership of a host, as a member granted it.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Name of the fabric.
    pub fabric: String,
    /// Number of the fabric on the wire.
    pub number: [u8; 16],
    /// Number of this host.
    pub id: u16,
    /// Members, the new one among them or not.
    pub members: Vec<MemberAddress>,
    /// Credentials, to be written by [`super::Files::install`].
    pub credentials: Credentials,
    /// Authority that is to follow, with its key, to be kept beside them.
    pub next: Option<AuthorityPem>,
}

/// Asks the member at `to` to let a host in. The key is that of [`super::Files::join_key`]. It
/// waits, for more than a minute at the longest.
///
/// # Errors
/// The reason, with the remedy.
pub fn join(
    to: SocketAddr,
    token: &Token,
    applicant: &Applicant,
    key: &JoinKey,
    wall: &Wall,
) -> Result<Joined, JoinError> {
    let request = JoinRequest {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        name: applicant.name.clone(),
        vtep: applicant.vtep,
        address: applicant.address,
        token: token.secret().digits(),
        request: key.request(&applicant.name)?,
        has_pauses: applicant.underlay.has_pauses(),
    };
    let mut line = serde_json::to_vec(&request).expect("texts and numbers");
    line.push(b'\n');
    let mut member = verified(to, token, wall)?;
    let sent = member.write_all(&line).and_then(|()| member.flush());
    sent.map_err(|error| JoinError::NoAnswer { to, why: error.to_string() })?;
    member.sock.extend(ANSWER_MAX);
    let line = read_line(&mut member, ANSWER_LINE_MAX).map_err(|error| match error {
        LineError::Io(error) => JoinError::NoAnswer { to, why: error.to_string() },
        LineError::TooLong => JoinError::BadAnswer { to, why: "it is too long".to_owned() },
    })?;
    let message = JoinAnswer::parse(&line).map_err(|error| match error {
        AnswerError::Refused(refused) => JoinError::Refused { from: to, refused },
        AnswerError::Version(theirs) => JoinError::NoMember {
            to,
            why: format!("it runs sluice {theirs}, whose joins have another format"),
        },
        AnswerError::Unreadable => JoinError::BadAnswer { to, why: "it is unreadable".to_owned() },
    })?;
    member.conn.send_close_notify();
    // The answer is here; the peer may be gone.
    _ = member.flush();
    joined(message, &applicant.name, key, wall).map_err(|why| JoinError::BadAnswer { to, why })
}

/// Connects, and returns the connection once the member is verified.
pub(super) fn verified(
    to: SocketAddr,
    token: &Token,
    wall: &Wall,
) -> Result<StreamOwned<ClientConnection, Timed>, JoinError> {
    let stream = connect(to).map_err(|error| JoinError::Unreachable { to, error })?;
    let no_member = |why: String| JoinError::NoMember { to, why };
    let tls = tls(to, token, wall).map_err(|error| no_member(error.to_string()))?;
    let mut member = StreamOwned::new(tls, Timed::new(stream, HANDSHAKE_MAX));
    while member.conn.is_handshaking() {
        if let Err(error) = member.conn.complete_io(&mut member.sock) {
            return Err(match tls_error(&error) {
                Some(TlsError::InvalidCertificate(
                    CertificateError::Expired
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::NotValidYet
                    | CertificateError::NotValidYetContext { .. },
                )) => JoinError::Expired(to),
                Some(TlsError::InvalidCertificate(_)) => JoinError::OtherFabric(to),
                _ => no_member(error.to_string()),
            });
        }
    }
    Ok(member)
}

/// Returns the error of TLS in an error of its connection.
pub(super) fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

fn tls(to: SocketAddr, token: &Token, wall: &Wall) -> Result<ClientConnection, TlsError> {
    let provider = Arc::new(default_provider());
    let pinned = Arc::new(Pinned::new(token.clone(), Arc::clone(&provider)));
    let mut config = ClientConfig::builder_with_details(provider, wall.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.enable_sni = false;
    ClientConnection::new(Arc::new(config), ServerName::IpAddress(to.ip().into()))
}

/// Connects within [`CONNECT_MAX`].
pub(super) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before the first packet: a guard on the way out may want to know whose it is.
    mark(&socket)?;
    // Linux limits the time of connect(2) by it, too (socket(7)).
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_MAX))?;
    rustix::net::connect(&socket, &to).map_err(|error| match error {
        rustix::io::Errno::INPROGRESS => io::ErrorKind::TimedOut.into(),
        error => io::Error::from(error),
    })?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Checks an answer against what was asked for.
fn joined(
    message: JoinedMessage,
    name: &str,
    key: &JoinKey,
    wall: &Wall,
) -> Result<Joined, String> {
    let mut number = [0; 16];
    hex(&message.number, &mut number).ok_or("the number of the fabric is unreadable")?;
    if message.id == 0 {
        return Err("this host has no number".to_owned());
    }
    let now = wall.current_time().map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let pair = (message.certificate, key.pem());
    let credentials =
        Credentials::assemble(name, pair, message.authorities, message.authority, now)
            .map_err(|error| error.to_string())?;
    if let Some(next) = &message.next {
        Authority::read(next).map_err(|error| format!("the next authority: {error}"))?;
        if !credentials.authorities().contains(&next.certificate) {
            return Err("the next authority is not trusted".to_owned());
        }
    }
    let (fabric, id) = (message.fabric, message.id);
    let (members, next) = (message.members, message.next);
    Ok(Joined { fabric, number, id, members, credentials, next })
}
