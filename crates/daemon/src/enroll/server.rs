//! The side of the member: a listener that anybody may reach.
//!
//! ```text
//!   accept ──> slot? ──> TLS ──> request ─┬─> admit ──> sign ──> answer
//!                └ no: closed  └────┴ 10 s │  in all, and while nobody else needs the place
//!                                          └─> standing of a member, by its certificate ──> answer
//! ```
//!
//! Each connection has a thread of its own, so that one that is slow keeps nobody waiting, and the
//! number of connections is bounded ([`super::slots`]). Only what a checked request and a token say
//! reaches [`Enroll::admit`], and only who has shown a certificate of this fabric
//! [`Enroll::standing`].

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use sluice_base::Nanos;

use super::authority::{Authority, AuthorityPem};
use super::credentials::{Credentials, CredentialsError, HOST_DAYS};
use super::messages::{
    JoinAnswer, JoinedMessage, Joiner, MemberAddress, Outcome, REQUEST_LINE_MAX,
};
use super::refusal::Refused;
use super::slots::{Slots, Ticket};
use super::standing::{Asker, StandingAnswer, StandingMessage, StandingOutcome};
use super::timed::{LineError, Timed, read_line};
use super::{PROTOCOL, STANDING, Wall};
use crate::sys::log::say;
use crate::sys::{clock, marked, threads};

/// Longest time from a connection to its request.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Longest time until an answer is with the host that joins.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Pause after an error of the listener, such as too many open files.
const PAUSE: Nanos = Nanos::from_millis(100);

/// The fabric's decisions about hosts that ask to join.
pub trait Enroll: Send + Sync {
    /// Judges the token, and makes the host a member: one transaction that adds it and records the
    /// use of the token. A host that has used the token already, with the same key, gets the same
    /// answer. Several threads may call at a time.
    ///
    /// # Errors
    /// The refusal to send.
    fn admit(&self, from: SocketAddr, joiner: &Joiner) -> Result<Admitted, Refused>;

    /// Returns how a host stands that has shown a certificate of this fabric for its name.
    ///
    /// # Errors
    /// The refusal to send.
    fn standing(&self, asker: &Asker) -> Result<StandingAnswer, Refused>;

    /// Takes note of a request that was refused, here or by [`Self::admit`].
    fn refused(&self, _from: SocketAddr, _refused: &Refused) {}
}

/// Membership of a new host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Name of the fabric.
    pub fabric: String,
    /// Number of the fabric on the wire.
    pub number: [u8; 16],
    /// Number of the new host.
    pub id: u16,
    /// Members.
    pub members: Vec<MemberAddress>,
    /// Authority that is to follow, if the fabric's is being replaced.
    pub next: Option<AuthorityPem>,
}

/// Listener for hosts that join, until it is dropped.
#[derive(Debug)]
pub struct JoinListener {
    shared: Arc<Shared>,
    at: SocketAddr,
}

/// Identity of the member in TLS, and with which authority it signs.
#[derive(Debug)]
struct Present {
    tls: Arc<ServerConfig>,
    authority: Authority,
    credentials: Credentials,
}

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    present: Mutex<Arc<Present>>,
    is_over: AtomicBool,
    wall: Wall,
    slots: Slots,
}

