//! A TAP that outlives the process that opened it.
//!
//! ```text
//!   made ── written down by the caller ── keep: persistent, a second descriptor
//!     later: known, with a descriptor ─▶ the device as it is, frames in its ring too
//!            known, without           ─▶ found by its index and its mark, attached to anew
//!            not known                ─▶ made
//! ```
//!
//! Two things keep a device: a descriptor in another process, which also keeps its carrier and the
//! frames that wait in its ring, and the kernel's flag (`TUNSETPERSIST`), which keeps it when no
//! process is left. The mark is the alias of the device (`ip link show`) and tells its owner: a
//! persistent TAP without the mark belongs to another owner, is attached to and never deleted.
//!
//! For a known device only differences to its earlier configuration are set: addresses, MTU and
//! state that its owner changed stay as they are.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::driver::{TapConfig, TapPort};
use super::rings::{self, Tap};
use crate::error::OpenError;
use crate::netlink::Netlink;
use crate::netns;
use crate::sys::{TapState, tap_netns, tap_persist, tap_state};

/// Limit of the kernel's time to close the descriptors of a process that was killed: some
/// milliseconds for each TAP.
const BUSY_MAX: Duration = Duration::from_secs(10);
const BUSY_RETRY: Duration = Duration::from_millis(5);

/// Record of a TAP from an earlier process.
#[derive(Debug)]
pub struct KnownTap {
    /// Index of the device in its namespace.
    pub index: u32,
    /// True if Sluice made it, so that it is deleted with its port.
    pub is_own: bool,
    /// Its earlier configuration.
    pub given: TapConfig,
    /// A descriptor of it, if one was kept.
    pub file: Option<OwnedFd>,
}

/// A TAP that was opened to be kept.
#[derive(Debug)]
pub struct KeptTap {
    /// The port.
    pub port: TapPort,
    /// Index of the device in its namespace.
    pub index: u32,
    /// True if it is deleted with its port.
    pub is_own: bool,
    /// True if the container leaves offloads to it. A TAP of an earlier release knows none.
    pub offload: bool,
    /// True if its ring can hold its senders. A TAP of an earlier release cannot.
    pub holds: bool,
    file: OwnedFd,
}

impl KeptTap {
    /// Opens the TAP of `config`, or takes up the known one. `mark` is the same each time and tells
    /// it from the TAPs of others.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(
        config: &TapConfig,
        mark: &str,
        known: Option<KnownTap>,
    ) -> Result<Self, OpenError> {
        let (known, place) = place(config, mark, known)?;
        let work = || take_up(config, mark, known);
        let (tap, state, is_own) = match &place {
            Some(place) => netns::inside(place.as_fd(), path(config), work)?,
            None => work()?,
        };
        let copy = tap.fd().try_clone_to_owned();
        let file = copy.map_err(OpenError::device(&config.device, "copy its descriptor"))?;
        let index = tap.index;
        let offload = tap.may_leave_offloads;
        let holds = state.holds;
        Ok(Self { port: TapPort::new(config, tap), index, is_own, offload, holds, file })
    }

    /// Makes the device outlive this process, and returns the port and a descriptor to be kept. The
    /// caller must have written its record before.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn keep(self) -> io::Result<(TapPort, OwnedFd)> {
        if self.is_own {
            tap_persist(self.file.as_fd())?;
        }
        Ok((self.port, self.file))
    }
}

