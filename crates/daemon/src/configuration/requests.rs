//! Questions of people, and of hosts that join: what becomes a request of the commit protocol, and
//! what its result answers.

use std::sync::mpsc::SyncSender;

use sluice_api::fabric_config::{
    Editable, FabricConfig, Operation, REVOKED_MAX, read_change, write_change,
};
use sluice_api::placement::{PolicyVersion, Stamped};
use sluice_api::transaction::{Answer, Away, Committed, How, LogRow, Question};
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{Done, Policy, Proposal, Refused, Request, RequestId};

use super::admission::{self, Candidate, Judged, admitted};
use super::store;
use super::thread::Thread;
use super::words;
use crate::enroll::{self, Admitted, Token};
use crate::sys::clock::wall_ms;
use crate::sys::log::say;

/// Longest wait for other members' progress before the answer, which says who lags.
const PROGRESS_MAX: Nanos = Nanos::from_millis(200);
/// Longest wait for the effect of a change at this host.
const EFFECT_MAX: Nanos = Nanos::from_millis(20_000);

/// Sender of an answer to a person.
pub(super) type Reply = SyncSender<Result<Answer, String>>;

/// A request that the protocol works on.
#[derive(Debug)]
pub(super) enum Asked {
    /// A change, in words; and the seconds within which it is to be confirmed.
    Change {
        reply: Reply,
        changes: Vec<String>,
        confirm_within_s: Option<u32>,
        /// The candidate is done with when it is committed.
        is_candidate: bool,
    },
    /// Votes alone.
    Check { reply: Reply, changes: Vec<String> },
    /// A confirmation, or a recovery.
    Plain(Reply),
    /// A token that is shown when it is committed.
    Token { reply: Reply, text: String, expires_ms: u64 },
    /// A host that joins.
    Admit { reply: SyncSender<Result<Admitted, enroll::Refused>>, name: String },
}

/// A committed change that waits for its effect.
#[derive(Debug)]
pub(super) struct Waiting {
    reply: Reply,
    committed: Committed,
    /// End of the wait for other members.
    progress_until: Nanos,
    /// End of the wait for this host.
    effect_until: Nanos,
}

impl Waiting {
    pub(super) fn until(&self) -> Nanos {
        self.progress_until
    }
}

impl Thread {
    /// Takes a question.
    pub(super) fn ask(&mut self, now: Nanos, question: Question, reply: Reply) {
        if let Some(why) = self.eviction_in_words().filter(|_| question.changes()) {
            _ = reply.send(self.answer_evicted(&question, why));
            return;
        }
        let answer = match question {
            Question::Create { .. } | Question::Join { .. } => Err(format!(
                "this host is a member of fabric `{}`; `sluice fabric leave` comes first",
                self.own.place.fabric
            )),
            Question::Token { valid_s } => return self.token(now, valid_s, reply),
            Question::Change { change, how } => {
                return self.change(now, (change, false), how, reply);
            }
            Question::Confirm => return self.submit(now, Request::Confirm, Asked::Plain(reply)),
            Question::Rollback { to, how } => match self.change_back_to(to) {
                Ok(change) => {
                    let comment = match how.comment.is_empty() {
                        true => format!("back to revision {to}"),
                        false => how.comment.clone(),
                    };
                    return self.change(now, (change, false), How { comment, ..how }, reply);
                }
                Err(why) => Err(why),
            },
            Question::Log { last } => Ok(self.log(last)),
            Question::Show { at } => self.show(at),
            Question::Status => Ok(self.status()),
            Question::Load { text, base } => self.load(&text, base),
            Question::Candidate => self.candidate().map(|(answer, _)| answer),
            Question::Commit { how } => match self.candidate() {
                Ok((_, change)) => return self.change(now, (change, true), how, reply),
                Err(why) => Err(why),
            },
            Question::RotateKey => self
                .keeper
                .rotate_key()
                .map(|()| Answer::Done { said: "this host has another key".to_owned() })
                .map_err(|error| format!("the key stays: {error}")),
            Question::RotateCa { begin } => return self.rotate_ca(begin, reply),
            Question::AbandonCa => return self.abandon_ca(now, reply),
            Question::Discard => self
                .disk
                .put_candidate(None)
                .map(|()| Answer::Done { said: "the candidate is forgotten".to_owned() })
                .map_err(|error| format!("{error:#}")),
            Question::Leave { forget: false } => return self.ask_to_leave(now, reply),
            Question::Leave { forget: true } => Ok(self.forget_fabric(
                "this host has forgotten its fabric; if it is a member there still, evict it \
                 (`sluice fabric evict`)",
            )),
            Question::Evict { host } if host == self.own.place.name => {
                Err("a host leaves by `sluice fabric leave`".to_owned())
            }
            Question::Evict { host } => {
                let change = self.eviction(&host);
                return self.change(now, (change, false), How::default(), reply);
            }
            Question::Recover { without } => match self.numbers(&without) {
                Ok(without) => {
                    return self.submit(now, Request::Recover { without }, Asked::Plain(reply));
                }
                Err(why) => Err(why),
            },
        };
        _ = reply.send(answer);
    }

