//! Looks whether somebody is behind the TAPs of this host, and tells the member what has changed.
//!
//! The kernel tells of a device only who has a socket in its namespace, and a socket there would
//! keep a namespace alive that was deleted. So each TAP is looked at a few times a second, on a
//! thread of its own that spends a hundredth of a processor at most, however many there are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_base::{Nanos, PortId};
use sluice_ports::tap::TapLook;

use super::Fabric;
use super::member::Ask;
use crate::clock;
use crate::log::say;

/// How often each is looked at, if there are few.
const EVERY: Nanos = Nanos::from_millis(200);
/// For each of them the thread sleeps so long: a hundred times what a look takes.
const EACH: Nanos = Nanos::from_millis(2);

/// Where a TAP is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapPlace {
    /// The namespace, if it is not the host's.
    pub(crate) netns: Option<PathBuf>,
    /// The device.
    pub(crate) device: String,
}

/// The TAPs that are looked at, and how each was when it was seen last.
#[derive(Clone, Debug, Default)]
pub(super) struct Taps(Arc<Mutex<BTreeMap<PortId, (TapPlace, bool)>>>);

impl Taps {
    /// A port is there: it counts as up until it was seen.
    pub(super) fn add(&self, port: PortId, place: &TapPlace) {
        self.lock().insert(port, (place.clone(), true));
    }

    pub(super) fn remove(&self, port: PortId) {
        self.lock().remove(&port);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PortId, (TapPlace, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for as long as the process lives.
    pub(super) fn watch(&self, fabric: &Fabric) {
        let look = match TapLook::new() {
            Ok(look) => look,
            Err(error) => return say!("the links of TAPs are not seen: {error}"),
        };
        loop {
            let all: Vec<_> =
                self.lock().iter().map(|(port, seen)| (*port, seen.clone())).collect();
            for (port, (place, was_up)) in &all {
                let is_up = look.is_up(place.netns.as_deref(), &place.device);
                if is_up == *was_up {
                    continue;
                }
                match self.lock().get_mut(port) {
                    Some((there, seen)) if there == place => *seen = is_up,
                    // It went, or another one came in its place, meanwhile.
                    _ => continue,
                }
                fabric.ask(Ask::Link(*port, is_up));
            }
            let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
            clock::sleep(EVERY.max(Nanos(EACH.0.saturating_mul(count))));
        }
    }
}
