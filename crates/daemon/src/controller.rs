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
//! everywhere, and whoever set the other one sees it in the answer. A host that was away asks when
//! it is back.

mod held;
mod talk;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::fabric as api;
use sluice_api::placement::{Answer, Policy, Question, Stamp, Status};
use sluice_base::{HostId, Nanos};
use sluice_control::rpc::Failure;
use sluice_wire::fabric::Topic;

pub(crate) use self::held::Held;
use self::talk::{Asked, Told};
use crate::control::spawn;
use crate::fabric::Fabric;
use crate::log::say;

/// How often another host is asked, and data told.
const EVERY: Duration = Duration::from_secs(1);
/// For how long the list of members is good.
const MEMBERS_EVERY: Duration = Duration::from_secs(5);
/// How long a member may take to answer.
const ANSWER_MAX: Nanos = Nanos::from_millis(1_500);
/// How long `set` waits until every host that can be asked follows, and how often it asks.
const SET_MAX: Duration = Duration::from_secs(4);
const SET_EVERY: Duration = Duration::from_millis(100);
/// How many members are asked at a time.
const AT_A_TIME: usize = 32;

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
            Question::Show => Ok(self.show(&self.members())),
            Question::Set(policy) => self.set(*policy),
        }
    }

    fn set(&self, policy: Policy) -> Result<Answer, String> {
        let stamp = self.held.set(policy)?;
        say!("placement policy {} of {} holds", stamp.version, stamp.by);
        let members = self.members();
        let until = Instant::now() + SET_MAX;
        loop {
            // Each question says which policy is here, so that whoever has an older one asks back.
            let answer = self.show(&members);
            if answer.hosts.iter().all(|host| follows(host, stamp)) || Instant::now() >= until {
                return Ok(answer);
            }
            std::thread::sleep(SET_EVERY);
        }
    }

    fn show(&self, members: &[Member]) -> Answer {
        let mut hosts = vec![self.held.status()];
        for some in members.chunks(AT_A_TIME) {
            std::thread::scope(|scope| {
                let asked: Vec<_> =
                    some.iter().map(|member| scope.spawn(|| self.status_of(member))).collect();
                let answers = asked.into_iter().zip(some).map(|(asked, member)| {
                    asked.join().unwrap_or_else(|_| silent(member, "its answer cannot be read"))
                });
                hosts.extend(answers);
            });
        }
        Answer { stamped: self.held.now(), hosts }
    }

    fn status_of(&self, member: &Member) -> Status {
        match self.ask(member.id, true) {
            Ok(Told { stamp, status: Some(mut status), .. }) => {
                // It speaks of itself, whatever it says.
                status.host.clone_from(&member.name);
                status.stamp = Some(stamp);
                status
            }
            Ok(Told { stamp, status: None, .. }) => {
                Status { stamp: Some(stamp), ..silent(member, "it does not say what it does") }
            }
            Err(Failure::UnknownTopic | Failure::TooOld) => {
                silent(member, "its version knows no placement policy: update it")
            }
            Err(failure) => {
                silent(member, &format!("{failure}; it follows when it can be asked again"))
            }
        }
    }

    /// Asks a member what it holds, and takes that over if it is newer.
    fn ask(&self, member: HostId, wants_status: bool) -> Result<Told, Failure> {
        let Some(fabric) = &self.fabric else { return Err(Failure::NotConnected) };
        let question = Asked { stamp: self.held.now().stamp, wants_status };
        let answer = fabric.call(member, Topic::PLACEMENT, ANSWER_MAX, &question)?;
        let told = Told::read(&answer).ok_or(Failure::Refused)?;
        if let Some(policy) = told.policy.clone() {
            match self.held.offer(told.stamp, policy) {
                Ok(true) => {
                    let Stamp { version, by, .. } = told.stamp;
                    say!("placement policy {version} of {by} holds, told by host {}", member.0);
                }
                Ok(false) => {}
                Err(error) => say!("host {}: {error}", member.0),
            }
        }
        Ok(told)
    }

    fn members(&self) -> Vec<Member> {
        let Some(fabric) = &self.fabric else { return Vec::new() };
        let Ok(api::Answer::Members(rows)) = fabric.answer(api::Question::Members) else {
            return Vec::new();
        };
        let members = rows.into_iter().filter(|row| row.kind == "member");
        members.map(|row| Member { id: HostId(row.id), name: row.host }).collect()
    }

    /// Asks one member after the other, for as long as the process lives.
    fn follow(&self) {
        let (mut members, mut listed) = (Vec::new(), None::<Instant>);
        let mut next = 0;
        loop {
            // Data may have been started anew, and then knows nothing.
            _ = self.held.tell_data();
            let hint = self.held.wait(EVERY);
            if listed.is_none_or(|at| at.elapsed() >= MEMBERS_EVERY) {
                members = self.members();
                listed = Some(Instant::now());
            }
            let turn = || members.get(next % members.len().max(1)).map(|member| member.id);
            if let Some(member) = hint.or_else(turn) {
                // Whoever does not answer is asked again in its turn.
                _ = self.ask(member, false);
            }
            next = next.wrapping_add(usize::from(hint.is_none()));
        }
    }
}

fn silent(member: &Member, why: &str) -> Status {
    Status { host: member.name.clone(), notes: vec![why.to_owned()], ..Status::default() }
}

/// Whether a host does what this policy says, or cannot be asked.
fn follows(host: &Status, stamp: Stamp) -> bool {
    let places: BTreeSet<bool> = host.places.iter().map(|place| place.stamp >= stamp).collect();
    host.stamp.is_none_or(|known| known >= stamp) && !places.contains(&false)
}

#[cfg(test)]
mod tests;
