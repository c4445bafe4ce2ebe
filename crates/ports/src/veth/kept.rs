//! A pair that outlives the process that opened it.
//!
//! ```text
//!   made ── copies of its descriptors in another process
//!     later: known ─▶ the pair as it is, frames in every ring too
//!            its pair is gone, or may be replaced ─▶ made anew
//! ```
//!
//! The descriptors are all that there is of it: with the last one of its namespace the switch end
//! goes, and the container's card with it. A card that is taken up stays as it is, whatever its
//! owner or the configuration says by then about its name, MAC, addresses and routes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::driver::VethConfig;
use super::napi::Poller;
use super::pair::{Pair, Place, SWITCH_END, SwitchEnd};
use super::requests;
use super::rings::{Plan, Xsk};
use super::waking::Hint;
use crate::device::{Device, device};
use crate::error::OpenError;
use crate::handed::PortHandover;
use crate::netlink::Netlink;
use crate::netns;
use crate::rcvbuf::Arrivals;

/// Names of the descriptors.
const NAMESPACE_FILE: &str = "netns";
const LINK_FILE: &str = "xdp";
/// Name of the private namespace in errors.
const PRIVATE: &str = "(of the switch end)";

/// Descriptors of a pair from an earlier process.
#[derive(Debug)]
pub struct Known {
    /// The descriptors.
    pub handed: PortHandover,
    /// True if no other process may go on with the pair, so that it may be replaced by another one.
    pub is_left: bool,
}

/// A pair that was taken up.
pub(super) struct TakenUp {
    pub(super) end: SwitchEnd,
    pub(super) place: Place,
    /// Index of the container's end, in its namespace.
    pub(super) index: u32,
    /// The count of what arrives there, if the earlier process had one.
    pub(super) arrivals: Option<Arrivals>,
}

/// Copies of the descriptors of a pair.
pub(super) fn copies(end: &SwitchEnd) -> io::Result<PortHandover> {
    let mut handed = PortHandover::default();
    handed.file(NAMESPACE_FILE, end.namespace.as_fd())?;
    handed.file(LINK_FILE, end.link.as_fd())?;
    end.xsk.hand_over(&mut handed)?;
    end.poller.hand_over(&mut handed)?;
    end.hint.hand_over(&mut handed)?;
    Ok(handed)
}

/// Deletes a pair. No error if it is gone.
///
/// # Errors
/// [`OpenError`] says what failed.
pub fn remove(mut handed: PortHandover) -> Result<(), OpenError> {
    let Some(namespace) = handed.take_file(NAMESPACE_FILE) else { return Ok(()) };
    netns::inside(namespace.as_fd(), Path::new(PRIVATE), || {
        let Some(own) = switch_end()? else { return Ok(()) };
        Pair::new(own.index, false)
            .and_then(|mut pair| pair.close())
            .map_err(OpenError::device(SWITCH_END, "delete its pair"))
    })
}

/// The switch end of the caller's namespace; `None` if it is gone.
fn switch_end() -> Result<Option<Device>, OpenError> {
    match device(SWITCH_END) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        found => found.map(Some).map_err(OpenError::device(SWITCH_END, "look it up")),
    }
}

/// Takes up a pair; `None` if another one is to be made.
pub(super) fn take_up(config: &VethConfig, known: Known) -> Result<Option<TakenUp>, OpenError> {
    let Known { mut handed, is_left } = known;
    let failed = |what| OpenError::device(&config.device, what);
    let Some(namespace) = handed.take_file(NAMESPACE_FILE) else { return Ok(None) };
    let work = || {
        let Some(own) = switch_end()? else { return Ok(None) };
        let mut pair = Pair::new(own.index, true).map_err(failed("open a socket for it"))?;
        let done = continue_with(config, &own, &mut handed);
        match done {
            Ok((parts, place, index)) => {
                let (xsk, poller, hint, link) = parts;
                let mac = own.mac;
                let namespace = namespace.try_clone().map_err(failed("copy a descriptor"))?;
                let end = SwitchEnd { pair, xsk, poller, hint, link, namespace, mac };
                let arrivals = Arrivals::adopt(&mut handed).and_then(Result::ok);
                Ok(Some(TakenUp { end, place, index, arrivals }))
            }
            Err(_) if is_left => {
                pair.is_kept = false;
                pair.close().map_err(failed("delete its earlier pair"))?;
                Ok(None)
            }
            Err(error) => Err(failed("take it over")(error)),
        }
    };
    netns::inside(namespace.as_fd(), Path::new(PRIVATE), work)
}

type Parts = (Xsk, Poller, Hint, OwnedFd);

/// Continues with a pair, in the namespace of its switch end.
fn continue_with(
    config: &VethConfig,
    own: &Device,
    handed: &mut PortHandover,
) -> io::Result<(Parts, Place, u32)> {
    if own.mtu != u32::from(config.mtu) {
        return Err(io::Error::other(format!(
            "its MTU is {} and would be {}; restart the daemon, or delete the port and add it \
             again",
            own.mtu, config.mtu
        )));
    }
    let hint = Hint::adopt(handed)?;
    let place = Place::was(config.netns.as_deref(), hint.namespace());
    if !place.may_be_there() {
        return Err(io::Error::other(
            "another namespace has that path now; restart the daemon, or delete the port and add \
             it again",
        ));
    }
    let index = requests::peer(&mut Netlink::open()?, own.index)?;
    let xsk = Xsk::adopt(handed, Plan::new(config.frame_size_max()))?;
    let poller = Poller::adopt(handed)?;
    let link = handed.take_file(LINK_FILE).ok_or(io::ErrorKind::NotFound)?;
    Ok(((xsk, poller, hint, link), place, index))
}
