//! Watches the links of this host's TAPs, and reports changes to the member.
//!
//! The kernel reports on a device only to sockets in its namespace, and a socket there would keep a
//! deleted namespace alive. So each TAP is polled a few times a second, on a thread of its own that
//! uses a hundredth of a processor at most, for any number of TAPs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_base::{Nanos, PortId};
use sluice_ports::tap::TapLook;

use super::Fabric;
use super::member::MemberRequest;
use crate::config::TapPlace;
use crate::sys::clock;
use crate::sys::log::say;

/// Time between two polls of a TAP, if there are few.
const EVERY: Nanos = Nanos::from_millis(200);
/// Sleep of the thread per TAP: a hundred times the cost of a poll.
const EACH: Nanos = Nanos::from_millis(2);

/// TAPs that are polled, and the last state of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Taps(Arc<Mutex<BTreeMap<PortId, (TapPlace, bool)>>>);

impl Taps {
    /// Adds a port: it counts as up until it was polled.
    pub(super) fn add(&self, port: PortId, place: &TapPlace) {
        self.lock().insert(port, (place.clone(), true));
    }

    pub(super) fn remove(&self, port: PortId) {
        self.lock().remove(&port);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PortId, (TapPlace, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls for as long as the process lives.
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
                    // The TAP went, or was replaced, meanwhile.
                    _ => continue,
                }
                fabric.ask(MemberRequest::Link(*port, is_up));
            }
            let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
            clock::sleep(EVERY.max(Nanos(EACH.0.saturating_mul(count))));
        }
    }
}
