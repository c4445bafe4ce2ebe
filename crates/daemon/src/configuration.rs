//! The configuration of a fabric that was made by command, at one of its members. The decisions are
//! those of [`sluice_control::commit`].
//!
//! ```text
//!   sluice config, vnet, fabric ─▶ ┌────────┐ ─ records ──▶ disk thread ─▶ fabric.redb
//!   other members ── messages ───▶ │ thread │ ─ messages ─▶ other members
//!   hosts that join ─────────────▶ └────────┘ ─ whole configuration ─▶ control, data
//! ```
//!
//! | file | content |
//! |---|---|
//! | `opened` | a member whose state was read |
//! | `thread` | the thread: the commit protocol with a clock, a disk and members |
//! | `requests` | questions of people, and their answers |
//! | `status` | the state of the configuration at this host |
//! | `words` | the protocol's results in words |
//! | `admission` | hosts that join |
//! | `authority` | authorities at this member: its files, and its vote on a step |
//! | `rotation` | the replacement of the authority, step by step |
//! | `setup` | a host becomes a member: create, join |
//! | `standing` | a member that nobody speaks to asks whether it still is one |
//! | `checker` | what this host has against a configuration |
//! | `effect` | the configuration in force at this host |
//! | `marker` | the mark that outlives a process that is killed |
//! | `replica` | the configuration as the protocol's document |
//! | `store` | the file |

mod admission;
mod authority;
mod checker;
mod effect;
mod farewell;
mod marker;
mod opened;
mod replica;
mod requests;
mod rotation;
pub(crate) mod setup;
mod standing;
mod status;
mod store;
mod thread;
mod traces;
mod words;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use sluice_api::config::{HostConfig, LocalConfig};
use sluice_api::placement::{Policy, Stamped};
use sluice_api::reload::Reloaded;
use sluice_api::transaction::{Answer, Question};
use sluice_base::HostId;
use sluice_control::commit::{CheckTicket, TxnId, WriteTicket};
use sluice_control::rpc::Failure;
use sluice_control::session::SendError;

use crate::enroll::{Asker, InquiryError, StandingAnswer};
use crate::fabric::ConfigPort;

pub(crate) use self::opened::Opened;
pub(crate) use self::store::Place;
pub(crate) use self::thread::Parts;

/// Events that may wait; the thread waits for nobody, so few ever do.
const EVENTS_MAX: usize = 16_384;
/// Bytes of messages that may wait for the thread; more are lost, as on the way.
const HEARD_BYTES_MAX: usize = 64 << 20;
/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(110);

/// Longest time for a host that joined to get the configuration.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Control, which puts a whole configuration of this host in force.
pub(crate) trait InForce: Send + Sync {
    /// Checks a configuration of this host without a change: the reasons against it.
    ///
    /// # Errors
    /// Reason against it, with the remedy.
    fn check(&self, config: HostConfig) -> Result<(), String>;

    /// Puts it in force, and returns what changed, and what takes effect at a restart.
    ///
    /// # Errors
    /// Reason why nothing has changed.
    fn apply(&self, config: HostConfig) -> Result<Reloaded, String>;

    /// Checks a placement policy without a change: the reasons against it.
    ///
    /// # Errors
    /// Reason against it, with the remedy.
    fn check_placement(&self, policy: &Policy) -> Result<(), String>;

    /// Puts the placement policy of the configuration in force; `None`: it has none.
    ///
    /// # Errors
    /// Reason why it would not outlive the process.
    fn follow(&self, placement: Option<&Stamped>) -> Result<(), String>;

    /// Returns the highest version of a placement policy that was known here, without waiting.
    fn placement_version(&self) -> u64;

    /// Lets another data process begin with the whole configuration that was applied last.
    fn begin_anew(&self);

    /// This host is no member any more.
    fn left(&self, why: &str);
}

/// Events of the thread.
#[derive(Debug)]
enum Event {
    /// A question of a person.
    Ask(Box<Question>, SyncSender<Result<Answer, String>>),
    /// A message of a member.
    Heard(HostId, Vec<u8>),
    /// A connection to a member came, or went.
    Connected(HostId, bool),
    /// Records are durable, or why not.
    Written(WriteTicket, Result<(), String>),
    /// A host that joins.
    Admit(Box<admission::Candidate>),
    /// A host asks how it stands.
    Standing(Asker, standing::StandingReply),
    /// A member says how this host stands, or why not.
    Told(String, Box<Result<StandingAnswer, InquiryError>>),
    /// A configuration is in force, or why not.
    Effect {
        /// Number of the job.
        number: u64,
        /// Revision of the configuration.
        revision: u64,
        /// Changes, or the reason.
        result: Result<Reloaded, String>,
    },
    /// Result of a check.
    Checked(CheckTicket, TxnId, Result<(), String>),
    /// Read the host's file again.
    Reread(SyncSender<Result<Reloaded, String>>),
    /// Answer when this host knows the configuration, and it is in force.
    Settled(SyncSender<()>),
    /// Return the reason against a port in this network.
    MayUse(String, SyncSender<Result<(), String>>),
}

