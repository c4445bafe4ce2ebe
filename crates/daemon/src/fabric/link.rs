//! One connection to another host: TCP with TLS around the messages of a session, without ever
//! waiting.
//!
//! ```text
//!   connect ──> CONNECTING ──> HANDSHAKE ──> OPEN ──┬──> closed by the peer, in good order
//!   accept  ──────────────────────^                 └──> failed
//! ```
//!
//! The socket is edge-triggered ([`crate::sys::poller`]): [`Link::work`] reads until there is
//! nothing more and writes until there is no room, and need not be called before the next edge,
//! except after [`Link::send`].
//!
//! Messages go into the TLS layer's buffer at once. [`Link::room`] is zero until all of it has
//! reached the socket, so that a slow peer holds a bounded amount here. The rest stays in the
//! publisher's log, where it can still be coalesced.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::Connection;
use rustls::pki_types::CertificateDer;

use super::identity::{Identity, reason};
use super::seal::SECRET_SIZE;
pub(super) use crate::sys::marked::mark;

/// Most bytes that are handed to a connection at a time.
const ROOM: usize = 256 << 10;
/// Most bytes that are read from a connection before others are served.
const READ_MAX: usize = 1 << 20;

/// Label of the exporter for the keys of datagrams (RFC 8446 section 7.5).
const LABEL: &[u8] = b"EXPORTER-sluice-liveness";
/// Silence after which the kernel probes a peer, and time between two probes. A peer that does not
/// answer was switched off, or its path was. The session notices earlier; this limit is for
/// connections without a session.
const SILENT: Duration = Duration::from_secs(1);
/// Probes of the kernel without an answer.
const SILENT_COUNT: u32 = 3;

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The peer has gone.
    #[error("the connection was closed")]
    Closed,
    /// The connection comes from an address of no member.
    #[error("a connection from an address that no member has that connects to this host")]
    Stranger,
    /// The certificate is of this fabric, and of no member.
    #[error("its certificate is of this fabric, and of no member that the file names")]
    NoMember,
    /// No authority that is trusted now has signed the certificate.
    #[error("its certificate is of an authority that is not trusted any more")]
    Outdated,
    /// The certificate was ended before its time.
    #[error("its certificate was revoked when its host was evicted; that host may join again")]
    Revoked,
    /// The certificate is a member's, from another address.
    #[error("it shows the certificate of {0} from another address; is it a copy of that host?")]
    Copy(String),
    /// The member with the higher number is to wait.
    #[error(
        "it shows the certificate of {0}, to which this host connects; are the ids as they say?"
    )]
    WrongWay(String),
    /// TCP was not established in time.
    #[error("it does not answer; is it up, and the way to it?")]
    NoConnection,
    /// TLS was not established in time.
    #[error("it does not say who it is")]
    NoHandshake,
    /// Error of the network.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// Error of TLS, such as a peer that this host does not accept.
    #[error("TLS: {}", reason(.0))]
    Tls(#[from] rustls::Error),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    tls: Connection,
    /// True until the TCP connection is established.
    connecting: bool,
}

impl Link {
    /// Begins to connect to host `name`, from the own address.
    pub(super) fn connect(
        from: std::net::IpAddr,
        to: SocketAddr,
        name: &str,
        identity: &Identity,
    ) -> Result<Self, Failure> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        // Before the first packet: the guard drops packets without the mark.
        mark(&socket)?;
        rustix::net::bind(&socket, &SocketAddr::new(from, 0)).map_err(io::Error::from)?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let stream = TcpStream::from(socket);
        set_options(&stream)?;
        Ok(Self::new(stream, identity.connect(name)?.into(), true))
    }

    /// Takes a connection that was accepted.
    pub(super) fn accept(stream: TcpStream, identity: &Identity) -> Result<Self, Failure> {
        stream.set_nonblocking(true)?;
        set_options(&stream)?;
        Ok(Self::new(stream, identity.accept()?.into(), false))
    }

    fn new(stream: TcpStream, mut tls: Connection, connecting: bool) -> Self {
        // The bound is `room`: TLS would refuse a part of an accepted message.
        tls.set_buffer_limit(None);
        Self { stream, tls, connecting }
    }

    /// Reads into `into` and writes the waiting bytes. Returns true if there is more to read at
    /// once.
    pub(super) fn work(&mut self, into: &mut Vec<u8>) -> Result<bool, Failure> {
        if self.connecting {
            if let Err(error) = sockopt::socket_error(&self.stream).map_err(io::Error::from)? {
                return Err(io::Error::from(error).into());
            }
            if self.stream.peer_addr().is_err() {
                return Ok(false);
            }
            self.connecting = false;
        }
        let read = self.read(into);
        // After a failure the TLS layer may still have an alert to send.
        let written = self.flush();
        let more = read?;
        written?;
        Ok(more)
    }

    fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, Failure> {
        let start = into.len();
        loop {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(Failure::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            let state = self.tls.process_new_packets()?;
            let at = into.len();
            into.resize(at + state.plaintext_bytes_to_read(), 0);
            if into.len() > at {
                self.tls.reader().read_exact(&mut into[at..])?;
            }
            if state.peer_has_closed() {
                return Err(Failure::Closed);
            }
            if into.len() - start >= READ_MAX {
                return Ok(true);
            }
        }
    }

    /// Writes until the socket is full or nothing waits.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        while !self.connecting && self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns true if both sides are authenticated.
    pub(super) fn is_open(&self) -> bool {
        !self.connecting && !self.tls.is_handshaking()
    }

    /// Returns true if the TCP connection is established.
    pub(super) const fn is_connected(&self) -> bool {
        !self.connecting
    }

    /// Returns true if this side began the connection.
    pub(super) const fn began(&self) -> bool {
        matches!(self.tls, Connection::Client(_))
    }

    /// Returns the secret that only both sides know, once the connection is open.
    pub(super) fn secret(&self) -> Option<[u8; SECRET_SIZE]> {
        self.tls.export_keying_material([0; SECRET_SIZE], LABEL, None).ok()
    }

    /// Returns the number of bytes that may be sent now.
    pub(super) fn room(&self) -> usize {
        if self.is_open() && !self.tls.wants_write() { ROOM } else { 0 }
    }

    /// Sends bytes, at most [`Self::room`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.tls.writer().write_all(bytes)?;
        self.flush()
    }

    /// Says goodbye in TLS, as far as there is room.
    pub(super) fn close(mut self) {
        self.tls.send_close_notify();
        // No caller is left for an error.
        _ = self.flush();
    }

    /// Returns the certificate of the peer, once the connection is open.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.peer_certificates().and_then(<[_]>::first)
    }

    /// Returns the address of the peer.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

/// Sets the options of a connection.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT)?;
    sockopt::set_tcp_keepintvl(stream, SILENT)?;
    sockopt::set_tcp_keepcnt(stream, SILENT_COUNT)?;
    let millis = u32::try_from((SILENT * SILENT_COUNT).as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)?;
    mark(stream)
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests;