impl KnownTap {
    /// Deletes the device, if it is own, even while it is open. No error if it is gone.
    ///
    /// # Errors
    /// [`OpenError`] says what failed.
    pub fn remove(self, mark: &str) -> Result<(), OpenError> {
        let Self { index, is_own, given, file } = self;
        if !is_own {
            return Ok(());
        }
        let own = file.as_ref().and_then(|file| tap_netns(file.as_fd()).ok());
        if file.is_some() && own.is_none() {
            return Ok(());
        }
        let work = || {
            let failed = |what| OpenError::device(&given.device, what);
            let mut netlink = Netlink::open().map_err(failed("open a socket for it"))?;
            let index = file.as_ref().map_or(Some(index), |file| rings::index_of(file).ok());
            let Some(index) = index else { return Ok(()) };
            match netlink.name_and_alias(index) {
                Ok((_, alias)) if file.is_some() || alias == mark => {
                    netlink.del_link(index).map_err(failed("delete it"))
                }
                _ => Ok(()),
            }
        };
        match (own, given.netns.as_deref().map(netns::open)) {
            (Some(own), _) => netns::inside(own.as_fd(), path(&given), work),
            (None, None) => work(),
            (None, Some(Ok(place))) => netns::inside(place.as_fd(), path(&given), work),
            // A namespace takes its devices along.
            (None, Some(Err(_))) => Ok(()),
        }
    }
}

fn path(config: &TapConfig) -> &Path {
    config.netns.as_deref().unwrap_or(Path::new("of the device"))
}

/// The part of the record that still holds, and the namespace to work in.
fn place(
    config: &TapConfig,
    mark: &str,
    known: Option<KnownTap>,
) -> Result<(Option<KnownTap>, Option<OwnedFd>), OpenError> {
    let wanted = config.netns.as_deref().map(netns::open).transpose();
    let Some(mut known) = known else { return Ok((None, wanted?)) };
    let Some(file) = &known.file else { return Ok((Some(known), wanted?)) };
    let Ok(own) = tap_netns(file.as_fd()) else {
        // The device is gone, and its record is void.
        return Ok((None, wanted?));
    };
    match wanted {
        Ok(Some(wanted)) if !is_same(&own, &wanted) => {
            // Another namespace has the name now. The old one goes with its last device.
            known.remove(mark)?;
            Ok((None, Some(wanted)))
        }
        // The namespace may have lost its name, or the device may have been moved: it is still the
        // same.
        _ => {
            known.index = 0;
            Ok((Some(known), Some(own)))
        }
    }
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let id = |fd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    id(one) == id(other)
}

/// Opens it in the namespace of the calling thread. The result is true if the device is own.
fn take_up(
    config: &TapConfig,
    mark: &str,
    known: Option<KnownTap>,
) -> Result<(Tap, TapState, bool), OpenError> {
    let failed = |what| OpenError::device(&config.device, what);
    let mut netlink = Netlink::open().map_err(failed("open a socket for it"))?;
    let (file, given, was_own) = match known {
        Some(KnownTap { file: Some(file), given, is_own, .. }) => (file, Some(given), is_own),
        Some(KnownTap { index, given, .. }) => match netlink.name_and_alias(index) {
            Ok((name, alias)) if alias == mark => {
                (attach_again(&name, config.holds)?, Some(given), true)
            }
            _ => (rings::attach(&config.device, config.holds)?, None, false),
        },
        None => (rings::attach(&config.device, config.holds)?, None, false),
    };
    let state = tap_state(file.as_fd()).map_err(failed("ask for its state"))?;
    let tap = rings::set_up(config, given.as_ref(), &state.name, file)?;
    let (_, alias) = netlink.name_and_alias(tap.index).map_err(failed("ask whose it is"))?;
    let is_own = was_own || !state.is_persistent || alias == mark;
    if is_own && alias != mark {
        netlink.set_alias(tap.index, mark).map_err(failed("write down whose it is"))?;
    }
    Ok((tap, state, is_own))
}

/// Attaches to a device whose last holder may just be exiting.
fn attach_again(name: &str, holds: bool) -> Result<OwnedFd, OpenError> {
    let until = Instant::now() + BUSY_MAX;
    loop {
        match rings::attach(name, holds) {
            Err(OpenError::Device { source, .. })
                if source.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until =>
            {
                std::thread::sleep(BUSY_RETRY);
            }
            done => return done,
        }
    }
}
