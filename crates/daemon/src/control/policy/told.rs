//! Messages to data, and the state of a policy on this host.

use std::fs;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sluice_api::placement::{Followed, PlaceStatus, PolicyVersion, Stamped, Status, Steered};

use super::Held;
use crate::ipc::protocol::{self, Request};
use crate::sys::log::say;

/// Longest time for data's answer.
pub(super) const DATA_MAX: Duration = Duration::from_secs(1);
/// Time for which the last report of `sluice steer` counts; it reports each second.
const FRESH: Duration = Duration::from_secs(5);
/// Shortest time limit of a socket; zero would mean no limit.
const LIMIT_MIN: Duration = Duration::from_millis(1);

/// Turns of threads that talk to data, one at a time: a mutex with a time limit.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<bool>,
    free: Condvar,
}

/// Guard of a turn.
struct Turn<'a>(&'a Turns);

impl Turns {
    fn take(&self, until: Instant) -> Option<Turn<'_>> {
        let left = until.saturating_duration_since(Instant::now());
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(taken, left, |taken| *taken);
        let mut taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *taken {
            return None;
        }
        *taken = true;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.free.notify_one();
    }
}

impl Held {
    /// Tells data the policy that holds, and returns its state.
    pub(super) fn tell_data(&self, within: Duration) -> Result<Followed, String> {
        let until = Instant::now() + within.min(DATA_MAX);
        let silent = |error: std::io::Error| format!("the data process does not answer: {error}");
        // A turn lasts from reading the policy to the answer: a thread that read earlier must not
        // send later.
        let turn = self.turns.take(until);
        let _turn = turn.ok_or("the data process does not answer: others wait for it, too")?;
        let left = until.saturating_duration_since(Instant::now()).max(LIMIT_MIN);
        let data = protocol::connect_within(&self.run_dir, left).map_err(silent)?;
        let line = protocol::ask(data, &Request::Follow(Box::new(self.now()))).map_err(silent)?;
        protocol::expect(&line).map_err(|error| error.to_string())
    }

    /// Puts the policy of the fabric's configuration in force; `None`: it has none.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn put_in_force(&self, placement: Option<&Stamped>) -> Result<(), String> {
        if self.commit(placement)? {
            let PolicyVersion { version, by, .. } = self.now().stamp;
            say!("placement policy {version} of {by} holds, by the fabric's configuration");
            // A data process that is silent now is told again.
            _ = self.tell_data(DATA_MAX);
        }
        Ok(())
    }

    /// Returns the state of the policy on this host.
    pub(super) fn status(&self, within: Duration) -> Status {
        let (stamp, mut notes) = (self.now().stamp, self.troubles());
        let answer = self.tell_data(within);
        // The state of a silent data process is unknown.
        let has_answered = answer.is_ok();
        let mut places = match answer {
            Ok(Followed { places, notes: its }) => {
                notes.extend(its);
                places
            }
            Err(error) => {
                notes.push(error);
                Vec::new()
            }
        };
        places.extend(self.steered(&mut notes));
        // A roll-back goes to a lower stamp.
        let follows = has_answered && places.iter().all(|place| place.stamp == stamp);
        Status { host: self.host.clone(), stamp: Some(stamp), follows, places, notes }
    }

    /// Returns the state that each following `sluice steer` has written.
    fn steered(&self, notes: &mut Vec<String>) -> Vec<PlaceStatus> {
        let mut all = Vec::new();
        for file in fs::read_dir(&self.run_dir).into_iter().flatten().flatten() {
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            let device = name.strip_prefix("steer-").and_then(|name| name.strip_suffix(".json"));
            let Some(device) = device else { continue };
            let written = file.metadata().and_then(|data| data.modified());
            let age = written.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            if age.is_some_and(|age| age > FRESH) {
                notes.push(format!("{device} is not steered any more: {name} is old"));
                continue;
            }
            match fs::read(file.path()).map(|bytes| serde_json::from_slice(&bytes)) {
                Ok(Ok(Steered { place, notes: its })) => {
                    notes.extend(its.iter().map(|note| format!("{device}: {note}")));
                    all.push(place);
                }
                Ok(Err(error)) => notes.push(format!("{name} cannot be read: {error}")),
                // The process has just ended.
                Err(_) => {}
            }
        }
        all.sort_by(|a: &PlaceStatus, b| a.name.cmp(&b.name));
        all
    }
}
