//! Standing of this host: a member that nobody speaks to asks the others whether it still is one,
//! and answers others that ask.
//!
//! ```text
//!   connected to a majority of the voters ──> MEMBER ── no, for 5 s ──> asks, again every 30 s
//!                    ^                                                     │ evicted
//!                    └──────────────── connected again ──── EVICTED <──────┘
//!                                       or another answer of a later revision
//! ```
//!
//! An evicted host forwards with its last tables. It neither votes nor changes anything: what it
//! hears about the configuration is ignored, and it begins no election. Its membership does not
//! end by the answer of one member; an operator ends it (`sluice fabric leave --forget`). One who
//! had asked for it has done so: a host whose own departure is in doubt, since the others close
//! their connections to it as soon as they know, asks at once and leaves by that answer.
//!
//! *Evidence.* A member answers `evicted` if the asking host's certificate is revoked, or its log
//! has the end of that very membership. It answers `missing` if it merely has no such member. That
//! is believed only of a later revision than the asking host knows: at its own revision it was one.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;

use sluice_api::envelope::rfc3339;
use sluice_api::fabric_config::{FabricConfig, Operation, read_change};
use sluice_api::transaction::{Answer, Evicted, Question};
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{Outcome, Transaction};

use super::Event;
use super::requests::Asked;
use super::setup::{FABRIC_PORT, now_s};
use super::thread::Thread;
use super::words;
use crate::enroll::{
    self, Asker, Eviction, Inquirer, InquiryError, Known, Standing, StandingAnswer, join_port,
};
use crate::sys::log::say;
use crate::sys::threads::spawn;

/// Time without a majority of the voters after which members are asked.
const ALONE_MIN: Nanos = Nanos::from_millis(5_000);
/// Time without a majority after a start, after which the host announces itself all the same: by
/// then members were asked, and one that is there has answered.
const UNANNOUNCED_MAX: Nanos = Nanos::from_millis(15_000);
/// Time between two rounds of questions.
const AGAIN: Nanos = Nanos::from_millis(30_000);
/// Time between two looks at the connections.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);
/// Members that are asked at a time.
const ASKED_MAX: usize = 3;

/// Sender of an answer to a host that asks.
pub(super) type StandingReply = SyncSender<Result<StandingAnswer, enroll::Refused>>;

/// Standing of this host, as far as it knows.
#[derive(Debug, Default)]
pub(super) struct OwnStanding {
    look_at: Nanos,
    /// Time since which a majority of the voters is not connected.
    alone_since: Option<Nanos>,
    /// Time of the next round.
    next: Nanos,
    /// Questions without an answer.
    open: usize,
    /// Members in the order in which they are asked, by number.
    turns: VecDeque<u16>,
    /// Latest revision of an answer since the host is alone.
    revision: u64,
    /// Eviction of this host, in words.
    evicted: Option<Evicted>,
    /// The host has been connected to a majority since its start, or nobody denies that it is a
    /// member.
    is_known: bool,
    /// An operator wants this host to leave.
    departs: bool,
}

impl OwnStanding {
    /// Notes that an operator wants this host to leave, or that this was refused.
    pub(super) const fn departs(&mut self, departs: bool) {
        self.departs = departs;
    }

    /// Returns the eviction of this host, if it was told of one.
    pub(super) fn evicted(&self) -> Option<&Evicted> {
        self.evicted.as_ref()
    }

    /// Returns true if this host may announce itself as a member.
    pub(super) const fn may_announce(&self) -> bool {
        self.is_known && self.evicted.is_none()
    }

    /// Returns true once: when it may announce itself as a member for the first time.
    fn becomes_known(&mut self, now: Nanos) -> bool {
        let is_late = |since: Nanos| now.since(since) >= UNANNOUNCED_MAX;
        let is_known = self.alone_since.is_none_or(is_late);
        is_known && !std::mem::replace(&mut self.is_known, true)
    }

    /// Returns true if it is time to look at the connections.
    fn looks(&mut self, now: Nanos) -> bool {
        let is_due = now >= self.look_at;
        if is_due {
            self.look_at = now.after(LOOK_EVERY);
        }
        is_due
    }

    /// Notes whether a majority is out of reach. Returns true if members are to be asked now.
    fn tick(&mut self, now: Nanos, is_alone: bool) -> bool {
        if !is_alone {
            self.alone_since = None;
            self.revision = 0;
            return false;
        }
        if self.alone_since.is_none() {
            self.alone_since = Some(now);
            self.next = now.after(ALONE_MIN);
        }
        let is_due = (now >= self.next || self.departs) && self.open == 0;
        if is_due {
            self.next = now.after(AGAIN);
        }
        is_due
    }

    /// Chooses the members of a round: those whose turn it is, and that are not connected.
    fn choose(&mut self, others: &[u16]) -> Vec<u16> {
        self.turns.retain(|id| others.contains(id));
        let new = others.iter().filter(|id| !self.turns.contains(id));
        let new: Vec<u16> = new.copied().collect();
        self.turns.extend(new);
        let count = self.turns.len().min(ASKED_MAX);
        let chosen: Vec<u16> = self.turns.drain(..count).collect();
        self.turns.extend(&chosen);
        chosen
    }

