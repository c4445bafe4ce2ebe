//! Messages between hosts about the policy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_api::placement::{Policy, PolicyVersion, Status};
use sluice_base::HostId;
use sluice_control::rpc::Failure;
use sluice_wire::fabric::ANSWER_SIZE_MAX;

use super::Held;
use crate::fabric::PolicyServer;

/// Most CPUs that a host reports to another one.
const CPUS_MAX: usize = 24;
/// Most places, most notes, and longest note in characters.
const PLACES_MAX: usize = 8;
const NOTES_MAX: usize = 8;
const NOTE_SIZE_MAX: usize = 200;

/// Question: which policy do you hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Stamp of the asking host's policy.
    pub(super) stamp: PolicyVersion,
    /// True if the other host's state is wanted, too.
    pub(super) wants_status: bool,
}

/// Answer: this policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct PolicyAnswer {
    stamp: PolicyVersion,
    /// The policy, if it is newer.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// An answer, as far as this version understands it.
#[derive(Debug)]
pub(super) struct ReceivedAnswer {
    pub(super) stamp: PolicyVersion,
    /// The policy, if it is newer, or the reason why it cannot be read.
    pub(super) policy: Option<Result<Policy, String>>,
    pub(super) status: Option<Status>,
}

impl ReceivedAnswer {
    /// Parses an answer. The stamp can be read even if the policy cannot: that may come from a
    /// later version.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Raw {
            stamp: PolicyVersion,
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

/// Longest time for a member to compose its status.
const STATUS_MAX: Duration = Duration::from_secs(1);

impl PolicyServer for Held {
    /// Answers a member. If that has a newer policy, it is asked for it at once.
    fn answer(&self, from: HostId, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let asked: Asked = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
        let held = self.now();
        // A policy of the fabric's configuration goes from member to member by its log alone.
        let spreads = !self.is_committed();
        if spreads && asked.stamp > held.stamp {
            self.hint(from);
        }
        let policy = (spreads && held.stamp > asked.stamp).then_some(held.policy);
        let status = asked.wants_status.then(|| bounded(self.status(STATUS_MAX)));
        let mut answer = PolicyAnswer { stamp: held.stamp, policy, status };
        let mut body = serde_json::to_vec(&answer).map_err(|_| Failure::Refused)?;
        if body.len() > ANSWER_SIZE_MAX {
            // The policy matters most.
            answer.status = None;
            body = serde_json::to_vec(&answer).map_err(|_| Failure::Refused)?;
        }
        Ok(body)
    }
}

/// Returns as much of a status as fits into an answer.
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