/// Reason why a listener cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {at} for hosts that join: {error}; is the address one of this host, and \
         the port free?"
    )]
    Listen {
        /// The address.
        at: SocketAddr,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The credentials are unusable, or this host cannot sign.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// TLS refuses the credentials.
    #[error("the credentials of this host are unusable in TLS: {0}; renew them")]
    Tls(#[from] rustls::Error),
    /// No thread can be had.
    #[error(transparent)]
    Thread(#[from] anyhow::Error),
}

impl JoinListener {
    /// Listens at `at` in the name of the host with these credentials.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the host has no authority to sign with.
    pub fn start(
        at: SocketAddr,
        credentials: &Credentials,
        enroll: Arc<dyn Enroll>,
        wall: &Wall,
    ) -> Result<Self, ListenError> {
        let present = Mutex::new(Arc::new(Present::new(credentials, wall)?));
        let failed = |error| ListenError::Listen { at, error };
        let listener = TcpListener::bind(at).map_err(failed)?;
        marked::mark(&listener).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let slots = Slots::default();
        let is_over = AtomicBool::new(false);
        let shared = Arc::new(Shared { listener, present, is_over, wall: wall.clone(), slots });
        let listening = Arc::clone(&shared);
        threads::spawn("joins", move || accept(&listening, &enroll))?;
        Ok(Self { shared, at })
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.at
    }

    /// Uses other credentials, for connections from now on.
    ///
    /// # Errors
    /// If they are unusable; those from before stay.
    pub fn set_credentials(&self, credentials: &Credentials) -> Result<(), ListenError> {
        let present = Arc::new(Present::new(credentials, &self.shared.wall)?);
        *self.shared.present.lock().unwrap_or_else(PoisonError::into_inner) = present;
        Ok(())
    }
}

impl Drop for JoinListener {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // It wakes accept(2) on Linux, with EINVAL.
        _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
    }
}

impl Present {
    fn new(credentials: &Credentials, wall: &Wall) -> Result<Self, ListenError> {
        let der = |pem: &str| {
            CertificateDer::from_pem_slice(pem.as_bytes())
                .map_err(|_| CredentialsError::Certificate)
        };
        let mut chain = vec![der(credentials.certificate())?];
        // A host that joins knows the fingerprint of one of them, and has no file.
        for authority in credentials.authorities() {
            chain.push(der(authority)?);
        }
        let key = PrivateKeyDer::from_pem_slice(credentials.key().as_bytes())
            .map_err(|_| CredentialsError::Key)?;
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        for authority in &chain[1..] {
            roots.add(authority.clone())?;
        }
        // A host that joins has no certificate; one that asks how it stands shows its own.
        let shown =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .clear_root_hint_subjects()
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut tls = ServerConfig::builder_with_details(provider, wall.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(shown)
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![PROTOCOL.to_vec(), STANDING.to_vec()];
        tls.send_tls13_tickets = 0;
        let authority = credentials.authority()?;
        Ok(Self { tls: Arc::new(tls), authority, credentials: credentials.clone() })
    }
}

impl Shared {
    fn present(&self) -> Arc<Present> {
        Arc::clone(&self.present.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> i64 {
        let now = self.wall.current_time().map_or(0, |now| now.as_secs());
        i64::try_from(now).unwrap_or(i64::MAX)
    }
}

fn accept(shared: &Arc<Shared>, enroll: &Arc<dyn Enroll>) {
    loop {
        let accepted = shared.listener.accept();
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, from)) = accepted else {
            clock::sleep(PAUSE);
            continue;
        };
        let address = from.ip().to_canonical();
        let Some(ticket) = shared.slots.take(address, &stream) else { continue };
        let (shared, enroll) = (Arc::clone(shared), Arc::clone(enroll));
        let served =
            threads::spawn("join", move || serve(stream, from, &ticket, &shared, &*enroll));
        if let Err(error) = served {
            say!("a host that asks to join from {address} is turned away: {error:#}");
        }
    }
}

/// Serves one connection.
fn serve(
    stream: TcpStream,
    from: SocketAddr,
    ticket: &Ticket,
    shared: &Shared,
    enroll: &dyn Enroll,
) {
    let present = shared.present();
    let Ok(tls) = ServerConnection::new(Arc::clone(&present.tls)) else { return };
    // It is sent at once, and has one answer.
    _ = stream.set_nodelay(true);
    let mut peer = StreamOwned::new(tls, Timed::new(stream, REQUEST_MAX));
    let line = match read_line(&mut peer, REQUEST_LINE_MAX) {
        Ok(line) => Ok(line),
        Err(LineError::TooLong) => Err(Refused::request("the request is too long")),
        // It is gone, or too slow, or does not speak TLS: there is nobody to answer.
        Err(LineError::Io(_)) => return,
    };
    if !ticket.keep() {
        return;
    }
    let note = |refused: &Refused| enroll.refused(from, refused);
    let mut line = match peer.conn.alpn_protocol() == Some(STANDING) {
        true => {
            let shown = peer.conn.peer_certificates().and_then(<[_]>::first);
            let asker = line.and_then(|line| Asker::parse(&line, shown));
            let outcome = asker.and_then(|asker| enroll.standing(&asker)).inspect_err(note);
            let outcome = outcome.map_or_else(StandingOutcome::Refused, StandingOutcome::Standing);
            serde_json::to_vec(&StandingMessage::new(outcome))
        }
        false => {
            let outcome = line
                .and_then(|line| Joiner::parse(&line))
                .and_then(|joiner| admit(enroll, &present, from, &joiner, shared.now()))
                .inspect_err(note);
            serde_json::to_vec(&JoinAnswer::new(outcome.unwrap_or_else(Outcome::Refused)))
        }
    }
    .expect("texts and numbers");
    line.push(b'\n');
    peer.sock.extend(ANSWER_MAX);
    let answered = peer.write_all(&line).and_then(|()| {
        peer.conn.send_close_notify();
        peer.flush()
    });
    if let Err(error) = answered {
        say!("an answer to the host at {from} was lost ({error}); it may ask again");
    }
}

/// Has a host admitted, and signs its certificate.
fn admit(
    enroll: &dyn Enroll,
    present: &Present,
    from: SocketAddr,
    joiner: &Joiner,
    now: i64,
) -> Result<Outcome, Refused> {
    let admitted = enroll.admit(from, joiner)?;
    let signed = present.authority.sign(&joiner.request, &joiner.name, now, HOST_DAYS);
    let certificate = signed.map_err(|error| Refused::unavailable(error.to_string()))?;
    let number: String = admitted.number.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Outcome::Joined(Box::new(JoinedMessage {
        fabric: admitted.fabric,
        number,
        id: admitted.id,
        certificate,
        authorities: present.credentials.authorities().to_vec(),
        authority: present.credentials.authority_pem().cloned(),
        members: admitted.members,
        next: admitted.next,
    })))
}
