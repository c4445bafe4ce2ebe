//! One controller for the placement of tunnel work on all hosts: a policy is set at any of them,
//! and every one of them follows it.
//!
//! ```text
//!   sluice placement set ─▶ held ─┬─ placement.json ── sluice steer, on this host
//!                                 ├─ data: follow ──── workers of a shared underlay
//!                                 └─ members: each asks one other every second which it holds,
//!                                    and at once whoever said that it has a newer one
//! ```
//!
//! There is no vote: of two policies that are set at once the one with the greater stamp holds
//! everywhere, and whoever set the other one is told so. A host that was away asks when it is back.
//!
//! Whoever sets a policy asks all members before, so that it comes above what they hold, and
//! afterwards, until all follow or it is time to say which do not ([`rounds`]).

mod held;
mod refused;
mod rounds;
mod talk;
mod told;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::fabric as api;
use sluice_api::placement::{Answer, Policy, Question, Stamp};
use sluice_base::{HostId, Nanos};
use sluice_control::rpc::Failure;
use sluice_wire::fabric::Topic;

pub(crate) use self::held::Held;
use self::talk::{Asked, Heard};
use crate::control::spawn;
use crate::fabric::Fabric;
use crate::log::say;

/// How often another host is asked, and data told.
const EVERY: Duration = Duration::from_secs(1);
/// For how long the list of members is good.
const MEMBERS_EVERY: Duration = Duration::from_secs(5);
/// How long a member may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(1_500);
/// How often `set` asks whether all follow.
const SET_EVERY: Duration = Duration::from_millis(100);

/// How long a person waits, counted from the question.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// What is set must come above what members say until then.
    learn: Duration,
    /// Until then hosts are asked again whether they follow.
    ask_again: Duration,
    /// Until then they answer. The fabric's thread may be half a second late: 4 s in all.
    answer: Duration,
}

const LIMITS: Limits = Limits {
    learn: ANSWER_MAX,
    ask_again: Duration::from_millis(2_500),
    answer: Duration::from_millis(3_500),
};

/// The controller of one host, for those who ask.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    held: Arc<Held>,
    fabric: Option<Fabric>,
}

/// Another host.
#[derive(Clone, Debug)]
struct Member {
    id: HostId,
    name: String,
}

/// Why nothing was heard of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// It was not asked, or did not answer.
    Failure(Failure),
    /// What it answered means nothing here.
    Unread,
}

impl Controller {
    /// Starts to follow.
    pub(crate) fn start(held: Arc<Held>, fabric: Option<Fabric>) -> anyhow::Result<Self> {
        let controller = Self { held, fabric };
        let follower = controller.clone();
        spawn("controller", move || follower.follow())?;
        Ok(controller)
    }

    /// Answers a question of a person's.
    pub(crate) fn answer(&self, question: Question) -> Result<Answer, String> {
        match question {
            Question::Show => {
                let until = Instant::now() + LIMITS.answer;
                Ok(self.show(self.members().as_deref(), until).0)
            }
            Question::Set(policy) => self.set(*policy, LIMITS),
        }
    }

    fn set(&self, policy: Policy, limits: Limits) -> Result<Answer, String> {
        policy.check()?;
        let begun = Instant::now();
        let members = self.members();
        let known = members.as_deref().unwrap_or_default();
        // A host that was started anew, or lost its directory, may know an older one or none.
        let is_told = self.learn(known, begun + limits.learn);
        if let Some(why) = self.held.hindrance() {
            return Err(format!("{why}. Set it at a host that follows it"));
        }
        let stamp = self.held.set(policy)?;
        say!("placement policy {} of {} holds", stamp.version, stamp.by);
        loop {
            // Each question says which policy is here, so that whoever has an older one asks back.
            let (mut answer, is_done) = self.show(members.as_deref(), begun + limits.answer);
            if answer.stamped.stamp != stamp {
                return Err(gone(stamp, answer.stamped.stamp));
            }
            if is_done || begun.elapsed() >= limits.ask_again {
                if !is_told && !known.is_empty() {
                    answer.hosts[0].notes.push(unheard(stamp));
                }
                return Ok(answer);
            }
            std::thread::sleep(SET_EVERY);
        }
    }

    /// Asks a member what it holds, and takes that over if it is newer.
    fn ask(&self, member: HostId, wants_status: bool, within: Duration) -> Result<Heard, Silence> {
        let fabric = self.fabric.as_ref().ok_or(Silence::Failure(Failure::NotConnected))?;
        let question = Asked { stamp: self.held.now().stamp, wants_status };
        let limit = within.min(ANSWER_MAX).as_nanos();
        let limit = Nanos(u64::try_from(limit).unwrap_or(u64::MAX));
        let answer = fabric.call(member, Topic::PLACEMENT, limit, &question);
        self.hear(member, &answer.map_err(Silence::Failure)?)
    }

    /// Takes over what a member said, if it is newer.
    fn hear(&self, member: HostId, answer: &[u8]) -> Result<Heard, Silence> {
        let Some(mut heard) = Heard::read(answer) else {
            let why = "what it holds means nothing to this version; update this host";
            self.held.refuse(member, Stamp::default(), why.to_owned());
            return Err(Silence::Unread);
        };
        let Stamp { version, by, .. } = heard.stamp;
        let taken = match heard.policy.take() {
            None => Ok(false),
            Some(Ok(policy)) => self.held.offer(heard.stamp, policy),
            Some(Err(why)) => Err(why),
        };
        match taken {
            Ok(is_new) => {
                self.held.agree(member);
                if is_new {
                    say!("placement policy {version} of {by} holds, told by host {}", member.0);
                }
            }
            Err(why) => {
                let why = format!("a newer policy is not followed: {why}");
                self.held.refuse(member, heard.stamp, why);
            }
        }
        Ok(heard)
    }

    /// The other hosts; nothing if the fabric does not say.
    fn members(&self) -> Option<Vec<Member>> {
        let Some(fabric) = &self.fabric else { return Some(Vec::new()) };
        let Ok(api::Answer::Members(rows)) = fabric.answer(api::Question::Members) else {
            return None;
        };
        let members = rows.into_iter().filter(|row| row.kind == "member");
        Some(members.map(|row| Member { id: HostId(row.id), name: row.host }).collect())
    }

    /// Asks one member after the other, for as long as the process lives.
    fn follow(&self) {
        let (mut members, mut listed) = (Vec::new(), None::<Instant>);
        let mut next = 0;
        loop {
            // Data may have been started anew, and then knows nothing.
            _ = self.held.tell_data(told::DATA_MAX);
            let hint = self.held.wait(EVERY);
            if listed.is_none_or(|at| at.elapsed() >= MEMBERS_EVERY) {
                members = self.members().unwrap_or(members);
                listed = Some(Instant::now());
            }
            let turn = || members.get(next % members.len().max(1)).map(|member| member.id);
            if let Some(member) = hint.or_else(turn) {
                // Whoever does not answer is asked again in its turn.
                _ = self.ask(member, false, ANSWER_MAX);
            }
            next = next.wrapping_add(usize::from(hint.is_none()));
        }
    }
}

/// What was set holds no more.
fn gone(set: Stamp, holds: Stamp) -> String {
    format!(
        "version {} of host {} holds instead of version {} of host {} that was set here; look at \
         it with `sluice placement show`, and set again what is still wanted",
        holds.version, holds.by, set.version, set.by
    )
}

/// Nobody could be asked before.
fn unheard(set: Stamp) -> String {
    format!(
        "no member could be asked: if one holds a version above {}, that one will hold",
        set.version
    )
}

#[cfg(test)]
mod tests;
