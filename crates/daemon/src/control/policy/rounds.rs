//! Rounds of questions to all members, some at a time and until a deadline: a silent member delays
//! no other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_api::placement::{Answer, Policy, Status};
use sluice_control::rpc::Failure;

use super::talk::ReceivedAnswer;
use super::{ANSWER_MAX, Controller, Member, Silence};

/// Members that are asked at a time.
const AT_A_TIME: usize = 32;

/// A host's answer.
struct Said {
    status: Status,
    /// True if another question would get the same answer.
    is_final: bool,
}

/// Returns the time left for an answer; `None` if it is over.
fn left(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

impl Controller {
    /// Asks all members for their policies, so that the newest holds here. Returns true if any
    /// answered.
    pub(super) fn learn(&self, members: &[Member], until: Instant) -> bool {
        let ask = |member: &Member| {
            let within = left(until).ok_or(Silence::Failure(Failure::TooLate))?;
            self.ask(member.id, false, within)
        };
        each(members, ask).values().any(Result::is_ok)
    }

    /// Returns the policy that holds, and its state on each host; true if no more is to come.
    pub(super) fn show(&self, members: Option<&[Member]>, until: Instant) -> (Answer, bool) {
        let known = members.unwrap_or_default();
        // Data may take as long as members.
        let (own, mut others) = std::thread::scope(|scope| {
            let others = scope.spawn(|| each(known, |member| self.status_of(member, until)));
            let own = self.held.status(left(until).unwrap_or_default());
            (own, others.join().unwrap_or_default())
        });
        let mut all = vec![Said { status: own, is_final: false }];
        all.extend(known.iter().enumerate().map(|(at, member)| {
            others.remove(&at).unwrap_or_else(|| silent(member, "it was not asked", false))
        }));
        let stamped = self.held.now();
        for Said { status, .. } in &mut all {
            status.follows &= status.stamp == Some(stamped.stamp);
        }
        let own = &mut all[0].status;
        let notes = match members {
            Some(known) => unknown(&stamped.policy, &own.host, known),
            None => vec!["the fabric does not say who its members are; ask again".to_owned()],
        };
        own.notes.extend(notes);
        let is_done = all.iter().all(|said| said.is_final || said.status.follows);
        let hosts = all.into_iter().map(|said| said.status).collect();
        (Answer { stamped, committed: self.held.is_committed(), hosts }, is_done)
    }

    fn status_of(&self, member: &Member, until: Instant) -> Said {
        let Some(within) = left(until) else {
            return silent(member, "there was no time left to ask it; ask that host", false);
        };
        match self.ask(member.id, true, within.min(ANSWER_MAX)) {
            Ok(ReceivedAnswer { stamp, status: Some(status), .. }) => {
                // A member speaks of itself, under any name.
                let status = Status { host: member.name.clone(), stamp: Some(stamp), ..status };
                Said { status, is_final: false }
            }
            Ok(ReceivedAnswer { stamp, status: None, .. }) => {
                let mut said = silent(member, "it does not say what it does", false);
                said.status.stamp = Some(stamp);
                said
            }
            Err(silence) => unheard(member, silence),
        }
    }
}

/// Asks each member, a bounded number at a time. Returns the answers by position.
fn each<T: Send>(members: &[Member], ask: impl Fn(&Member) -> T + Sync) -> BTreeMap<usize, T> {
    let next = AtomicUsize::new(0);
    let ask_on = || {
        let mut said = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(member) = members.get(at) else { return said };
            said.push((at, ask(member)));
        }
    };
    std::thread::scope(|scope| {
        let count = members.len().min(AT_A_TIME);
        let asking: Vec<_> = (0..count).map(|_| scope.spawn(ask_on)).collect();
        asking.into_iter().flat_map(|asking| asking.join().unwrap_or_default()).collect()
    })
}

/// Returns the row of a member without an answer.
fn unheard(member: &Member, silence: Silence) -> Said {
    match silence {
        Silence::Unread => silent(member, "its answer means nothing to this version", true),
        Silence::Failure(Failure::UnknownTopic | Failure::TooOld) => {
            silent(member, "its version knows no placement policy: update it", true)
        }
        Silence::Failure(failure) => {
            // Other hosts may ask it at the same time, or its processor is busy.
            let passes = matches!(failure, Failure::Refused | Failure::Busy | Failure::TooLate);
            let why = format!("{failure}; it follows when it can be asked again");
            silent(member, &why, !passes)
        }
    }
}

fn silent(member: &Member, why: &str, is_final: bool) -> Said {
    let notes = vec![why.to_owned()];
    Said { status: Status { host: member.name.clone(), notes, ..Status::default() }, is_final }
}

/// Returns notes on unknown hosts in a policy: a misspelling, or a host that is still to come.
fn unknown(policy: &Policy, own: &str, members: &[Member]) -> Vec<String> {
    let is_known = |name: &str| name == own || members.iter().any(|member| member.name == name);
    let unknown = policy.hosts.keys().filter(|name| !is_known(name));
    unknown
        .map(|name| format!("the policy speaks of `{name}`, and no member has that name"))
        .collect()
}

#[cfg(test)]
mod tests;
