//! Questions to one peer and its questions to this host, each answered once or not at all.
//!
//! ```text
//!   ask ───> Waiting ── written ──> Sent ── answer ─────────────────> Done(Ok, or why not)
//!               └────────────────────┴── its time is over ──────────> Done(TooLate)
//!               └────────────────────┴── the connection is gone ────> Done(NotConnected)
//!
//!   the peer's ──> Open ── reply ──> Ready ── written ──> gone
//!                    └────────────────┴── its time is over, or the connection: dropped
//! ```
//!
//! Pure: the caller hands in received messages and its answers, and takes out [`Event`]s. Times are
//! the caller's; a limit is sent to the peer as the remaining time, so that no two clocks are
//! compared.
//!
//! **Bounds.** At most [`OPEN_MAX`] questions of each side are open at a time, and
//! [`URGENT_OPEN_MAX`] urgent ones; a question has [`ASK_SIZE_MAX`] bytes and an answer
//! [`ANSWER_SIZE_MAX`], and at most [`READY_BYTES_MAX`] bytes of answers wait to be sent. Questions
//! of a peer beyond that are refused. If even the refusals do not fit, they are dropped, and the
//! peer's own limit ends its question.
//!
//! **Replication goes first.** [`Rpc::write`] writes one frame, and the session calls it once for
//! each time that it writes claims; so a peer that asks for megabytes costs the claims of a write
//! at most one frame.
//!
//! **Holds go before replication** ([`Topic::HOLD`]): questions about them and their answers are
//! *urgent*. Urgent questions are few and small, they have places of their own
//! ([`URGENT_OPEN_MAX`]), which no other question can take, and the session writes them before
//! everything else.
//!
//! **Errors of a peer change nothing**: an answer to no question, a second answer, an answer that
//! is too large, a question asked twice. Errors are counted, and reported once a connection
//! ([`Wrong`]). The number of a question is never used again, so that no late answer is taken for
//! the answer to another question.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use sluice_base::Nanos;
use sluice_wire::fabric::HOLD_PARTS_MAX;
use sluice_wire::fabric::{ANSWER_SIZE_MAX, ASK_SIZE_MAX, Answer, Ask, Message, Outcome, Topic};

/// Questions of each side that may be open at a time.
pub const OPEN_MAX: usize = 16;
/// Urgent questions of each side that may be open beside them: twice all parts of a state.
pub const URGENT_OPEN_MAX: usize = 2 * HOLD_PARTS_MAX as usize;
/// Bytes of answers that may wait to be sent.
pub const READY_BYTES_MAX: usize = 64 * 1024;
/// Longest limit of a question.
pub const LIMIT_MAX: Nanos = Nanos::from_millis(60_000);

/// Refusals that may wait to be sent beside the answers.
const REFUSALS_MAX: usize = OPEN_MAX;
/// Own questions whose end is remembered.
const ENDED_MAX: usize = 4 * OPEN_MAX;

const _: () = assert!(READY_BYTES_MAX >= ANSWER_SIZE_MAX);

/// Reason why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// There is no connection to the host, or it ended before the answer came.
    NotConnected,
    /// The host runs a version that answers no questions.
    TooOld,
    /// Too many questions to the host are open.
    Busy,
    /// The host does not know the topic.
    UnknownTopic,
    /// No answer came in time.
    TooLate,
    /// The question is too large, or the answer is.
    TooBig,
    /// The host refuses to answer.
    Refused,
    /// The host gave an outcome that this version does not know.
    Unknown(u8),
}

impl Failure {
    const fn outcome(self) -> Outcome {
        match self {
            Self::UnknownTopic => Outcome::UnknownTopic,
            Self::TooBig => Outcome::TooBig,
            Self::Unknown(number) => Outcome::Unknown(number),
            _ => Outcome::Refused,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("there is no connection to it, or it broke"),
            Self::TooOld => f.write_str("its version answers no questions"),
            Self::Busy => write!(f, "{OPEN_MAX} questions to it are open"),
            Self::UnknownTopic => f.write_str("its version does not know this question"),
            Self::TooLate => f.write_str("it did not answer in time"),
            Self::TooBig => f.write_str("question or answer is larger than may be"),
            Self::Refused => f.write_str("it refused"),
            Self::Unknown(number) => write!(f, "it said {number}, which is not known here"),
        }
    }
}

