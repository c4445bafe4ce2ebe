//! The protocol session with the front end (a VMM, or a DPDK process): a thread of its own, since
//! it may take its time, and a front end that stops in the middle of a message must block no other
//! work.
//!
//! ```text
//!   front end ──messages──▶ session ──changes───────▶ driver (the worker's thread)
//!             ◀──replies───         ◀────answers──────
//! ```
//!
//! The rings belong to the driver. A change to them is sent to it, and the front end gets its reply
//! only when the change is done: a ring that is stopped has none of its chains in the switch any
//! more. The session begins anew whenever either side starts anew; in between the driver has no
//! rings.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};
use vhost::vhost_user::{
    BackendReqHandler, Error as ProtocolError, VhostUserBackendReqHandlerMut as _,
};

use super::device::handing::{self, CONNECTION, Known, LISTENER};
use super::device::{Device, Offer};
use super::log::Logging;
use super::memory::Memory;
use super::ring::Place;
use crate::handed::PortHandover;
use crate::notifier::Notifier;

/// Limit of the driver's time for a change.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Interval of attempts to connect to a front end that is not there.
const RETRY: Duration = Duration::from_millis(200);

/// A request in progress may end in this time, unless it waits for the driver.
const BUSY_RETRY: Duration = Duration::from_micros(100);
const BUSY_TRIES: u32 = 20;
/// Interval of checks if a session that was handed over goes on here.
const HANDED_RETRY: Duration = Duration::from_millis(5);

/// Role of the port at the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The port listens, and the front end connects (QEMU: a chardev with `server=off`).
    #[default]
    Server,
    /// The port connects, again and again, until a front end listens (QEMU: `server=on`).
    Client,
}

/// A ring to be started.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) place: Place,
    /// The next available entry.
    pub(super) base: u16,
    pub(super) memory: Arc<Memory>,
    /// Features that were negotiated (virtio 1.2 chapter 6).
    pub(super) features: u64,
    /// Dirty log of its writes.
    pub(super) logging: Option<Logging>,
    pub(super) kick: Option<OwnedFd>,
    pub(super) call: Option<OwnedFd>,
    pub(super) enabled: bool,
}

/// Request to the driver. Rings are numbered as in vhost-user: even ones receive, odd ones
/// transmit, as the guest sees it.
#[derive(Debug)]
pub(super) enum Change {
    Start(u8, Box<Setup>),
    /// The answer is the next available entry.
    Stop(u8),
    Enable(u8, bool),
    Call(u8, Option<OwnedFd>),
    /// Once it is answered, no page is marked any more in the earlier log.
    Log(u8, Option<Logging>),
    /// Another descriptor for kicks, from this moment on.
    Kick(u8, Option<OwnedFd>),
}

/// Result of a change.
pub(super) type Answer = Result<u16, String>;

/// A change, and the channel of its answer.
pub(super) type Ask = (Change, SyncSender<Answer>);

/// State that both threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The socket in use, to be shut down when the port closes.
    connection: Option<UnixStream>,
    closing: bool,
    /// Reason why there is no front end, or why the last one was disconnected.
    problem: Option<String>,
    /// The device of the session.
    device: Option<Arc<Mutex<Device>>>,
    /// True while a request is in progress.
    busy: bool,
    /// True if another process may continue the session: no request is taken.
    handed: bool,
}

/// The driver's end.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Mutex<Shared>>,
    /// Wakes the thread, to end it.
    stop: Notifier,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Path of the socket that was made, to be removed.
    path: Option<PathBuf>,
    listener: Option<UnixListener>,
}

/// The session's channel to the driver.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    asks: SyncSender<Ask>,
    bell: Notifier,
}

impl Driver {
    pub(super) const fn new(asks: SyncSender<Ask>, notifier: Notifier) -> Self {
        Self { asks, bell: notifier }
    }

