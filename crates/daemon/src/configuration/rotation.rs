//! Replacement of the fabric's authority, one step for each question, at any member.
//!
//! ```text
//!   step   before it                                  change, which all members have to accept
//!   1      a key is made, and given to all members    trust the new authority, too
//!   2      the key is given to all members again      sign by the new one; open tokens end
//!   3      the key is given to all members again      do not believe the old one any more
//! ```
//!
//! After the first step the replacement may be abandoned: the new one signs nothing yet.
//!
//! The step follows from the configuration, so that a second command, or one at another member,
//! continues where the first one stopped. A host that joins between two steps gets the key with its
//! certificate. The key is given before each step all the same, as a join may come in the middle of
//! one; what a member holds already changes nothing.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluice_api::fabric_config::{AuthorityEntry, FabricConfig, Operation, Trust, short};
use sluice_api::transaction::{Answer, Away, How, Question, Rotation};
use sluice_base::{HostId, Nanos};
use sluice_control::rpc::Failure;
use sluice_wire::fabric::Topic;

use super::Configuration;
use super::authority::{Handed, Keeper, entry};
use super::requests::Reply;
use super::thread::Thread;
use crate::enroll::{Admitted, Authority, Fingerprint};
use crate::fabric::Fabric;
use crate::sys::threads::spawn;

/// Number of the last step.
const STEPS: u8 = 3;
/// Longest time for a member to take the key.
const GIVE_MAX: Nanos = Nanos::from_millis(5_000);
/// Longest time for a member to come back whose connection has ended. A step ends the connections
/// of certificates that it trusts no more, and the next one may be asked for at once.
const BACK_MAX: Duration = Duration::from_secs(3);
/// Time between two looks at whether it has.
const BACK_LOOK: Duration = Duration::from_millis(50);

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Trust another authority.
    Trust,
    /// Sign by the next one.
    Sign(AuthorityEntry),
    /// Remove these, which do not sign; the fingerprint is that of the one that does.
    Remove { signs: String, old: Vec<AuthorityEntry> },
}

impl Step {
    /// Returns the step that comes next; `None` if no replacement is under way.
    fn of(trust: &Trust) -> Result<Option<Self>, String> {
        if let Some(next) = &trust.next {
            return Ok(Some(Self::Sign(next.clone())));
        }
        let listed = |certificate: &String| match Fingerprint::of_pem(certificate) {
            Some(fingerprint) => Ok(AuthorityEntry {
                fingerprint: fingerprint.to_string(),
                certificate: certificate.clone(),
            }),
            None => Err("an authority in the configuration is unusable"),
        };
        let mut all = trust.authorities.iter().map(listed).collect::<Result<Vec<_>, _>>()?;
        if all.len() < 2 {
            return Ok(None);
        }
        let signs = all.remove(0).fingerprint;
        Ok(Some(Self::Remove { signs, old: all }))
    }

    const fn number(&self) -> u8 {
        match self {
            Self::Trust => 1,
            Self::Sign(_) => 2,
            Self::Remove { .. } => 3,
        }
    }

    fn said(&self, authority: &str) -> String {
        let new = short(authority);
        match self {
            Self::Trust => format!("all members trust authority {new}, too"),
            Self::Sign(_) => format!("the members' certificates are those of authority {new} now"),
            Self::Remove { .. } => format!("only authority {new} is believed"),
        }
    }
}

/// The member at which a step is asked for.
struct Rotating {
    own: String,
    handle: Configuration,
    keeper: Arc<Keeper>,
    fabric: Fabric,
}

impl Thread {
    /// Takes the next step, in a thread of its own: members are asked, and answer this one.
    pub(super) fn rotate_ca(&self, begin: bool, reply: Reply) {
        let rotating = Rotating {
            own: self.own.place.name.clone(),
            handle: self.handle.clone(),
            keeper: Arc::clone(&self.keeper),
            fabric: self.fabric.clone(),
        };
        let spawned = spawn("rotate-ca", {
            let reply = reply.clone();
            move || {
                // The person who asked may be gone.
                _ = reply.send(rotating.take_step(begin));
            }
        });
        if let Err(error) = spawned {
            _ = reply.send(Err(format!("there is no thread for it: {error}")));
        }
    }
}

impl Thread {
    /// Gives the authority up that is to follow.
    pub(super) fn abandon_ca(&mut self, now: Nanos, reply: Reply) {
        match abandonment(&self.shared().trust) {
            Ok(operation) => {
                let comment = "replacement of the authority abandoned".to_owned();
                let how = How { comment, ..How::default() };
                self.change(now, (vec![operation], false), how, reply);
            }
            Err(why) => _ = reply.send(Err(why)),
        }
    }

    /// Notes the authority that is to follow. One that has gone and is not trusted was given up.
    pub(super) fn note_next_authority(&mut self) {
        let trust = &self.shared().trust;
        let (next, trusted) = (trust.next.clone(), trust.trusted());
        let before = std::mem::replace(&mut self.next_authority, next);
        if let Some(gone) = before.filter(|before| !trusted.contains(&before.certificate)) {
            self.keeper.abandon(gone.fingerprint);
        }
    }