/// Handle of other threads for the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    events: SyncSender<Event>,
    /// Bytes of messages that wait.
    heard_bytes: Arc<AtomicUsize>,
    keeper: Arc<authority::Keeper>,
}

impl Configuration {
    /// Answers a question.
    ///
    /// # Errors
    /// Reason of a refusal, with the remedy.
    pub(crate) fn ask(&self, question: Question) -> Result<Answer, String> {
        self.ask_within(question, ANSWER_MAX)
    }

    /// Answers a question within a time.
    ///
    /// # Errors
    /// Reason of a refusal, with the remedy.
    pub(crate) fn ask_within(
        &self,
        question: Question,
        within: Duration,
    ) -> Result<Answer, String> {
        let (answer, result) = sync_channel(1);
        // The thread ends only with the process.
        _ = self.events.send(Event::Ask(Box::new(question), answer));
        result.recv_timeout(within).unwrap_or_else(|_| {
            Err("there is no answer yet; `sluice config log` will show the outcome".to_owned())
        })
    }

    /// Reads the host's file again, and puts it in force.
    ///
    /// # Errors
    /// Reason why nothing has changed.
    pub(crate) fn reload(&self) -> Result<Reloaded, String> {
        let (answer, result) = sync_channel(1);
        _ = self.events.send(Event::Reread(answer));
        result
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|_| Err("there is no answer yet; see the log of this host".to_owned()))
    }

    /// Waits until this host knows the configuration of its fabric, and it is in force here.
    ///
    /// # Errors
    /// If that takes too long.
    pub(crate) fn settle(&self) -> Result<(), String> {
        let (settled, is_settled) = sync_channel(1);
        _ = self.events.send(Event::Settled(settled));
        is_settled.recv_timeout(SETTLE_MAX).map_err(|_| {
            "this host is a member, but has not got the configuration from the others yet; \
             `sluice fabric status` says who is connected"
                .to_owned()
        })
    }

    /// Returns the reason against another port in a network: a transaction may be about to delete
    /// it.
    ///
    /// # Errors
    /// That reason.
    pub(crate) fn may_use(&self, vnet: &str) -> Result<(), String> {
        let (answer, result) = sync_channel(1);
        _ = self.events.send(Event::MayUse(vnet.to_owned(), answer));
        result.recv_timeout(ANSWER_MAX).unwrap_or(Ok(()))
    }
}

impl Configuration {
    /// Notes an event of the fabric's thread, which must not wait.
    fn note(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            crate::sys::log::say!(error: "the thread of the configuration does not keep up");
        }
    }
}

impl ConfigPort for Configuration {
    fn is_one(&self) -> bool {
        true
    }

    fn next_authority(&self, from: HostId, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let taken = self.keeper.take(body);
        if let Err(why) = &taken {
            crate::sys::log::say!(warn: "host {} gives an authority, not taken: {why}", from.0);
        }
        serde_json::to_vec(&taken).map_err(|_| Failure::TooBig)
    }

    fn connected(&self, host: HostId, takes_messages: Result<(), SendError>) {
        match takes_messages {
            Ok(()) => self.note(Event::Connected(host, true)),
            Err(error) => crate::sys::log::say!(
                warn: "host {} takes part in no change of the configuration: {error}", host.0
            ),
        }
    }

    fn received(&self, host: HostId, message: Vec<u8>) {
        let size = message.len();
        let waiting = self.heard_bytes.fetch_add(size, Ordering::Relaxed);
        let is_taken =
            waiting <= HEARD_BYTES_MAX && self.events.try_send(Event::Heard(host, message)).is_ok();
        if !is_taken {
            // As if it were lost on the way.
            self.heard_bytes.fetch_sub(size, Ordering::Relaxed);
        }
    }

    fn unsent(&self, _: HostId, _: SendError) {
        // The protocol says it again.
    }

    fn gone(&self, host: HostId) {
        self.note(Event::Connected(host, false));
    }
}

/// The host's own part of its configuration.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// Content of its file, or the defaults.
    pub(crate) local: LocalConfig,
    /// The file, if it has one.
    pub(crate) file: Option<PathBuf>,
    /// Place in the fabric.
    pub(crate) place: Place,
    /// Directory of the state.
    pub(crate) state_dir: PathBuf,
}
