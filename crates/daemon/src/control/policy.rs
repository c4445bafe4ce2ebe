//! One controller for the placement of tunnel work on all hosts: a policy is set at any of them,
//! and every one of them follows it.
//!
//! ```text
//!   sluice placement set ─▶ held ─┬─ placement.json ── sluice steer, on this host
//!                                 ├─ data: follow ──── workers of a shared underlay
//!                                 └─ members: each asks another every second for its policy,
//!                                    and at once a member that has announced a newer one
//! ```
//!
//! There is no vote: of two policies that are set at once the one with the greater stamp holds
//! everywhere, and the author of the other one is told so. A host that was away asks when it is
//! back.
//!
//! On a member of a fabric whose configuration has a policy, that one holds, and members are asked
//! for their state only ([`Held::commit`]). A new policy is a transaction there.
//!
//! The host at which a policy is set first asks all members, so that the policy comes above theirs.
//! Afterwards it asks until all follow, or until it is time to name the members that do not
//! ([`rounds`]).

mod held;
mod refused;
mod rounds;
mod talk;
mod told;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::fabric as api;
use sluice_api::placement::{Answer, Policy, PolicyVersion, Question};
use sluice_base::{HostId, Nanos};
use sluice_control::rpc::Failure;
use sluice_wire::fabric::Topic;

pub(crate) use self::held::Held;
use self::talk::{Asked, ReceivedAnswer};
use crate::fabric::Fabric;
use crate::sys::log::say;
use crate::sys::threads::spawn_behind;

/// Time between two questions to members, and between two messages to data.
const EVERY: Duration = Duration::from_secs(1);
/// Time for which the list of members is valid.
const MEMBERS_EVERY: Duration = Duration::from_secs(5);
/// Longest time for a member's answer.
const ANSWER_MAX: Duration = Duration::from_millis(1_500);
/// Time between two rounds of `set` that ask whether all follow.
const SET_EVERY: Duration = Duration::from_millis(100);

/// Time limits for a person's request, counted from the question.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// End of the time in which members' policies are learned: a new one must come above them.
    learn: Duration,
    /// End of the time in which hosts are asked again whether they follow.
    ask_again: Duration,
    /// End of the time for their answers. The fabric's thread may be half a second late: 4 s in
    /// all.
    answer: Duration,
}

const LIMITS: Limits = Limits {
    learn: ANSWER_MAX,
    ask_again: Duration::from_millis(2_500),
    answer: Duration::from_millis(3_500),
};

/// The controller of one host.
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

/// Reason why a member is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// The member was not asked, or did not answer.
    Failure(Failure),
    /// The answer cannot be read here.
    Unread,
}

impl Controller {
    /// Starts the thread.
    pub(crate) fn start(held: Arc<Held>, fabric: Option<Fabric>) -> anyhow::Result<Self> {
        let controller = Self { held, fabric };
        let follower = controller.clone();
        spawn_behind("controller", move || follower.follow())?;
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
        // A host that was restarted, or lost its directory, may know an older policy or none.
        let is_told = self.learn(known, begun + limits.learn);
        if let Some(why) = self.held.refusal() {
            return Err(format!("{why}. Set it at a host that follows it"));
        }
        let stamp = self.held.set(policy)?;
        say!("placement policy {} of {} holds", stamp.version, stamp.by);
        loop {
            // Each question names the policy held here, so that a member with an older one asks
            // back.
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

    /// Asks a member for its policy, and takes that over if it is newer.
    fn ask(
        &self,
        member: HostId,
        wants_status: bool,
        within: Duration,
    ) -> Result<ReceivedAnswer, Silence> {
        let fabric = self.fabric.as_ref().ok_or(Silence::Failure(Failure::NotConnected))?;
        let question = Asked { stamp: self.held.now().stamp, wants_status };
        let limit = within.min(ANSWER_MAX).as_nanos();
        let limit = Nanos(u64::try_from(limit).unwrap_or(u64::MAX));
        let answer = fabric.call(member, Topic::PLACEMENT, limit, &question);
        self.hear(member, &answer.map_err(Silence::Failure)?)
    }

    /// Handles a member's answer: takes over a newer policy.
    fn hear(&self, member: HostId, answer: &[u8]) -> Result<ReceivedAnswer, Silence> {
        let Some(mut heard) = ReceivedAnswer::read(answer) else {
            let why = "what it holds means nothing to this version; update this host";
            self.held.refuse(member, PolicyVersion::default(), why.to_owned());
            return Err(Silence::Unread);
        };
        let PolicyVersion { version, by, .. } = heard.stamp;
        let taken = match heard.policy.take() {
            None => Ok(false),
            Some(_) if self.held.is_committed() => Ok(false),
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

    /// Returns the other hosts; `None` if the fabric does not answer.
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
            // A data process that was restarted knows no policy.
            _ = self.held.tell_data(told::DATA_MAX);
            let hint = self.held.wait(EVERY);
            if listed.is_none_or(|at| at.elapsed() >= MEMBERS_EVERY) {
                if let Some(now) = self.members() {
                    let ids: Vec<HostId> = now.iter().map(|member| member.id).collect();
                    self.held.forget_others(&ids);
                    members = now;
                }
                listed = Some(Instant::now());
            }
            let turn = || members.get(next % members.len().max(1)).map(|member| member.id);
            let asks = !self.held.is_committed();
            if let Some(member) = hint.or_else(turn).filter(|_| asks) {
                // A member that does not answer is asked again in its turn.
                _ = self.ask(member, false, ANSWER_MAX);
            }
            next = next.wrapping_add(usize::from(hint.is_none()));
        }
    }
}

/// Returns the error for a policy that was set and no longer holds.
fn gone(set: PolicyVersion, holds: PolicyVersion) -> String {
    format!(
        "version {} of host {} holds instead of version {} of host {} that was set here; look at \
         it with `sluice placement show`, and set again what is still wanted",
        holds.version, holds.by, set.version, set.by
    )
}

/// Returns the warning for a policy that was set although no member could be asked.
fn unheard(set: PolicyVersion) -> String {
    format!(
        "no member could be asked: if one holds a version above {}, that one will hold",
        set.version
    )
}

#[cfg(test)]
mod tests;