    fn submit(&mut self, now: Nanos, request: Request, asked: Asked) {
        let id = self.commit.submit(now, request);
        self.asked.insert(id, asked);
    }

    pub(super) fn change(
        &mut self,
        now: Nanos,
        (change, is_candidate): (Vec<Operation>, bool),
        how: How,
        reply: Reply,
    ) {
        let change = self.stamped(change);
        let changes = words::operations(&change);
        if change.is_empty() {
            _ = reply.send(Err("there is nothing to change".to_owned()));
            return;
        }
        let bytes = write_change(&change);
        if how.check {
            return self.submit(now, Request::Check(bytes), Asked::Check { reply, changes });
        }
        let confirm_within_s = how.confirmed_s;
        let proposal = self.proposal(bytes, &how);
        let asked = Asked::Change { reply, changes, confirm_within_s, is_candidate };
        self.submit(now, Request::Commit(proposal), asked);
    }

    /// Returns a change whose placement policies have stamps, above those that are known here.
    fn stamped(&self, mut change: Vec<Operation>) -> Vec<Operation> {
        for operation in &mut change {
            if let Operation::SetPlacement { placement: Some(Stamped { stamp, .. }) } = operation
                && *stamp == PolicyVersion::default()
            {
                let version = self.force.placement_version() + 1;
                *stamp = PolicyVersion { version, by: self.own.place.id, at_ms: wall_ms() };
            }
        }
        change
    }

    fn proposal(&self, change: Vec<u8>, how: &How) -> Proposal {
        let seconds = |seconds: u32| Nanos::from_millis(u64::from(seconds) * 1_000);
        Proposal {
            change,
            author: self.own.place.name.clone(),
            time_ms: wall_ms(),
            comment: how.comment.clone(),
            policy: match how.away {
                Away::Quorum => Policy::Quorum,
                Away::RequireAll => Policy::RequireAll,
                Away::Wait(ms) => Policy::Wait(Nanos::from_millis(ms.into())),
            },
            confirm_within: how.confirmed_s.map(seconds),
        }
    }