impl core::error::Error for Failure {}

/// Error of a peer. It has no consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// An answer to no question of this connection.
    UnknownAnswer,
    /// A second answer.
    SecondAnswer,
    /// An answer above [`ANSWER_SIZE_MAX`].
    BigAnswer,
    /// A question with the number of an open one.
    AskedTwice,
    /// A question above [`ASK_SIZE_MAX`].
    BigAsk,
    /// More questions than may be open.
    TooMany,
}

impl Wrong {
    /// All errors; a position is an index of [`Counts::wrong`].
    pub const ALL: [Self; 6] = [
        Self::UnknownAnswer,
        Self::SecondAnswer,
        Self::BigAnswer,
        Self::AskedTwice,
        Self::BigAsk,
        Self::TooMany,
    ];

    /// Returns the word used in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownAnswer => "unknown_answer",
            Self::SecondAnswer => "second_answer",
            Self::BigAnswer => "big_answer",
            Self::AskedTwice => "asked_twice",
            Self::BigAsk => "big_ask",
            Self::TooMany => "too_many_asks",
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Own questions that were taken.
    pub asked: u64,
    /// Own questions that the peer answered.
    pub answered: u64,
    /// Own questions that had no answer in time.
    pub late: u64,
    /// Answers that came after the limit, and were dropped.
    pub late_answers: u64,
    /// Questions of the peer that were handed on.
    pub served: u64,
    /// Answers of this host that were ready too late, or whose asker has gone.
    pub late_replies: u64,
    /// Errors of the peer, by [`Wrong::ALL`].
    pub wrong: [u64; Wrong::ALL.len()],
}

impl Default for Counts {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Counts {
    const NOTHING: Self = Self {
        asked: 0,
        answered: 0,
        late: 0,
        late_answers: 0,
        served: 0,
        late_replies: 0,
        wrong: [0; Wrong::ALL.len()],
    };
}

/// Event for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer asks; [`Rpc::reply`] follows.
    Asked {
        /// The question, for [`Rpc::reply`]: a number of this side, because a peer that restarts
        /// begins its own numbers again.
        ticket: u64,
        /// Its topic.
        topic: Topic,
        /// Time for which the peer still waits.
        limit: Nanos,
        /// Its content.
        body: Vec<u8>,
    },
    /// An own question has ended. Each question that was taken ends so, once.
    Done {
        /// The question, of [`Rpc::ask`].
        id: u64,
        /// Its topic.
        topic: Topic,
        /// The answer.
        answer: Result<Vec<u8>, Failure>,
    },
    /// The peer made an error, for the first time on this connection.
    Wrong(Wrong),
}

/// An own question.
#[derive(Debug)]
struct Mine {
    id: u64,
    topic: Topic,
    until: Nanos,
    /// The bytes that are still to be sent.
    unsent: Option<Vec<u8>>,
}