    /// Takes an answer. Returns true if it changes the standing of this host, which has applied
    /// revision `own`; `None`: it has no configuration yet.
    fn take(&mut self, own: Option<u64>, by: &str, answer: &StandingAnswer) -> bool {
        if self.alone_since.is_none() || answer.revision < self.revision {
            return false;
        }
        self.revision = answer.revision;
        let evicted = believed(own, answer).map(|eviction| Evicted {
            told_by: by.to_owned(),
            by: eviction.by.clone(),
            at_ms: eviction.at_ms,
            revision: eviction.revision,
        });
        let has_changed = evicted.is_some() != self.evicted.is_some();
        self.evicted = evicted;
        has_changed
    }
}

/// Returns the eviction in an answer that is believed, by a host that has applied revision `own`.
fn believed(own: Option<u64>, answer: &StandingAnswer) -> Option<&Eviction> {
    match &answer.standing {
        Standing::Member => None,
        Standing::Evicted(eviction) => Some(eviction),
        // At its own revision this host was a member.
        Standing::Missing(eviction) => {
            own.is_some_and(|own| answer.revision > own).then_some(eviction)
        }
    }
}

/// Returns how a host stands in a configuration with the transactions that led to it.
pub(super) fn standing<'a>(
    config: &FabricConfig,
    history: impl Iterator<Item = &'a Transaction>,
    asker: &Asker,
) -> Standing {
    let log = Log::read(history, asker);
    let eviction = |found: Option<&Transaction>| Eviction {
        revision: found.map(|transaction| transaction.revision),
        by: found.map(|transaction| words::name(config, transaction.id.host)),
        at_ms: found.map(|transaction| transaction.time_ms),
    };
    if config.trust.revoked.contains_key(&asker.serial) {
        return Standing::Evicted(eviction(log.revoked));
    }
    let entry = config.members.get(&asker.name);
    if entry.is_some_and(|member| (member.id, member.seat) == (asker.id, asker.seat)) {
        return Standing::Member;
    }
    match log.ended {
        Some(found) => Standing::Evicted(eviction(Some(found))),
        None => Standing::Missing(eviction(log.removed)),
    }
}

/// Transactions about a host.
#[derive(Default)]
struct Log<'a> {
    /// It revoked the host's certificate.
    revoked: Option<&'a Transaction>,
    /// It ended the very membership that the log has seen begin.
    ended: Option<&'a Transaction>,
    /// It took a member of that name out.
    removed: Option<&'a Transaction>,
}

impl<'a> Log<'a> {
    fn read(history: impl Iterator<Item = &'a Transaction>, asker: &Asker) -> Self {
        let (mut log, mut is_in) = (Self::default(), false);
        for transaction in history.filter(|one| one.outcome == Outcome::Applied) {
            for operation in read_change(&transaction.change).unwrap_or_default() {
                match operation {
                    Operation::AddMember { name, member } if name == asker.name => {
                        is_in = (member.id, member.seat) == (asker.id, asker.seat);
                    }
                    Operation::RemoveMember { name } if name == asker.name => {
                        log.removed = Some(transaction);
                        if std::mem::take(&mut is_in) {
                            log.ended = Some(transaction);
                        }
                    }
                    Operation::Revoke { serial, .. } if serial == asker.serial => {
                        log.revoked = Some(transaction);
                    }
                    _ => {}
                }
            }
        }
        log
    }
}

impl Thread {
    /// Looks at the connections, and asks members how this host stands if it is alone.
    pub(super) fn look_at_standing(&mut self, now: Nanos) {
        if !self.standing.looks(now) {
            return;
        }
        let is_alone = self.is_alone();
        if !is_alone && self.standing.evicted.take().is_some() {
            say!("this host is connected to members of its fabric again, and takes part in it");
            self.fabric.show_eviction(None);
            self.announce();
        }
        if self.standing.tick(now, is_alone) {
            self.ask_how_it_stands();
        }
        if self.standing.becomes_known(now) {
            self.announce();
        }
    }

    /// Returns true if this host has others in its fabric, and is connected to none of them, or to
    /// no majority of the voters.
    fn is_alone(&self) -> bool {
        let own = HostId(self.own.place.id);
        let has_others = self.shared().members.values().any(|member| member.id != own.0);
        if self.connected.is_empty() || !has_others {
            return has_others;
        }
        let Some(_) = self.commit.replica() else { return false };
        let voters = self.commit.status().voters;
        let is_here = |voter: &&HostId| **voter == own || self.connected.contains(*voter);
        2 * voters.iter().filter(is_here).count() <= voters.len()
    }

