//! What hosts say to each other of the policy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
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
const NOTE_SIZE_MAX: usize = 200;

/// Which one do you hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// That of the host that asks.
    pub(super) stamp: Stamp,
    /// What the other one has made of it is wanted, too.
    pub(super) wants_status: bool,
}

/// This one.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Told {
    stamp: Stamp,
    /// What it says, if it is newer.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// What was told, as far as this version understands it.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) stamp: Stamp,
    /// What it says, if it is newer, or why it cannot be read.
    pub(super) policy: Option<Result<Policy, String>>,
    pub(super) status: Option<Status>,
}

impl Heard {
    /// Which policy it is can be read also if what it says cannot: that may have come with a later
    /// version.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Raw {
            stamp: Stamp,
            policy: Option<Value>,
            status: Option<Value>,
        }
        let Raw { stamp, policy, status } = serde_json::from_slice(body).ok()?;
        let read = |policy| {
            serde_json::from_value(policy)
                .map_err(|error| format!("this version cannot read it ({error}); update this host"))
        };
        let status = status.and_then(|status| serde_json::from_value(status).ok());
        let status = status.map(|mut status: Status| {
            status.clean();
            status
        });
        Some(Self { stamp, policy: policy.map(read), status })
    }
}

/// For how long a member may make its status.
const STATUS_MAX: Duration = Duration::from_secs(1);

impl Held {
    /// Answers a member. One that has a newer policy is asked for it at once.
    pub(crate) fn serve(&self, from: HostId, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let asked: Asked = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
        let held = self.now();
        if asked.stamp > held.stamp {
            self.hint(from);
        }
        let policy = (held.stamp > asked.stamp).then_some(held.policy);
        let status = asked.wants_status.then(|| bounded(self.status(STATUS_MAX)));
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