/// A question of the peer.
#[derive(Debug)]
struct Theirs {
    id: u64,
    ticket: u64,
    urgent: bool,
    until: Nanos,
    reply: Option<(Outcome, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Down,
    /// A connection to a peer that answers no questions.
    Old,
    Up,
}

/// Questions of one peer and to it.
#[derive(Debug)]
pub struct Rpc {
    line: Line,
    mine: Vec<Mine>,
    theirs: Vec<Theirs>,
    refusals: VecDeque<u64>,
    /// Own questions that ended on this connection; true if an answer came.
    ended: VecDeque<(u64, bool)>,
    next: u64,
    /// The number of the first own question on this connection.
    first: u64,
    /// The number of the next question of the peer.
    ticket: u64,
    told: [bool; Wrong::ALL.len()],
    events: VecDeque<Event>,
    counts: Counts,
}

/// Returns true if questions of a topic go before claims, and have places of their own.
fn is_urgent(topic: Topic) -> bool {
    topic == Topic::HOLD
}

fn open_max(topic: Topic) -> usize {
    if is_urgent(topic) { URGENT_OPEN_MAX } else { OPEN_MAX }
}

impl Default for Rpc {
    fn default() -> Self {
        Self::new()
    }
}

impl Rpc {
    /// Creates the state of a peer without a connection.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            line: Line::Down,
            mine: Vec::new(),
            theirs: Vec::new(),
            refusals: VecDeque::new(),
            ended: VecDeque::new(),
            next: 1,
            first: 1,
            ticket: 1,
            told: [false; Wrong::ALL.len()],
            events: VecDeque::new(),
            counts: Counts::NOTHING,
        }
    }

    /// Notes a connection, on which both sides have greeted. `knows`: the peer's version answers
    /// questions.
    pub fn up(&mut self, knows: bool) {
        self.down();
        self.line = if knows { Line::Up } else { Line::Old };
    }

    /// Notes the end of the connection, and with it of all open questions.
    pub fn down(&mut self) {
        self.line = Line::Down;
        for Mine { id, topic, .. } in core::mem::take(&mut self.mine) {
            self.events.push_back(Event::Done { id, topic, answer: Err(Failure::NotConnected) });
        }
        self.theirs.clear();
        self.refusals.clear();
        self.ended.clear();
        self.first = self.next;
        self.told = [false; Wrong::ALL.len()];
        // The peer waits no more for answers to questions of that connection.
        self.events.retain(|event| !matches!(event, Event::Asked { .. }));
    }

    /// Asks, and returns the number of the question: [`Event::Done`] follows, after `limit` at the
    /// latest. A limit above [`LIMIT_MAX`] counts as [`LIMIT_MAX`].
    ///
    /// # Errors
    /// [`Failure::NotConnected`], [`Failure::TooOld`], [`Failure::TooBig`] and [`Failure::Busy`]:
    /// nothing is asked, and nothing follows.
    pub fn ask(
        &mut self,
        now: Nanos,
        topic: Topic,
        limit: Nanos,
        body: &[u8],
    ) -> Result<u64, Failure> {
        match self.line {
            Line::Down => return Err(Failure::NotConnected),
            Line::Old => return Err(Failure::TooOld),
            Line::Up => {}
        }
        if body.len() > ASK_SIZE_MAX {
            return Err(Failure::TooBig);
        }
        let same = self.mine.iter().filter(|mine| is_urgent(mine.topic) == is_urgent(topic));
        if same.count() == open_max(topic) {
            return Err(Failure::Busy);
        }
        let id = self.next;
        self.next += 1;
        self.counts.asked += 1;
        let until = now.after(limit.min(LIMIT_MAX));
        self.mine.push(Mine { id, topic, until, unsent: Some(body.to_vec()) });
        Ok(id)
    }

    /// Answers a question of the peer. If the question is not open any more, the answer is dropped
    /// and counted; so is a second answer.
    pub fn reply(&mut self, now: Nanos, ticket: u64, answer: Result<&[u8], Failure>) {
        self.expire(now);
        let ready: usize =
            self.theirs.iter().filter_map(|one| one.reply.as_ref()).map(|(_, b)| b.len()).sum();
        let is_open = |one: &&mut Theirs| one.ticket == ticket && one.reply.is_none();
        let open = self.theirs.iter_mut().find(is_open);
        let Some(open) = open else {
            self.counts.late_replies += 1;
            return;
        };
        open.reply = Some(match answer {
            Ok(body) if body.len() > ANSWER_SIZE_MAX => (Outcome::TooBig, Vec::new()),
            Ok(body) if ready + body.len() > READY_BYTES_MAX => (Outcome::Refused, Vec::new()),
            Ok(body) => (Outcome::Done, body.to_vec()),
            Err(failure) => (failure.outcome(), Vec::new()),
        });
    }

    /// Takes a question of the peer.
    pub fn asked(&mut self, now: Nanos, ask: &Ask<'_>) {
        self.expire(now);
        if self.theirs.iter().any(|one| one.id == ask.id) {
            return self.wrong(Wrong::AskedTwice);
        }
        let is_big = ask.body.len() > ASK_SIZE_MAX;
        let urgent = is_urgent(ask.topic);
        let same = self.theirs.iter().filter(|one| one.urgent == urgent);
        if same.count() == open_max(ask.topic) {
            self.wrong(Wrong::TooMany);
            if self.refusals.len() < REFUSALS_MAX {
                self.refusals.push_back(ask.id);
            }
            return;
        }
        // At least a millisecond: of questions that end at once there could be any number at a
        // time.
        let limit = Nanos::from_millis(ask.limit_ms.max(1).into()).min(LIMIT_MAX);
        let reply = is_big.then_some((Outcome::TooBig, Vec::new()));
        let ticket = self.ticket;
        self.ticket += 1;
        self.theirs.push(Theirs { id: ask.id, ticket, urgent, until: now.after(limit), reply });
        if is_big {
            return self.wrong(Wrong::BigAsk);
        }
        self.counts.served += 1;
        let (topic, body) = (ask.topic, ask.body.to_vec());
        self.events.push_back(Event::Asked { ticket, topic, limit, body });
    }

    /// Takes an answer of the peer.
    pub fn answered(&mut self, now: Nanos, answer: &Answer<'_>) {
        self.expire(now);
        let id = answer.id;
        // A question that was not sent cannot be answered.
        let sent = |mine: &Mine| mine.id == id && mine.unsent.is_none();
        let Some(at) = self.mine.iter().position(sent) else {
            return self.stray(id);
        };
        // The other questions keep their order: they are written in it.
        let Mine { topic, .. } = self.mine.remove(at);
        self.end(id, true);
        self.counts.answered += 1;
        let answer = match answer.outcome {
            Outcome::Done if answer.body.len() > ANSWER_SIZE_MAX => {
                self.wrong(Wrong::BigAnswer);
                Err(Failure::TooBig)
            }
            Outcome::Done => Ok(answer.body.to_vec()),
            Outcome::UnknownTopic => Err(Failure::UnknownTopic),
            Outcome::TooBig => Err(Failure::TooBig),
            Outcome::Refused => Err(Failure::Refused),
            Outcome::Unknown(number) => Err(Failure::Unknown(number)),
        };
        self.events.push_back(Event::Done { id, topic, answer });
    }

    /// Counts an answer to no open question.
    fn stray(&mut self, id: u64) {
        let unsent = self.mine.iter().any(|mine| mine.id == id);
        if unsent || !(self.first..self.next).contains(&id) {
            return self.wrong(Wrong::UnknownAnswer);
        }
        match self.ended.iter_mut().find(|(ended, _)| *ended == id) {
            Some((_, true)) => self.wrong(Wrong::SecondAnswer),
            Some((_, answered)) => {
                *answered = true;
                self.counts.late_answers += 1;
            }
            // The question ended too long ago to know if it had an answer.
            None => self.counts.late_answers += 1,
        }
    }

    fn end(&mut self, id: u64, answered: bool) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, answered));
    }

    fn wrong(&mut self, what: Wrong) {
        let at = what as usize;
        self.counts.wrong[at] += 1;
        if !core::mem::replace(&mut self.told[at], true) {
            self.events.push_back(Event::Wrong(what));
        }
    }

    /// Ends questions whose limit is over. Call this at [`Self::expires_at`].
    pub fn expire(&mut self, now: Nanos) {
        while let Some(at) = self.mine.iter().position(|mine| mine.until <= now) {
            let Mine { id, topic, .. } = self.mine.remove(at);
            self.end(id, false);
            self.counts.late += 1;
            self.events.push_back(Event::Done { id, topic, answer: Err(Failure::TooLate) });
        }
        let counts = &mut self.counts;
        self.theirs.retain(|one| {
            let is_over = one.until <= now;
            // A question without reply is counted when the reply comes.
            counts.late_replies += u64::from(is_over && one.reply.is_some());
            !is_over
        });
    }

    /// Returns the time at which the limit of the next question is over.
    #[must_use]
    pub fn expires_at(&self) -> Option<Nanos> {
        let mine = self.mine.iter().map(|mine| mine.until);
        mine.chain(self.theirs.iter().map(|one| one.until)).min()
    }

    /// Returns the size in bytes of the frame that is to be sent next; `None` if there is none.
    #[must_use]
    pub fn frame_size(&self, now: Nanos) -> Option<usize> {
        self.frame(now).map(|message| match message {
            Message::Ask(ask) => ask.frame_size(),
            Message::Answer(answer) => answer.frame_size(),
            _ => 0,
        })
    }

    /// Returns the size in bytes of the urgent frame that is to be sent next; `None` if there is
    /// none.
    #[must_use]
    pub fn urgent_size(&self, now: Nanos) -> Option<usize> {
        let is_some = self.ask_frame(now, true).or_else(|| self.ready_frame(true)).is_some();
        is_some.then(|| self.frame_size(now)).flatten()
    }

    /// Returns the next frame. Urgent frames go first. Then questions go before answers and these
    /// before refusals: a peer that asks a lot at a time waits for own questions of this host.
    fn frame(&self, now: Nanos) -> Option<Message<'_>> {
        let refusal = || {
            let id = *self.refusals.front()?;
            Some(Message::Answer(Answer { id, outcome: Outcome::Refused, body: &[] }))
        };
        let urgent = self.ask_frame(now, true).or_else(|| self.ready_frame(true));
        urgent
            .or_else(|| self.ask_frame(now, false))
            .or_else(|| self.ready_frame(false))
            .or_else(refusal)
    }

    fn ask_frame(&self, now: Nanos, urgent: bool) -> Option<Message<'_>> {
        self.mine.iter().filter(|mine| is_urgent(mine.topic) == urgent).find_map(|mine| {
            let body = mine.unsent.as_deref()?;
            let limit_ms = mine.until.since(now).0.div_ceil(1_000_000);
            let limit_ms = u32::try_from(limit_ms).unwrap_or(u32::MAX);
            Some(Message::Ask(Ask { id: mine.id, topic: mine.topic, limit_ms, body }))
        })
    }

    fn ready_frame(&self, urgent: bool) -> Option<Message<'_>> {
        self.theirs.iter().filter(|one| one.urgent == urgent).find_map(|one| {
            let (outcome, body) = one.reply.as_ref()?;
            Some(Message::Answer(Answer { id: one.id, outcome: *outcome, body }))
        })
    }

    /// Appends the next frame to `out`, if it has at most `budget` bytes, and returns its size.
    pub fn write(&mut self, now: Nanos, budget: usize, out: &mut Vec<u8>) -> usize {
        let Some(size) = self.frame_size(now).filter(|&size| size <= budget) else { return 0 };
        let Some(message) = self.frame(now) else { return 0 };
        let start = out.len();
        out.resize(start + size, 0);
        message.emit(&mut out[start..]);
        match message {
            Message::Ask(Ask { id, .. }) => {
                if let Some(mine) = self.mine.iter_mut().find(|mine| mine.id == id) {
                    mine.unsent = None;
                }
            }
            Message::Answer(Answer { id, .. }) => {
                let before = self.theirs.len();
                self.theirs.retain(|one| one.id != id || one.reply.is_none());
                if self.theirs.len() == before {
                    self.refusals.pop_front();
                }
            }
            _ => {}
        }
        size
    }

    /// Returns the next event. Take all: there are as many as questions end and come.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Numbers of open questions: own ones, and the peer's.
    #[must_use]
    pub const fn open(&self) -> (usize, usize) {
        (self.mine.len(), self.theirs.len())
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests;
