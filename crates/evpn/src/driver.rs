//! The sockets of a speaker. It has no thread: its owner calls [`Driver::turn`] and
//! [`Driver::wait`] by turns.
//!
//! ```text
//!   loop { driver.turn(now)?; … changes, events …; driver.wait(timeout, wake)?; }
//! ```
//!
//! A turn never waits. Each connection is read up to a bound in a turn, so that a neighbor with
//! many routes delays no other for long.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sluice_base::Nanos;

use crate::neighbor::{Link, Side};
use crate::speaker::{Action, Speaker};

/// The port of BGP (RFC 4271 section 8).
pub const PORT: u16 = 179;
/// Bytes that are read from a connection in a turn.
const READ_MAX: usize = 1 << 20;
/// Bytes that are read at a time.
const READ_SIZE: usize = 1 << 16;
/// Connections that are accepted in a turn.
const ACCEPTS_MAX: usize = 16;
/// Time without accepting after an error: descriptors or memory are short.
const DEAF: Nanos = Nanos::from_millis(1_000);
/// Time for a connection to be established by TCP.
const CONNECT_MAX: Nanos = Nanos::from_millis(10_000);
/// Time for the last bytes of a connection to be taken.
const LINGER: Nanos = Nanos::from_millis(1_000);

/// A connection.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    /// End of the time for TCP to connect; `None`: it has.
    connect_until: Option<Nanos>,
    /// End of the time for its last bytes; `None`: it is not to be closed.
    close_at: Option<Nanos>,
}

/// A speaker with its sockets.
#[derive(Debug)]
pub struct Driver {
    speaker: Speaker,
    listener: TcpListener,
    /// Port of the neighbors.
    port: u16,
    wires: BTreeMap<Link, Wire>,
    /// End of a time in which no connection is accepted: the kernel could not give one.
    deaf_until: Option<Nanos>,
    buffer: Vec<u8>,
}

impl Driver {
    /// Listens on an address. Connections to neighbors go out from it, to `port`.
    ///
    /// # Errors
    /// If it cannot be listened on.
    pub fn listen(speaker: Speaker, at: SocketAddr, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let buffer = vec![0; READ_SIZE];
        let wires = BTreeMap::new();
        Ok(Self { speaker, listener, port, wires, deaf_until: None, buffer })
    }

    /// Returns the speaker.
    #[must_use]
    pub const fn speaker(&self) -> &Speaker {
        &self.speaker
    }

    /// Returns the speaker, to be changed.
    pub const fn speaker_mut(&mut self) -> &mut Speaker {
        &mut self.speaker
    }

    /// Reads, lets the speaker work, and writes.
    pub fn turn(&mut self, now: Nanos) {
        self.accept(now);
        for link in self.links() {
            self.read(now, link);
        }
        self.speaker.tick(now);
        self.act(now);
        for link in self.links() {
            self.write(now, link);
        }
    }

    fn links(&self) -> Vec<Link> {
        self.wires.keys().copied().collect()
    }

    fn accept(&mut self, now: Nanos) {
        if self.deaf_until.is_some_and(|until| until > now) {
            return;
        }
        self.deaf_until = None;
        for _ in 0..ACCEPTS_MAX {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It was gone before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.deaf_until = Some(now.after(DEAF));
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Some(link) = self.speaker.accept(now, from.ip().to_canonical()) {
                _ = stream.set_nodelay(true);
                self.wires.insert(link, Wire { stream, connect_until: None, close_at: None });
            }
        }
    }

    fn act(&mut self, now: Nanos) {
        while let Some(action) = self.speaker.action() {
            match action {
                Action::Connect(neighbor) => {
                    let link = Link { neighbor, side: Side::Active };
                    let address = self.speaker.config().neighbors[neighbor.0].address;
                    match self.connect(address) {
                        Ok(stream) => {
                            let connect_until = Some(now.after(CONNECT_MAX));
                            self.wires.insert(link, Wire { stream, connect_until, close_at: None });
                        }
                        Err(_) => self.speaker.disconnected(now, link),
                    }
                }
                Action::Close(link) => match self.wires.get_mut(&link) {
                    Some(wire) => wire.close_at = Some(now.after(LINGER)),
                    None => self.speaker.disconnected(now, link),
                },
            }
        }
    }