    fn token(&mut self, now: Nanos, valid_s: u32, reply: Reply) {
        let made = self.files.load(super::setup::now_s(&self.wall)).map_err(anyhow::Error::from);
        let made = made.and_then(|credentials| {
            let fingerprint = credentials.authority()?.fingerprint();
            Token::new(fingerprint, wall_ms(), u64::from(valid_s) * 1_000)
                .map_err(|_| anyhow::anyhow!("the kernel gives no random numbers"))
        });
        let (token, record) = match made {
            Ok(made) => made,
            Err(error) => {
                _ = reply.send(Err(format!("no token can be made: {error:#}")));
                return;
            }
        };
        let over = self.shared().tokens.iter().filter(|(_, token)| token.expires_ms < wall_ms());
        let mut change: Vec<Operation> =
            over.map(|(id, _)| Operation::RemoveToken { id: id.clone() }).collect();
        let (id, entry) = admission::entry(&record);
        let expires_ms = entry.expires_ms;
        change.push(Operation::AddToken { id, token: entry });
        let proposal = self.proposal(write_change(&change), &How::default());
        let asked = Asked::Token { reply, text: token.text().to_string(), expires_ms };
        self.submit(now, Request::Commit(proposal), asked);
    }

    /// Takes a host that joins.
    pub(super) fn admit(&mut self, now: Nanos, candidate: Candidate) {
        let Candidate { joiner, answer: reply } = candidate;
        if self.standing.evicted().is_some() {
            let why = "this host was evicted itself; ask another member";
            _ = reply.send(Err(enroll::Refused::unavailable(why)));
            return;
        }
        match admission::judge(self.shared(), &joiner, wall_ms()) {
            Ok(Judged::Again(admitted)) => _ = reply.send(Ok(self.with_next(admitted))),
            Ok(Judged::First(change)) => {
                let how = How { comment: format!("{} joins", joiner.name), ..How::default() };
                let proposal = self.proposal(write_change(&change), &how);
                let asked = Asked::Admit { reply, name: joiner.name };
                self.submit(now, Request::Commit(proposal), asked);
            }
            Err(refused) => _ = reply.send(Err(refused)),
        }
    }

    /// Returns the operations that take a member out, and end the certificate that it has shown: it
    /// would do again for a later member of that name.
    fn eviction(&self, host: &str) -> Vec<Operation> {
        let remove = Operation::RemoveMember { name: host.to_owned() };
        let shared = self.shared();
        let has_room = shared.trust.revoked.len() < REVOKED_MAX;
        let is_one = shared.members.contains_key(host) && has_room;
        let serial = self.fabric.serial_of(host).filter(|_| is_one);
        let revoke = serial.map(|serial| Operation::Revoke { serial, host: host.to_owned() });
        [remove].into_iter().chain(revoke).collect()
    }

    fn ask_to_leave(&mut self, now: Nanos, reply: Reply) {
        if self.shared().members.len() == 1 {
            let said = "the fabric has ended with its last member".to_owned();
            _ = reply.send(Ok(Answer::Done { said: said.clone() }));
            self.leave(&said);
            return;
        }
        self.standing.departs(true);
        self.change(now, (self.departure(), false), How::default(), reply);
    }

    /// Takes the result of a request.
    pub(super) fn answered(&mut self, request: RequestId, result: Result<Done, Refused>) {
        let Some(asked) = self.asked.remove(&request) else { return };
        let Some(asked) = self.wait_to_depart(request, asked, result.as_ref().err()) else {
            return;
        };
        let result = result.map_err(|refused| words::refused(self.shared(), &refused));
        match (asked, result) {
            (asked, Err(why)) => asked.refuse(why),
            (Asked::Change { reply, changes, confirm_within_s, is_candidate }, Ok(done)) => {
                if is_candidate && let Err(error) = self.disk.put_candidate(None) {
                    say!(warn: "the candidate is not forgotten: {error:#}");
                }
                self.committed(reply, (changes, confirm_within_s), &done);
            }
            (Asked::Check { reply, changes }, Ok(Done::Checked { yes, .. })) => {
                let voted = yes.iter().map(|host| words::name(self.shared(), *host)).collect();
                _ = reply.send(Ok(Answer::Accepted { changes, voted }));
            }
            (Asked::Plain(reply) | Asked::Check { reply, .. }, Ok(done)) => {
                _ = reply.send(Ok(Answer::Done { said: said(&done) }));
            }
            (Asked::Token { reply, text, expires_ms }, Ok(_)) => {
                let own = self.shared().members.get(&self.own.place.name);
                let address = own.map_or(std::net::Ipv4Addr::UNSPECIFIED, |own| own.listen());
                _ = reply.send(Ok(Answer::Token { token: text, expires_ms, address }));
            }
            (Asked::Admit { reply, name }, Ok(_)) => {
                _ = reply.send(Ok(self.with_next(admitted(self.shared(), &name))));
            }
        }
    }