    /// Adds the authority that is to follow, with its key, to the answer to a host that joins.
    pub(super) fn with_next(&self, admitted: Admitted) -> Admitted {
        let next = self.shared().trust.next.as_ref();
        let held = next.and_then(|next| self.keeper.held(&next.fingerprint).ok());
        Admitted { next: held.map(|held| held.pem().clone()), ..admitted }
    }
}

/// Returns the operation that ends a replacement after its first step.
fn abandonment(trust: &Trust) -> Result<Operation, String> {
    match Step::of(trust)? {
        Some(Step::Sign(AuthorityEntry { fingerprint, .. })) => {
            Ok(Operation::AbandonAuthority { fingerprint })
        }
        Some(Step::Remove { signs, .. }) => Err(format!(
            "authority {} signs already, and members have its certificates; `sluice fabric \
             rotate-ca` finishes the replacement, and then begins another one if need be",
            short(&signs)
        )),
        Some(Step::Trust) | None => Err("no replacement of the authority is under way".to_owned()),
    }
}

impl Rotating {
    fn take_step(&self, begin: bool) -> Result<Answer, String> {
        let Answer::Config { config, .. } = self.handle.ask(Question::Show { at: None })? else {
            return Err("the configuration of this host is not known".to_owned());
        };
        let step = match Step::of(&config.trust)? {
            Some(step) => step,
            None if begin => Step::Trust,
            None => {
                let said = "no replacement of the authority is under way".to_owned();
                return Ok(Answer::Done { said });
            }
        };
        self.all_connected()?;
        let new = match &step {
            Step::Trust => self.keeper.next(),
            Step::Sign(next) => self.keeper.held(&next.fingerprint),
            Step::Remove { signs, .. } => self.keeper.held(signs),
        };
        let new = new.map_err(|why| format!("{}: {why}", self.own))?;
        self.give(&config, &new)?;
        let (number, authority) = (step.number(), new.fingerprint().to_string());
        let said = step.said(&authority);
        let change = operations(&config, step, &new);
        let comment = format!("authority replaced, step {number} of {STEPS}");
        let how = How { comment, away: Away::RequireAll, ..How::default() };
        match self.handle.ask(Question::Change { change, how })? {
            Answer::Committed(committed) => Ok(Answer::Rotation(Rotation {
                step: number,
                steps: STEPS,
                authority,
                said,
                committed,
            })),
            other => Ok(other),
        }
    }

    /// Checks that every member can be asked, or can be soon.
    fn all_connected(&self) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let away = self.away()?;
            if away.is_empty() {
                return Ok(());
            }
            if begin.elapsed() >= BACK_MAX {
                return Err(refused(&away.join(", "), "it is away"));
            }
            sleep(BACK_LOOK);
        }
    }

    /// Returns the names of the other members to which there is no connection.
    fn away(&self) -> Result<Vec<String>, String> {
        let Answer::Status(status) = self.handle.ask(Question::Status)? else {
            return Err("the members are not known".to_owned());
        };
        let others = status.members.into_iter().filter(|member| member.name != self.own);
        Ok(others.filter(|member| !member.connected).map(|member| member.name).collect())
    }

    /// Gives the key to all other members.
    fn give(&self, config: &FabricConfig, new: &Authority) -> Result<(), String> {
        let handed = Handed::new(new);
        for (name, member) in config.members.iter().filter(|(name, _)| **name != self.own) {
            let taken = match self.call_when_back(HostId(member.id), &handed) {
                Ok(body) => serde_json::from_slice::<Result<(), String>>(&body)
                    .unwrap_or_else(|_| Err("its answer cannot be read".to_owned())),
                Err(Failure::UnknownTopic) => {
                    Err("its version does not know of it; upgrade it".to_owned())
                }
                Err(failure) => Err(failure.to_string()),
            };
            taken.map_err(|why| refused(name, &why))?;
        }
        Ok(())
    }

    /// Hands the key to a member, again if its connection ended under the question.
    fn call_when_back(&self, host: HostId, handed: &Handed) -> Result<Vec<u8>, Failure> {
        let begin = Instant::now();
        loop {
            let answer = self.fabric.call(host, Topic::AUTHORITY, GIVE_MAX, handed);
            match answer {
                Err(Failure::NotConnected) if begin.elapsed() < BACK_MAX => sleep(BACK_LOOK),
                answer => return answer,
            }
        }
    }
}

/// Returns the operations of a step.
fn operations(config: &FabricConfig, step: Step, new: &Authority) -> Vec<Operation> {
    match step {
        Step::Trust => {
            vec![Operation::AddAuthority { authority: entry(new) }]
        }
        Step::Sign(AuthorityEntry { fingerprint, .. }) => {
            // They name the old authority, so that no host could join with them.
            let open = config.tokens.iter().filter(|(_, token)| token.used.is_none());
            let ended = open.map(|(id, _)| Operation::RemoveToken { id: id.clone() });
            [Operation::SignBy { fingerprint }].into_iter().chain(ended).collect()
        }
        Step::Remove { old, .. } => {
            old.into_iter().map(|authority| Operation::RemoveAuthority { authority }).collect()
        }
    }
}

/// Returns the reason why a step is not taken.
fn refused(who: &str, why: &str) -> String {
    format!(
        "the step is not taken, since every member takes part in it, and {who} does not: {why}; \
         run `sluice fabric rotate-ca` again when it is there, or take it out with `sluice fabric \
         evict`"
    )
}

#[cfg(test)]
mod tests;
