//! The front end of vhost-user: the requests of a guest's hypervisor to the switch.
//!
//! ```text
//!   SET_OWNER, GET_FEATURES, protocol features, SET_FEATURES, SET_MEM_TABLE
//!   per ring: NUM, BASE, ADDR, CALL, KICK      which starts it
//!             ENABLE                            which lets frames through
//!   at the end: GET_VRING_BASE                  which stops it
//! ```
//!
//! Either side may own the socket: [`connect`] connects to a switch that listens, [`Listener`]
//! waits for one that connects. Messages are those of the crate `vhost`; a switch that does not
//! answer causes an error after [`ANSWER_MAX`].

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVringAddrFlags,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VringConfigData};

use super::error::GuestError;
use super::feature;
use super::log::Log;
use super::memory::Memory;
use super::ring::Ring;

/// The longest wait for an answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// Connects to a switch that listens, with up to `attempts` attempts 20 ms apart.
///
/// # Errors
/// [`GuestError::Socket`].
pub fn connect(path: &Path, attempts: u32) -> Result<UnixStream, GuestError> {
    let mut left = attempts.max(1);
    loop {
        left -= 1;
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(source) if left == 0 => return Err(socket(path)(source)),
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

fn socket(path: &Path) -> impl Fn(io::Error) -> GuestError {
    move |source| GuestError::Socket { path: path.to_owned(), source }
}

/// A socket to which a switch connects. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens at a path; a file that is there already is replaced.
    ///
    /// # Errors
    /// [`GuestError::Socket`].
    pub fn bind(path: &Path) -> Result<Self, GuestError> {
        _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(socket(path))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Waits for the switch, which may connect again after it went.
    ///
    /// # Errors
    /// [`GuestError::Nobody`], [`GuestError::Socket`].
    pub fn accept(&self, time_max: Duration) -> Result<UnixStream, GuestError> {
        if !is_ready(self.listener.as_fd(), PollFlags::IN, time_max) {
            return Err(GuestError::Nobody { path: self.path.clone() });
        }
        self.listener.accept().map(|(stream, _)| stream).map_err(socket(&self.path))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

fn is_ready(fd: std::os::fd::BorrowedFd<'_>, flags: PollFlags, time_max: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let time_max = Timespec::try_from(time_max).ok();
    matches!(poll(&mut fds, time_max.as_ref()), Ok(n) if n > 0) && !fds[0].revents().is_empty()
}

/// A connection to a switch.
pub(super) struct Link {
    frontend: Frontend,
    stream: UnixStream,
    offered: u64,
}

/// Names the request in an error.
fn of<T>(request: &'static str, result: vhost::Result<T>) -> Result<T, GuestError> {
    result.map_err(|source| GuestError::Request { request, source })
}

impl Link {
    /// Opens a connection: reads the offered features and negotiates protocol features.
    pub(super) fn new(
        stream: UnixStream,
        rings: usize,
        wanted: u64,
        acknowledge: bool,
    ) -> Result<Self, GuestError> {
        let copy = stream.try_clone().and_then(|copy| {
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            stream.set_write_timeout(Some(ANSWER_MAX))?;
            Ok(copy)
        });
        let copy = copy.map_err(|source| GuestError::System { what: "set up a socket", source })?;
        let mut frontend = Frontend::from_stream(stream, rings as u64);
        of("SET_OWNER", frontend.set_owner())?;
        let offered = of("GET_FEATURES", frontend.get_features())?;
        if offered & wanted & feature::PROTOCOL_FEATURES != 0 {
            // The crate allows them only once the bit is agreed.
            of("SET_FEATURES", frontend.set_features(feature::PROTOCOL_FEATURES))?;
            let mut mine = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::LOG_SHMFD;
            if acknowledge {
                mine |= VhostUserProtocolFeatures::REPLY_ACK;
            }
            let protocol = of("GET_PROTOCOL_FEATURES", frontend.get_protocol_features())? & mine;
            of("SET_PROTOCOL_FEATURES", frontend.set_protocol_features(protocol))?;
            if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
                frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            }
        }
        // The number of queues is not requested: some back ends answer in pairs, which the crate
        // would take for rings. A back end that has too few refuses the ring.
        Ok(Self { frontend, stream: copy, offered })
    }

    /// Returns the features that the switch offers.
    pub(super) fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns true if the switch has not hung up.
    pub(super) fn is_up(&self) -> bool {
        !is_ready(self.stream.as_fd(), PollFlags::RDHUP, Duration::ZERO)
    }

    pub(super) fn set_features(&self, features: u64) -> Result<(), GuestError> {
        of("SET_FEATURES", self.frontend.set_features(features))
    }

    pub(super) fn set_memory(&self, memory: &Memory) -> Result<(), GuestError> {
        of("SET_MEM_TABLE", self.frontend.set_mem_table(&memory.regions())).map(drop)
    }

    pub(super) fn set_log(&self, log: &Log) -> Result<(), GuestError> {
        // A back end without this feature would get it as an address, and not answer.
        of("SET_LOG_BASE", self.frontend.set_log_base(0, Some(log.region())))?;
        // Some back ends need an eventfd for log notifications; this front end does not wait for
        // it.
        of("SET_LOG_FD", self.frontend.set_log_fd(log.bell().as_raw_fd()))
    }

    /// Sets the addresses of a ring, and whether writes into its used part are logged.
    pub(super) fn place(
        &self,
        index: usize,
        ring: &Ring,
        memory: &Memory,
        logs: bool,
    ) -> Result<(), GuestError> {
        let parts = ring.parts();
        let log = VhostUserVringAddrFlags::VHOST_VRING_F_LOG.bits();
        let config = VringConfigData {
            queue_max_size: ring.size(),
            queue_size: ring.size(),
            flags: if logs { log } else { 0 },
            desc_table_addr: memory.address(parts.descriptors),
            used_ring_addr: memory.address(parts.used),
            avail_ring_addr: memory.address(parts.avail),
            log_addr: logs.then(|| memory.guest_address(parts.used)),
        };
        of("SET_VRING_ADDR", self.frontend.set_vring_addr(index, &config))
    }

    /// Starts a ring from an index on.
    pub(super) fn start(
        &self,
        index: usize,
        ring: &Ring,
        memory: &Memory,
        base: u16,
        logs: bool,
    ) -> Result<(), GuestError> {
        let frontend = &self.frontend;
        of("SET_VRING_NUM", frontend.set_vring_num(index, ring.size()))?;
        of("SET_VRING_BASE", frontend.set_vring_base(index, base))?;
        self.place(index, ring, memory, logs)?;
        of("SET_VRING_CALL", frontend.set_vring_call(index, ring.call_fd()))?;
        of("SET_VRING_KICK", frontend.set_vring_kick(index, ring.kick_fd()))
    }

    /// Lets frames through a ring, or holds them back. Without protocol features a ring is open
    /// once it is started.
    pub(super) fn enable(&self, index: usize, enable: bool) -> Result<(), GuestError> {
        if self.offered & feature::PROTOCOL_FEATURES == 0 {
            return Ok(());
        }
        of("SET_VRING_ENABLE", self.frontend.clone().set_vring_enable(index, enable))
    }

    /// Stops a ring. Returns the index from which it is to continue.
    pub(super) fn stop(&self, index: usize) -> Result<u16, GuestError> {
        let base = of("GET_VRING_BASE", self.frontend.get_vring_base(index))?;
        Ok(u16::try_from(base & 0xffff).unwrap_or(0))
    }
}