    /// Sends a change and waits for its answer.
    pub(super) fn ask(&self, change: Change) -> Answer {
        let (reply, answer) = sync_channel(1);
        // First into the channel, then the notification: the driver looks after the notification.
        self.asks.try_send((change, reply)).map_err(|error| match error {
            TrySendError::Full(_) => "the switch has not taken the last change".to_owned(),
            TrySendError::Disconnected(_) => "the port is closed".to_owned(),
        })?;
        self.bell.notify();
        match answer.recv_timeout(ANSWER_WAIT) {
            Ok(answer) => answer,
            Err(_) => Err(format!("the switch did not answer within {ANSWER_WAIT:?}")),
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Its content is consistent after every assignment.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Begins to listen or to connect, or continues a session that was handed over.
    pub(super) fn start(
        path: &Path,
        role: Role,
        offered: Offer,
        driver: Driver,
        mut handed: PortHandover,
    ) -> io::Result<Self> {
        let stop = Notifier::new()?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let listener = match role {
            Role::Server => Some(match handed.take_file(LISTENER).map(UnixListener::from) {
                Some(listener) if is_at(&listener, path) => listener,
                _ => listen(path)?,
            }),
            Role::Client => None,
        };
        let kept = listener.as_ref().map(UnixListener::try_clone).transpose()?;
        let connection = handed.take_file(CONNECTION).map(UnixStream::from);
        let first = connection.and_then(|stream| Some((stream, Known::take_up(&mut handed)?)));
        let made = listener.is_some().then(|| path.to_owned());
        let there = There {
            path: path.to_owned(),
            listener,
            stop: stop.clone(),
            shared: Arc::clone(&shared),
            offered,
            driver,
        };
        let thread = std::thread::Builder::new()
            .name("vhost-user".to_owned())
            .spawn(move || there.run(first))?;
        Ok(Self { shared, stop, thread: Some(thread), path: made, listener: kept })
    }

    /// The reason why there is no front end; `None` if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        lock(&self.shared).problem.clone()
    }

    /// Adds the state that another process needs to continue, the session only if its rings are
    /// `idle`; no request of it is taken any more then.
    pub(super) fn hand_over(&self, idle: bool, handed: &mut PortHandover) -> io::Result<()> {
        if let Some(listener) = &self.listener {
            handed.file(LISTENER, listener.as_fd())?;
        }
        for _ in 0..BUSY_TRIES {
            if !idle || self.hand_over_conversation(handed)? {
                break;
            }
            std::thread::sleep(BUSY_RETRY);
        }
        Ok(())
    }

    /// Returns true if the session was added, or there is none; false while a request is in
    /// progress.
    fn hand_over_conversation(&self, handed: &mut PortHandover) -> io::Result<bool> {
        let mut shared = lock(&self.shared);
        let (Some(connection), Some(device)) = (&shared.connection, &shared.device) else {
            return Ok(true);
        };
        // A request in progress locks the device.
        let device = match device.try_lock() {
            Ok(device) if !shared.busy => device,
            _ => return Ok(false),
        };
        let Some(known) = device.known()? else { return Ok(true) };
        known.hand_over(handed)?;
        handed.file(CONNECTION, connection.as_fd())?;
        drop(device);
        shared.handed = true;
        Ok(true)
    }

    /// Takes requests again: no other process has taken the session over.
    pub(super) fn go_on(&self) {
        lock(&self.shared).handed = false;
    }

    /// Ends the session. The driver's end of the channel must be gone, or the thread may wait for
    /// an answer.
    pub(super) fn close(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let mut shared = lock(&self.shared);
        shared.closing = true;
        if let Some(connection) = shared.connection.take() {
            // It may be shut down already.
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        drop(shared);
        self.stop.notify();
        if thread.join().is_err() {
            // The thread has reported its panic; the port is closed all the same.
        }
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens at a path. A socket without a listener is a remnant, and replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns true if a socket listens there.
fn is_at(listener: &UnixListener, path: &Path) -> bool {
    listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
}

/// The session's thread.
struct There {
    path: PathBuf,
    listener: Option<UnixListener>,
    stop: Notifier,
    shared: Arc<Mutex<Shared>>,
    /// The offer to a front end.
    offered: Offer,
    driver: Driver,
}

impl There {
    fn run(self, first: Option<(UnixStream, Known)>) {
        if let Some((stream, known)) = first {
            self.serve(stream, Some(known));
        }
        while !lock(&self.shared).closing {
            let found = match &self.listener {
                Some(listener) => self.accept(listener),
                None => UnixStream::connect(&self.path),
            };
            match found {
                Ok(stream) => self.serve(stream, None),
                Err(error) => {
                    self.say(format!("no front end at {}: {error}", self.path.display()));
                    self.wait(None, Some(RETRY));
                }
            }
        }
    }

    fn say(&self, problem: String) {
        lock(&self.shared).problem = Some(problem);
    }

    /// Waits until `also` is readable, the port closes, or the time is over.
    fn wait(&self, also: Option<&UnixListener>, time: Option<Duration>) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.stop.fd(), PollFlags::IN)];
        fds.extend(also.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        let time = time.and_then(|time| time.try_into().ok());
        // A signal ends the wait early, and the caller waits again.
        let _ = poll(&mut fds, time.as_ref());
    }

    fn accept(&self, listener: &UnixListener) -> io::Result<UnixStream> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if lock(&self.shared).closing {
                        return Err(io::Error::other("the port closes"));
                    }
                    self.wait(Some(listener), None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Serves one front end until it leaves or breaks the rules.
    fn serve(&self, stream: UnixStream, known: Option<Known>) {
        let Ok(connection) = stream.try_clone() else { return };
        let device = Arc::new(Mutex::new(Device::new(self.driver.clone(), self.offered)));
        {
            let mut shared = lock(&self.shared);
            if shared.closing {
                return;
            }
            shared.connection = Some(connection);
            shared.device = Some(Arc::clone(&device));
            shared.problem = None;
        }
        let error = self.talk(stream, &device, known);
        {
            let mut shared = lock(&self.shared);
            (shared.connection, shared.device) = (None, None);
        }
        let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = device.problem.take();
        device.stop_all();
        self.say(match (problem, error) {
            (Some(problem), _) => problem,
            (None, ProtocolError::Disconnected) => "the front end is gone".to_owned(),
            (None, error) => format!("the front end was left: {error}"),
        });
    }

    /// Handles one request after the other, until there is an error.
    fn talk(
        &self,
        stream: UnixStream,
        device: &Arc<Mutex<Device>>,
        known: Option<Known>,
    ) -> ProtocolError {
        let lock_device = || device.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peeked = match stream.try_clone() {
            Ok(stream) => stream,
            Err(error) => return ProtocolError::SocketError(error),
        };
        let mut handler = match known {
            None => BackendReqHandler::from_stream(stream, Arc::clone(device)),
            Some(known) => {
                let agreed = (known.features, known.protocol);
                let handler = match handing::go_on(&stream, device, agreed) {
                    Ok(handler) => handler,
                    Err(error) => return ProtocolError::SocketError(error),
                };
                if let Err(error) = lock_device().go_on(known) {
                    return error;
                }
                handler
            }
        };
        loop {
            let (early, log_fd) = (early_enable(&peeked), is_log_fd(&peeked));
            let mtu = mtu_of_request(&peeked);
            self.begin_request();
            let done = match (handler.handle_request(), early) {
                (Ok(()) | Err(ProtocolError::SocketRetry(_)), _) => Ok(()),
                (Err(ProtocolError::InactiveFeature(_)), Some((ring, enable))) => {
                    lock_device().set_vring_enable(ring, enable)
                }
                (Err(ProtocolError::InvalidMessage), _) if let Some(mtu) = mtu => {
                    lock_device().set_mtu(mtu)
                }
                (Err(ProtocolError::InvalidMessage), _) if let Some(reply) = log_fd => {
                    peeked.write_all(&reply).map_err(ProtocolError::SocketError)
                }
                (Err(error), _) => Err(error),
            };
            lock(&self.shared).busy = false;
            if let Err(error) = done {
                return error;
            }
        }
    }

    /// Waits until a request may be handled, which is for ever if another process continues the
    /// session.
    fn begin_request(&self) {
        loop {
            let mut shared = lock(&self.shared);
            if !shared.handed || shared.closing {
                shared.busy = true;
                return;
            }
            drop(shared);
            std::thread::sleep(HANDED_RETRY);
        }
    }
}

/// The ring and the flag of the next request, if it is `SET_VRING_ENABLE`.
///
/// QEMU sends it before it has acknowledged the feature that goes with it, and never again, so that
/// the library refuses it, and its content would be lost.
fn early_enable(stream: &UnixStream) -> Option<(u32, bool)> {
    const SET_VRING_ENABLE: u32 = 18;
    let body = peek(stream, SET_VRING_ENABLE)?;
    let [ring, enable] = body.as_chunks().0 else { return None };
    Some((u32::from_ne_bytes(*ring), u32::from_ne_bytes(*enable) != 0))
}

/// The MTU of the next request, if it is `NET_SET_MTU`, which the library does not know.
fn mtu_of_request(stream: &UnixStream) -> Option<u64> {
    const NET_SET_MTU: u32 = 20;
    peek(stream, NET_SET_MTU).map(u64::from_ne_bytes)
}

/// The eight bytes of the next request, if it is of the `wanted` kind.
fn peek(stream: &UnixStream, wanted: u32) -> Option<[u8; 8]> {
    const HEADER_SIZE: usize = 12;
    let mut request = [0; HEADER_SIZE + 8];
    let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
    recv(stream, &mut request[..HEADER_SIZE], flags).ok()?;
    let field = |request: &[u8], at| {
        request[at..].first_chunk().map(|bytes: &[u8; 4]| u32::from_ne_bytes(*bytes))
    };
    if field(&request, 0) != Some(wanted) || field(&request, 8) != Some(8) {
        return None;
    }
    let (_, size) = recv(stream, &mut request[..], flags).ok()?;
    (size == request.len()).then(|| request.last_chunk().copied()).flatten()
}

/// The bytes of the reply to the next request, if it is `SET_LOG_FD`; none unless it wants one.
///
/// The library does not know it. No event is signalled for new marks, as with DPDK: the front end
/// reads the log when it wants to.
fn is_log_fd(stream: &UnixStream) -> Option<Vec<u8>> {
    const SET_LOG_FD: u32 = 7;
    const VERSION: u32 = 1;
    const REPLY: u32 = 1 << 2;
    const NEED_REPLY: u32 = 1 << 3;
    let mut header = [0; 8];
    recv(stream, &mut header[..], RecvFlags::PEEK | RecvFlags::WAITALL).ok()?;
    let [request, flags] = header.as_chunks().0 else { return None };
    let [request, flags] = [request, flags].map(|bytes: &[u8; 4]| u32::from_ne_bytes(*bytes));
    (request == SET_LOG_FD).then(|| match flags & NEED_REPLY {
        0 => Vec::new(),
        // Its header, and 0 as a number of 8 bytes: success.
        _ => [SET_LOG_FD, VERSION | REPLY, 8, 0, 0].iter().flat_map(|w| w.to_ne_bytes()).collect(),
    })
}

/// A region's file.
pub(super) type Region = (super::memory::Layout, File);
