//! What hosts say to each other of the policy.

use serde::{Deserialize, Serialize};
use sluice_api::placement::{Policy, Stamp, Status};
use sluice_base::HostId;
use sluice_control::rpc::Failure;
use sluice_wire::fabric::ANSWER_SIZE_MAX;

use super::Held;

/// Of how many CPUs a host tells another one.
const CPUS_MAX: usize = 24;
/// Of how many places, and how many notes of so many characters.
const PLACES_MAX: usize = 8;
const NOTES_MAX: usize = 8;
const NOTE_SIZE_MAX: usize = 120;

/// Which one do you hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// That of the host that asks.
    pub(super) stamp: Stamp,
    /// What the other one has made of it is wanted, too.
    pub(super) wants_status: bool,
}

/// This one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) stamp: Stamp,
    /// What it says, if it is newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<Policy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
}

impl Told {
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

impl Held {
    /// Answers a member. One that has a newer policy is asked for it at once.
    pub(crate) fn serve(&self, from: HostId, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let asked: Asked = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
        let held = self.now();
        if asked.stamp > held.stamp {
            self.hint(from);
        }
        let policy = (held.stamp > asked.stamp).then_some(held.policy);
        let status = asked.wants_status.then(|| bounded(self.status()));
        let mut told = Told { stamp: held.stamp, policy, status };
        let mut body = serde_json::to_vec(&told).map_err(|_| Failure::Refused)?;
        if body.len() > ANSWER_SIZE_MAX {
            // The policy is what matters.
            told.status = None;
            body = serde_json::to_vec(&told).map_err(|_| Failure::Refused)?;
        }
        Ok(body)
    }
}

/// As much of it as fits into an answer.
pub(super) fn bounded(mut status: Status) -> Status {
    status.places.truncate(PLACES_MAX);
    let mut left = CPUS_MAX;
    let mut cut = 0;
    for place in &mut status.places {
        cut += place.cpus.len().saturating_sub(left);
        place.cpus.truncate(left);
        left -= place.cpus.len();
    }
    status.notes.truncate(NOTES_MAX);
    if cut > 0 {
        status.notes.push(format!("{cut} more CPUs: ask that host itself"));
    }
    for note in &mut status.notes {
        let cut = note.char_indices().nth(NOTE_SIZE_MAX).map_or(note.len(), |(at, _)| at);
        note.truncate(cut);
    }
    status
}