    fn ask_how_it_stands(&mut self) {
        let credentials = match self.files.load(now_s(&self.wall)) {
            Ok(credentials) => credentials,
            Err(error) => {
                say!(debug: "nobody can be asked how this host stands: {error}");
                return;
            }
        };
        let place = &self.own.place;
        let inquirer = Inquirer {
            name: place.name.clone(),
            id: place.id,
            seat: place.seat,
            credentials,
            revoked: self.shared().trust.revoked.keys().cloned().collect(),
        };
        let port = join_port(FABRIC_PORT).unwrap_or(FABRIC_PORT);
        let others: BTreeMap<u16, Known> = self
            .shared()
            .members
            .iter()
            .filter(|(_, member)| {
                member.id != place.id && !self.connected.contains(&HostId(member.id))
            })
            .map(|(name, member)| {
                let at = SocketAddr::new(member.listen().into(), port);
                (member.id, Known { name: name.clone(), at })
            })
            .collect();
        let numbers: Vec<u16> = others.keys().copied().collect();
        for id in self.standing.choose(&numbers) {
            let (known, inquirer) = (others[&id].clone(), inquirer.clone());
            let (handle, wall) = (self.handle.clone(), self.wall.clone());
            let asked = spawn("standing", move || {
                let answer = inquirer.ask(&known, &wall);
                handle.note(Event::Told(known.name, Box::new(answer)));
            });
            match asked {
                Ok(()) => self.standing.open += 1,
                Err(error) => say!(debug: "a member cannot be asked: {error:#}"),
            }
        }
    }

    /// Takes the answer of a member about this host.
    pub(super) fn told(&mut self, by: &str, answer: Result<StandingAnswer, InquiryError>) {
        self.standing.open = self.standing.open.saturating_sub(1);
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                say!(debug: "{by} does not say how this host stands: {why}");
                return;
            }
        };
        let own = self.commit.replica().map(|_| self.commit.revision());
        if !self.standing.take(own, by, &answer) {
            return;
        }
        if self.standing.departs && self.standing.evicted.is_some() {
            self.leave(&format!("it has left, says {by}"));
            return;
        }
        let Some(why) = self.eviction_in_words() else {
            say!("{by} says that this host is a member after all");
            self.fabric.show_eviction(None);
            self.announce();
            return;
        };
        say!(warn: "{why}");
        self.fabric.show_eviction(Some(why.clone()));
        self.announce();
        for (_, asked) in std::mem::take(&mut self.asked) {
            asked.refuse(why.clone());
        }
    }

    /// Returns the eviction of this host in words, with the remedy; `None` if it was told of none.
    pub(super) fn eviction_in_words(&self) -> Option<String> {
        let place = &self.own.place;
        let evicted = self.standing.evicted()?;
        Some(eviction_in_words(&place.fabric, &place.name, evicted))
    }

    /// Answers a host that asks how it stands.
    pub(super) fn answer_standing(&self, asker: &Asker, reply: &StandingReply) {
        let answer = match (self.commit.replica(), self.standing.evicted()) {
            (Some(known), None) => Ok(StandingAnswer {
                revision: self.commit.revision(),
                standing: standing(known.config(), self.commit.history(), asker),
            }),
            _ => Err(enroll::Refused::unavailable("this member does not know it itself")),
        };
        _ = reply.send(answer);
    }

    /// Answers a question that would change something at a host that was evicted.
    pub(super) fn answer_evicted(
        &mut self,
        question: &Question,
        why: String,
    ) -> Result<Answer, String> {
        let said = "this host has forgotten its fabric, which had evicted it";
        match question {
            Question::Leave { .. } => Ok(self.forget_fabric(said)),
            _ => Err(why),
        }
    }

    /// Forgets the fabric here, without a question to anybody.
    pub(super) fn forget_fabric(&mut self, said: &str) -> Answer {
        self.leave("its operator had it forget the fabric");
        Answer::Done { said: said.to_owned() }
    }
}

impl Asked {
    /// Refuses a request.
    pub(super) fn refuse(self, why: String) {
        match self {
            Self::Change { reply, .. }
            | Self::Check { reply, .. }
            | Self::Plain(reply)
            | Self::Token { reply, .. } => _ = reply.send(Err(why)),
            Self::Admit { reply, .. } => _ = reply.send(Err(enroll::Refused::unavailable(why))),
        }
    }
}

/// Returns an eviction in words, with the remedy.
fn eviction_in_words(fabric: &str, own: &str, evicted: &Evicted) -> String {
    let Evicted { told_by, by, at_ms, revision } = evicted;
    let happened = match by {
        Some(by) if by == own => format!("has left fabric {fabric}"),
        Some(by) => format!("was evicted from fabric {fabric} by {by}"),
        None => format!("was evicted from fabric {fabric}"),
    };
    let at = at_ms.map_or_else(String::new, |at| format!(" at {}", rfc3339(u128::from(at))));
    let revision = revision.map_or_else(String::new, |number| format!(" in revision {number}"));
    format!(
        "this host {happened}{at}{revision}, says {told_by}; it changes nothing any more, and its \
         ports forward with what it knew; `sluice fabric leave --forget` here ends that, and \
         `sluice fabric join` with another token makes it a member again"
    )
}

#[cfg(test)]
mod tests;