    /// Begins to connect, from the address that is listened on.
    fn connect(&self, to: IpAddr) -> io::Result<TcpStream> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let own = self.listener.local_addr()?.ip();
        if !own.is_unspecified() && own.is_ipv4() == to.is_ipv4() {
            rustix::net::bind(&socket, &SocketAddr::new(own, 0))?;
        }
        match rustix::net::connect(&socket, &SocketAddr::new(to, self.port)) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
            Err(error) => Err(error.into()),
        }
    }

    fn close(&mut self, now: Nanos, link: Link) {
        self.wires.remove(&link);
        self.speaker.disconnected(now, link);
    }

    /// Finds out whether TCP has connected. True if the connection can be used.
    fn is_connected(&mut self, now: Nanos, link: Link) -> bool {
        let Some(wire) = self.wires.get_mut(&link) else { return false };
        let Some(until) = wire.connect_until else { return true };
        let error = sockopt::socket_error(&wire.stream);
        let failed = !matches!(error, Ok(Ok(()))) || until <= now;
        if failed {
            self.close(now, link);
        } else if wire.stream.peer_addr().is_ok() {
            wire.connect_until = None;
            _ = wire.stream.set_nodelay(true);
            self.speaker.connected(now, link.neighbor);
            return true;
        }
        false
    }

    fn read(&mut self, now: Nanos, link: Link) {
        if !self.is_connected(now, link) {
            return;
        }
        let mut total = 0;
        while total < READ_MAX {
            let Some(wire) = self.wires.get_mut(&link) else { return };
            match wire.stream.read(&mut self.buffer) {
                Ok(0) => return self.close(now, link),
                Ok(size) => {
                    total += size;
                    self.speaker.receive(now, link, &self.buffer[..size]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.close(now, link),
            }
        }
    }

    fn write(&mut self, now: Nanos, link: Link) {
        let is_open = self.wires.get(&link).is_some_and(|wire| wire.connect_until.is_none());
        while is_open && let Some(wire) = self.wires.get_mut(&link) {
            let output = self.speaker.output(now, link);
            if output.is_empty() {
                break;
            }
            match wire.stream.write(output) {
                Ok(size) => self.speaker.sent(now, link, size),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.close(now, link),
            }
        }
        let close_at = self.wires.get(&link).and_then(|wire| wire.close_at);
        let is_late = close_at.is_some_and(|at| at <= now);
        if is_late || (close_at.is_some() && self.speaker.output(now, link).is_empty()) {
            self.close(now, link);
        }
    }

    /// Waits until a connection can be read or written, something is due, `wake` can be read, or
    /// the time is over.
    ///
    /// # Errors
    /// If the kernel cannot wait.
    pub fn wait(
        &mut self,
        now: Nanos,
        most: Nanos,
        wake: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut flags = BTreeMap::new();
        for link in self.links() {
            let is_open = self.wires[&link].connect_until.is_none();
            let is_full = is_open && !self.speaker.output(now, link).is_empty();
            let out = if is_full || !is_open { PollFlags::OUT } else { PollFlags::empty() };
            flags.insert(link, PollFlags::IN | out);
        }
        let ends = self.wires.values().flat_map(|wire| [wire.connect_until, wire.close_at]);
        let due = ends.flatten().chain(self.deaf_until).chain(self.speaker.deadline()).min();
        let most = due.map_or(most, |at| at.since(now).min(most));
        let mut fds = Vec::new();
        if self.deaf_until.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        fds.extend(flags.iter().map(|(link, flags)| {
            PollFd::from_borrowed_fd(self.wires[link].stream.as_fd(), *flags)
        }));
        fds.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        let timeout = Duration::from_nanos(most.0.min(u64::from(u32::MAX) * 1_000)).try_into();
        match poll(&mut fds, timeout.ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Says to all neighbors that this speaker is shut down (RFC 4486, subcode 2), as far as that
    /// takes no time.
    pub fn shut_down(&mut self, now: Nanos) {
        self.speaker.shut_down();
        self.act(now);
        for link in self.links() {
            self.write(now, link);
        }
    }
}