    fn committed(
        &mut self,
        reply: Reply,
        (changes, confirm_within_s): (Vec<String>, Option<u32>),
        done: &Done,
    ) {
        let Done::Committed { revision, .. } = *done else {
            _ = reply.send(Ok(Answer::Done { said: said(done) }));
            return;
        };
        let now = crate::sys::clock::now();
        let (applied, behind, at_restart) = (Vec::new(), Vec::new(), Vec::new());
        self.waiting.push(Waiting {
            reply,
            committed: Committed {
                revision,
                changes,
                applied,
                behind,
                confirm_within_s,
                at_restart,
                not_in_force: None,
            },
            progress_until: now.after(PROGRESS_MAX),
            effect_until: now.after(EFFECT_MAX),
        });
    }

    /// Answers those who wait until the configuration is known and in force.
    pub(super) fn answer_settled(&mut self) {
        if self.is_given && self.parting.is_none() && self.in_force.revision >= self.given {
            for settled in self.settled.drain(..) {
                _ = settled.send(());
            }
        }
    }

    /// Answers those whose change is in force here, and of whose effect elsewhere enough is known.
    pub(super) fn answer_waiting(&mut self, now: Nanos) {
        let waiting = std::mem::take(&mut self.waiting);
        for mut one in waiting {
            let revision = one.committed.revision;
            let (applied, behind) = self.progress_at(revision);
            let is_here = self.in_force.revision >= revision || self.has_left;
            let is_known = behind.iter().all(|(_, is_connected)| !is_connected);
            let is_over = self.has_left || now >= one.progress_until;
            if !(is_here && (is_known || is_over)) && now < one.effect_until {
                if is_over {
                    one.progress_until = one.effect_until;
                }
                self.waiting.push(one);
                continue;
            }
            one.committed.applied = applied;
            one.committed.behind = behind.into_iter().map(|(name, _)| name).collect();
            one.committed.at_restart.clone_from(&self.in_force.at_restart);
            one.committed.not_in_force.clone_from(&self.in_force.failed);
            _ = one.reply.send(Ok(Answer::Committed(one.committed)));
        }
    }

    /// Returns the members that have applied a revision; and those that have not, with true for
    /// those that are connected.
    fn progress_at(&self, revision: u64) -> (Vec<String>, Vec<(String, bool)>) {
        let (mut applied, mut behind) = (Vec::new(), Vec::new());
        for (member, is_connected, progress) in self.commit.status().members {
            let name = words::name(self.shared(), member.host);
            match progress.is_some_and(|progress| progress.revision >= revision) {
                true => applied.push(name),
                false => behind.push((name, is_connected)),
            }
        }
        (applied, behind)
    }

    fn inverse_to(&self, to: u64) -> Result<Vec<Operation>, String> {
        let inverses = self.commit.inverses(to);
        let inverses = inverses.map_err(|refused| words::refused(self.shared(), &refused))?;
        let mut change = Vec::new();
        for bytes in inverses.iter().filter(|bytes| !bytes.is_empty()) {
            change.extend(read_change(bytes).map_err(|error| error.to_string())?);
        }
        Ok(change)
    }

    /// Returns the change that undoes everything after a revision, without operations that cancel
    /// each other.
    fn change_back_to(&self, to: u64) -> Result<Vec<Operation>, String> {
        let inverse = self.inverse_to(to)?;
        self.shared().net_change(&inverse).map_err(|error| error.to_string())
    }

