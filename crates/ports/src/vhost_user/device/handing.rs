//! Hand-over of a session to another process: the device state that the front end has set, with the
//! descriptors that it gave.
//!
//! ```text
//!   old: no request in progress ── none is taken any more ── bases of its rings ── descriptors
//!   new: the same state ── rings start where the old ones stopped ── the session goes on
//! ```
//!
//! The session stays while handles of a guest's frames are out, or during a migration of the guest:
//! then the front end connects again, as after any start. The socket at which a port listens goes
//! over in any case.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use vhost::vhost_user::{BackendReqHandler, Result};

use super::{Device, LOG_ALL, Vring, cloned};
use crate::handed::PortHandover;
use crate::vhost_user::memory::{Layout, Memory};
use crate::vhost_user::ring::Place;
use crate::vhost_user::session::Region;

/// Names of the state.
pub(in crate::vhost_user) const LISTENER: &str = "listener";
pub(in crate::vhost_user) const CONNECTION: &str = "connection";
const FEATURES: &str = "features";
const PROTOCOL: &str = "protocol";
const RINGS: &str = "rings";

/// State of one ring.
#[derive(Debug, Default)]
pub(in crate::vhost_user) struct KnownRing {
    pub(in crate::vhost_user) place: Place,
    pub(in crate::vhost_user) placed: bool,
    pub(in crate::vhost_user) base: u16,
    pub(in crate::vhost_user) kick: Option<File>,
    pub(in crate::vhost_user) call: Option<File>,
    pub(in crate::vhost_user) enabled: bool,
}

/// State of the device, as the front end has set it.
#[derive(Debug, Default)]
pub(in crate::vhost_user) struct Known {
    pub(in crate::vhost_user) features: u64,
    pub(in crate::vhost_user) protocol: u64,
    pub(in crate::vhost_user) regions: Vec<Region>,
    pub(in crate::vhost_user) rings: Vec<KnownRing>,
}

/// Name of a part of a region, or of a ring.
fn of(kind: &str, index: usize, what: &str) -> String {
    format!("{kind}{index}.{what}")
}

/// Name of the base of a ring; its driver has the current value.
pub(in crate::vhost_user) fn base_of(ring: usize) -> String {
    of("ring", ring, "base")
}

impl Known {
    /// Adds the state to a hand-over.
    pub(in crate::vhost_user) fn hand_over(&self, handed: &mut PortHandover) -> io::Result<()> {
        handed.number(FEATURES, self.features);
        handed.number(PROTOCOL, self.protocol);
        handed.number(RINGS, self.rings.len() as u64);
        for (at, (layout, file)) in self.regions.iter().enumerate() {
            handed.file(&of("region", at, "file"), file.as_fd())?;
            let Layout { guest, user, size, offset } = *layout;
            for (what, value) in
                [("guest", guest), ("user", user), ("size", size), ("offset", offset)]
            {
                handed.number(&of("region", at, what), value);
            }
        }
        for (at, ring) in self.rings.iter().enumerate() {
            for (what, file) in [("kick", &ring.kick), ("call", &ring.call)] {
                if let Some(file) = file {
                    handed.file(&of("ring", at, what), file.as_fd())?;
                }
            }
            let Place { size, desc, avail, used } = ring.place;
            for (what, value) in [
                ("size", size.into()),
                ("desc", desc),
                ("avail", avail),
                ("used", used),
                ("base", ring.base.into()),
                ("placed", ring.placed.into()),
                ("enabled", ring.enabled.into()),
            ] {
                handed.number(&of("ring", at, what), value);
            }
        }
        Ok(())
    }

