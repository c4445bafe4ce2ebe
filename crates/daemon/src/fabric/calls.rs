//! Questions between members: threads here that wait for answers, and threads that answer others.
//!
//! The state machine is [`sluice_control::rpc`]; this module has the threads at its ends. A thread
//! that asks waits on a channel of its own. A question of a member is answered in a thread of its
//! own, at most [`SERVED_MAX`] at a time for each topic: beyond that it is refused at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use sluice_base::{HostId, Nanos};
use sluice_control::rpc::{Event, Failure};
use sluice_wire::fabric::Topic;

use super::member::{Member, MemberRequest};
use super::{Fabric, trace};

/// Questions of members that are answered at a time, of each topic. Questions of one topic may wait
/// for questions of another, so topics must not share their places.
const SERVED_MAX: usize = 4;
/// Longest delay of the fabric's thread.
const GRACE: Duration = Duration::from_millis(500);

type Waiting = SyncSender<Result<Vec<u8>, Failure>>;

/// A question to a member, with the channel for the answer.
#[derive(Debug)]
pub(super) struct Call {
    host: HostId,
    topic: Topic,
    limit: Nanos,
    body: Vec<u8>,
    waiting: Waiting,
}

/// Open questions.
#[derive(Debug, Default)]
pub(super) struct Calls {
    waiting: BTreeMap<(HostId, u64), Waiting>,
    served: [Arc<AtomicUsize>; 7],
}

impl Fabric {
    /// Asks a member and waits for its answer, or for the reason why there is none.
    pub(crate) fn call(
        &self,
        host: HostId,
        topic: Topic,
        limit: Nanos,
        question: &impl serde::Serialize,
    ) -> Result<Vec<u8>, Failure> {
        let body = serde_json::to_vec(question).map_err(|_| Failure::TooBig)?;
        let (waiting, answer) = sync_channel(1);
        self.ask(MemberRequest::Call(Call { host, topic, limit, body, waiting }));
        let patience = Duration::from_nanos(limit.0).saturating_add(GRACE);
        answer.recv_timeout(patience).unwrap_or(Err(Failure::TooLate))
    }

    /// Returns the facts of control about a frame's path.
    pub(super) fn facts(
        &self,
        wanted: trace::Query,
        limit: Duration,
    ) -> Result<trace::Facts, String> {
        self.wait_within(limit, |reply| MemberRequest::Facts(wanted, reply)).ok_or_else(late)?
    }

    /// Returns the endpoints that a name means.
    pub(super) fn named(
        &self,
        wanted: trace::Named,
        limit: Duration,
    ) -> Result<trace::Found, String> {
        self.wait_within(limit, |reply| MemberRequest::Named(wanted, reply)).ok_or_else(late)?
    }
}

fn late() -> String {
    "the fabric's thread did not answer in time".to_owned()
}

impl Member {
    /// Asks a member for a local thread.
    pub(super) fn call(&mut self, now: Nanos, call: Call) {
        let Call { host, topic, limit, body, waiting } = call;
        match self.plane.ask_host(now, host, topic, limit, &body) {
            Ok(id) => {
                self.calls.waiting.insert((host, id), waiting);
            }
            // The thread that asked may be gone.
            Err(failure) => _ = waiting.try_send(Err(failure)),
        }
    }

    /// Passes answers to the waiting threads, and begins to answer members' questions.
    pub(super) fn talk(&mut self, now: Nanos) {
        while let Some((host, event)) = self.plane.talk() {
            match event {
                Event::Done { id, answer, .. } => {
                    if let Some(waiting) = self.calls.waiting.remove(&(host, id)) {
                        _ = waiting.try_send(answer);
                    }
                }
                Event::Asked { ticket, topic, limit, body } => {
                    let begun = self.calls.begin(&self.handle, (host, ticket), topic, limit, body);
                    if let Err(failure) = begun {
                        self.plane.reply_to(now, host, ticket, Err(failure));
                    }
                }
                // The plane turns these into events.
                Event::Wrong(_) => {}
            }
        }
    }
}

impl Calls {
    fn begin(
        &self,
        fabric: &Fabric,
        (host, ticket): (HostId, u64),
        topic: Topic,
        limit: Nanos,
        body: Vec<u8>,
    ) -> Result<(), Failure> {
        let served = match topic {
            Topic::TRACE => &self.served[0],
            Topic::ARRIVAL => &self.served[1],
            Topic::PLACEMENT => &self.served[2],
            Topic::PORT => &self.served[3],
            Topic::AGREE => &self.served[4],
            Topic::THAW => &self.served[5],
            Topic::AUTHORITY => &self.served[6],
            _ => return Err(Failure::UnknownTopic),
        };
        if served.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
            served.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::Refused);
        }
        let (fabric, done) = (fabric.clone(), Arc::clone(served));
        let spawned = crate::sys::threads::spawn_behind("answer", move || {
            let answer = match topic {
                Topic::PLACEMENT => fabric.policy.answer(host, &body),
                Topic::AGREE => fabric.agreement.serve(host, &body),
                Topic::THAW => fabric.serve_thaw(&body),
                Topic::AUTHORITY => fabric.config.next_authority(host, &body),
                _ => trace::serve(&fabric, host, topic, limit, &body),
            };
            done.fetch_sub(1, Ordering::Relaxed);
            fabric.ask(MemberRequest::Reply(host, ticket, answer));
        });
        spawned.map_err(|_| {
            served.fetch_sub(1, Ordering::Relaxed);
            Failure::Refused
        })
    }
}