    fn log(&self, last: u32) -> Answer {
        let unconfirmed = self.commit.status().unconfirmed;
        let row = |transaction: &sluice_control::commit::Transaction| {
            let (state, why) = words::state(transaction, unconfirmed);
            let comment = match transaction.undoes {
                true => "not confirmed in time".to_owned(),
                false => transaction.comment.clone(),
            };
            LogRow {
                revision: transaction.revision,
                by: words::name(self.shared(), transaction.id.host),
                at_ms: transaction.time_ms,
                comment,
                changes: words::change(&transaction.change),
                inverse: words::change(&transaction.inverse),
                state,
                why,
            }
        };
        let rows = self.commit.history().rev().take(last as usize).map(row);
        Answer::Log(rows.collect())
    }

    fn show(&self, at: Option<u64>) -> Result<Answer, String> {
        let revision = at.unwrap_or(self.commit.revision());
        let config = Box::new(self.config_at(revision)?);
        let not_in_force = self.in_force.failed.clone().filter(|_| at.is_none());
        Ok(Answer::Config { revision, config, not_in_force })
    }

    /// Returns the configuration as of a revision: networks and settings of then, and members of
    /// now.
    fn config_at(&self, revision: u64) -> Result<FabricConfig, String> {
        if self.commit.replica().is_none() {
            return Err(self.waits_for());
        }
        let mut config = self.shared().clone();
        if revision > self.commit.revision() {
            return Err(format!("the newest revision is {}", self.commit.revision()));
        }
        config.apply(&self.inverse_to(revision)?).map_err(|error| error.to_string())?;
        Ok(config)
    }

    fn load(&self, text: &str, base: Option<u64>) -> Result<Answer, String> {
        let base = base.unwrap_or(self.commit.revision());
        let from = Editable::of(&self.config_at(base)?);
        Editable::read(text).map_err(|error| error.to_string())?;
        let candidate = store::Candidate { base, from: from.text(), text: text.to_owned() };
        self.disk.put_candidate(Some(&candidate)).map_err(|error| format!("{error:#}"))?;
        self.candidate().map(|(answer, _)| answer)
    }

    /// Returns the candidate, or the configuration if there is none, and the change that it is:
    /// what differs from the text that it was made of, so that what others change meanwhile stays.
    fn candidate(&self) -> Result<(Answer, Vec<Operation>), String> {
        let kept = self.disk.candidate().map_err(|error| format!("{error:#}"))?;
        let kept = kept.unwrap_or_else(|| {
            let text = Editable::of(self.shared()).text();
            store::Candidate { base: self.commit.revision(), from: text.clone(), text }
        });
        let read = |text: &str| Editable::read(text).map_err(|error| error.to_string());
        let change = read(&kept.from)?.difference(&read(&kept.text)?);
        let changes = words::operations(&change);
        Ok((Answer::Candidate { base: kept.base, text: kept.text, changes }, change))
    }

    fn numbers(&self, names: &[String]) -> Result<Vec<HostId>, String> {
        let number = |name: &String| match self.shared().members.get(name) {
            Some(member) => Ok(HostId(member.id)),
            None => Err(format!("the fabric has no member `{name}`")),
        };
        names.iter().map(number).collect()
    }
}

/// Returns a result in words.
fn said(done: &Done) -> String {
    match done {
        Done::Committed { revision, .. } => format!("revision {revision}"),
        Done::Checked { .. } => "all members that were asked would accept it".to_owned(),
        Done::Confirmed(revision) => format!("revision {revision} stays"),
        Done::Reverted(revision) => format!("revision {revision} is undone"),
        Done::Recovered(epoch) => format!(
            "the fabric goes on, in epoch {}; what only the missing hosts knew is given up: \
             evict them (`sluice fabric evict`), and let them join again",
            epoch.number
        ),
    }
}