    /// Takes the state out of a hand-over; `None` if something is missing.
    pub(in crate::vhost_user) fn take_up(handed: &mut PortHandover) -> Option<Self> {
        let numbers = std::mem::take(&mut handed.numbers);
        let number = |name: &str| numbers.get(name).copied();
        let mut known =
            Self { features: number(FEATURES)?, protocol: number(PROTOCOL)?, ..Self::default() };
        while let Some(file) = handed.take_file(&of("region", known.regions.len(), "file")) {
            let value = |what| number(&of("region", known.regions.len(), what));
            let layout = Layout {
                guest: value("guest")?,
                user: value("user")?,
                size: value("size")?,
                offset: value("offset")?,
            };
            known.regions.push((layout, file.into()));
        }
        for at in 0..usize::try_from(number(RINGS)?).ok()? {
            let value = |what| number(&of("ring", at, what));
            let short = |what| u16::try_from(value(what)?).ok();
            let place = Place {
                size: short("size")?,
                desc: value("desc")?,
                avail: value("avail")?,
                used: value("used")?,
            };
            known.rings.push(KnownRing {
                place,
                placed: value("placed")? != 0,
                base: short("base")?,
                kick: handed.take_file(&of("ring", at, "kick")).map(Into::into),
                call: handed.take_file(&of("ring", at, "call")).map(Into::into),
                enabled: value("enabled")? != 0,
            });
        }
        Some(known)
    }
}

impl Device {
    /// The state of the device, if another process can continue the session.
    pub(in crate::vhost_user) fn known(&self) -> io::Result<Option<Known>> {
        if self.features & LOG_ALL != 0 || self.log.is_some() {
            return Ok(None);
        }
        let copy = |file: &Option<File>| file.as_ref().map(File::try_clone).transpose();
        let ring = |ring: &Vring| -> io::Result<KnownRing> {
            Ok(KnownRing {
                place: ring.place,
                placed: ring.placed,
                base: ring.base,
                kick: copy(&ring.kick)?,
                call: copy(&ring.call)?,
                enabled: ring.enabled,
            })
        };
        Ok(Some(Known {
            features: self.features,
            protocol: self.protocol,
            regions: cloned(&self.regions)?,
            rings: self.rings.iter().map(ring).collect::<io::Result<_>>()?,
        }))
    }

    /// Continues with the state from another process. Features are negotiated already.
    pub(in crate::vhost_user) fn go_on(&mut self, known: Known) -> Result<()> {
        if known.rings.len() != self.rings.len() {
            return self.refuse("another number of queues than before");
        }
        self.memory = match Memory::map(&known.regions) {
            Ok(memory) => Arc::new(memory),
            Err(error) => return self.refuse(format!("guest memory: {error}")),
        };
        self.regions = known.regions;
        for (at, known) in known.rings.into_iter().enumerate() {
            let ring = &mut self.rings[at];
            (ring.place, ring.placed, ring.base) = (known.place, known.placed, known.base);
            (ring.kick, ring.call, ring.enabled) = (known.kick, known.call, known.enabled);
            self.start_if_ready(at)?;
        }
        Ok(())
    }
}

/// The requests that negotiate features, which the library must get before it takes others:
/// `GET_FEATURES`, `SET_FEATURES`, and the same of the protocol.
fn agreement(features: u64, protocol: u64) -> Vec<u8> {
    const VERSION: u32 = 1;
    let request = |number: u32, value: Option<u64>| {
        let size = if value.is_some() { 8 } else { 0 };
        let header = [number, VERSION, size].into_iter().flat_map(u32::to_ne_bytes);
        header.chain(value.into_iter().flat_map(u64::to_ne_bytes)).collect::<Vec<u8>>()
    };
    let requests = [(1, None), (2, Some(features)), (15, None), (16, Some(protocol))];
    requests.into_iter().flat_map(|(number, value)| request(number, value)).collect()
}

/// Makes a handler that continues a session. It receives the negotiation on a socket of its own,
/// whose descriptor then becomes the connection's.
pub(in crate::vhost_user) fn go_on(
    stream: &UnixStream,
    device: &Arc<Mutex<Device>>,
    (features, protocol): (u64, u64),
) -> io::Result<BackendReqHandler<Mutex<Device>>> {
    let (mut theirs, ours) = UnixStream::pair()?;
    theirs.write_all(&agreement(features, protocol))?;
    let number = ours.as_raw_fd();
    let mut handler = BackendReqHandler::from_stream(ours, Arc::clone(device));
    for _ in 0..4 {
        handler.handle_request().map_err(io::Error::other)?;
    }
    crate::sys::replace_descriptor(number, stream.as_fd())?;
    Ok(handler)
}
