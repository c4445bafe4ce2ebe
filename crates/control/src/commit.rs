//! Commit of the fabric's configuration: three phases, the second one carried by a quorum log.
//!
//! Any member originates a transaction. Nothing of it is visible before all three phases:
//!
//! ```text
//!   originator          every live member              voters           every member
//!       │  RESERVE            │                          │                   │
//!       ├────────────────────>│ check, reserve, durable  │                   │
//!       │<── yes / veto ──────┤                          │                   │
//!       │  PRE-COMMIT                                    │                   │
//!       ├── transaction and votes ──> leader ──────────> │ entry on a quorum │
//!       │  COMMIT                                        ├──────────────────>│ apply
//!       │<── progress ───────────────────────────────────┼───────────────────┤
//! ```
//!
//! One transaction, as its originator sees it, and one reservation, as a member sees it:
//!
//! ```text
//!   queued ─> Wait ─> Reserve ──yes──> Propose ──entry applied──> committed or too late
//!                        └──veto, time──> Abort ──entry applied──> gone
//!
//!   Behind ─> Checking ─> Writing ─> Durable ──entry of its transaction, or of its end──> gone
//! ```
//!
//! - A yes is durable before it is sent, and ends by an entry of the log only: never by time, never
//!   by a restart. The leader appends the end of a transaction whose originator is silent.
//! - The order of the log decides. A transaction that comes after its own end is void, and one that
//!   does not fit any more is recorded as refused, alike on every member.
//! - The log is Raft (Ongaro and Ousterhout 2014) with pre-vote and check-quorum; its term is the
//!   attempt number of E3PC (Keidar and Dolev 1998).
//! - An entry takes effect when it is durable here and known to be committed; a [`Mark`] of that is
//!   kept first, and answers wait until the disk knows it too. So a start never begins with less
//!   than was in force (a killed process) or answered (a machine without power).
//! - The membership in the replicated state is the authority; the leader brings the voters of the
//!   log in line with it, one change at a time (`voters`).
//! - An *epoch* names a line of quorums. A host that is told to go on without a quorum begins a new
//!   one; members of an older epoch keep their tail aside and start from a snapshot.
//!
//! Pure: time, messages, completions of writes and results of checks go in; outputs come out. The
//! document is a [`Replica`]; its meaning is not known here.

mod bytes;
mod chain;
mod command;
mod drive;
mod epoch;
mod format;
mod lead;
mod log;
mod mark;
mod message;
mod node;
mod origin;
mod receive;
mod record;
mod recovered;
mod reserve;
mod start;
mod state;
mod surface;
mod timing;
mod voters;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Prng};

pub use bytes::Malformed;
pub use format::Formats;
pub use mark::Mark;
pub use message::check_message;
pub use receive::Unwelcome;
pub use record::{Conf, Kind, LogEntry, Record, Store};
pub use recovered::{Recovered, Unreadable};
pub use start::{Config, Start, StartError};
pub use state::{HISTORY_BYTES_MAX, HISTORY_MAX};
pub use surface::{
    CHANGE_BYTES_MAX, CheckTicket, Done, Epoch, Key, MESSAGE_BYTES_MAX, Member, Outcome, Output,
    OwnPhase, Policy, Progress, Proposal, REQUESTS_MAX, Refusal, Refused, Replica, Request,
    RequestId, Revision, Role, Seat, TEXT_BYTES_MAX, Transaction, TxnId, Veto, WriteTicket,
};
pub use timing::Timing;

use drive::{Batch, Writing};
use lead::Leading;
use message::Body;
use node::{Node, node_of};
use origin::Origin;
use reserve::Held;
use state::State;

/// Another host, as this one sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    is_connected: bool,
    /// The host has another disk than the member.
    is_stranger: bool,
    /// Formats of its messages.
    formats: Formats,
    /// It has been named as one that this host does not understand.
    is_named: bool,
    /// Time of the last change of the connection.
    since: Nanos,
    progress: Option<Progress>,
}

/// One host's part in the commit of the fabric's configuration.
#[derive(Debug)]
pub struct Commit<R: Replica> {
    own: HostId,
    seat: Seat,
    incarnation: u64,
    formats: Formats,
    /// Joined a fabric that others have: an earlier member may have had its number.
    has_joined: bool,
    timing: Timing,
    prng: Prng,
    now: Nanos,
    next_tick: Nanos,
    next_progress: Nanos,
    epoch: Epoch,
    state: Option<State<R>>,
    /// The state is that of an older epoch: in force, but not the base of a vote.
    is_stale: bool,
    /// Entries up to here were applied before the last start.
    replay_to: Revision,
    node: Node,
    peers: BTreeMap<HostId, Peer>,
    held: BTreeMap<TxnId, Held>,
    /// Vetoes of this host, the newest first.
    vetoes: VecDeque<(TxnId, String)>,
    origin: Origin,
    leading: Leading,
    pending: Batch,
    writing: Writing,
    /// Term and vote that are durable.
    durable_vote: (u64, u64),
    aside: Vec<(Epoch, Vec<LogEntry>)>,
    disk: Option<String>,
    halted: Option<String>,
    removed: Option<HostId>,
    next_ticket: u64,
    next_request: u64,
    out: VecDeque<Output>,
}

/// Standing of this host, for `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Epoch of the fabric.
    pub epoch: Epoch,
    /// Term of the log.
    pub term: u64,
    /// Leader of the log, if one is known.
    pub leader: Option<HostId>,
    /// Hosts that vote.
    pub voters: Vec<HostId>,
    /// Hosts that the log still counts on although they are no members, or with another disk. The
    /// fabric must not lose more hosts before they are gone.
    pub departing: Vec<HostId>,
    /// Own progress.
    pub progress: Option<Progress>,
    /// Members, with what is known of their progress; `None` for those not heard of.
    pub members: Vec<(Member, bool, Option<Progress>)>,
    /// Transactions that are reserved here.
    pub reserved: Vec<TxnId>,
    /// Transaction that waits to be confirmed.
    pub unconfirmed: Option<Revision>,
    /// Failure of the disk.
    pub disk: Option<String>,
    /// Entry that is not understood.
    pub halted: Option<String>,
    /// This host is no member any more.
    pub is_removed: bool,
    /// The state is that of an older epoch.
    pub is_stale: bool,
}

/// Starts for each revision at which a host may have joined; a host restarts less often.
const JOINED_STARTS: u64 = 1 << 20;

impl<R: Replica> Commit<R> {
    /// Returns the replicated document; `None` at a host that has joined no fabric yet.
    #[must_use]
    pub fn replica(&self) -> Option<&R> {
        self.state.as_ref().map(|state| &state.replica)
    }

    /// Returns true if a restart of the process begins with the document of now, so that it may
    /// take effect. Else [`Output::Installed`] or [`Output::Applied`] follows.
    #[must_use]
    pub fn may_take_effect(&self) -> bool {
        !self.pending.delays() && !self.writing.delays()
    }

    /// Returns the last applied revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.state.as_ref().map_or(0, |state| state.revision)
    }

    /// Returns a number for this start that no earlier member of this host's number has used, if it
    /// has to take one: a host that joins begins to count its starts anew, and they tell
    /// transactions apart. This host makes no changes until the number is durable and given to
    /// [`Self::take_start`].
    #[must_use]
    pub fn start_to_take(&self) -> Option<u64> {
        let state = self.state.as_ref().filter(|_| self.has_joined && !self.is_stale)?;
        let is_member = state.member(self.own).is_some_and(|member| member.seat == self.seat);
        // Between two members of one number the revision has risen.
        (is_member && self.incarnation < JOINED_STARTS).then_some(state.revision * JOINED_STARTS)
    }

    /// Takes that number.
    pub const fn take_start(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
    }

    /// Returns the transactions that are remembered, the oldest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Transaction> {
        self.state.iter().flat_map(State::history)
    }

    /// Returns the changes that undo all transactions after a revision, the newest first. A new
    /// transaction of all of them rolls the document back.
    ///
    /// # Errors
    /// The history does not go back that far.
    pub fn inverses(&self, back_to: Revision) -> Result<Vec<Vec<u8>>, Refused> {
        self.state.as_ref().ok_or(Refused::NotMember)?.inverses(back_to)
    }

    /// Returns the reservations of this host with their changes.
    pub fn reservations(&self) -> impl Iterator<Item = (TxnId, &[u8])> {
        let kept = self.held.iter().filter(|(_, held)| held.is_kept());
        kept.map(|(id, held)| (*id, held.change.as_slice()))
    }

    /// Returns the entries of older epochs that were kept aside.
    #[must_use]
    pub fn aside(&self) -> &[(Epoch, Vec<LogEntry>)] {
        &self.aside
    }

    /// Returns the standing of this host.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.state.as_ref();
        let member = |member: Member| {
            let peer = self.peers.get(&member.host).copied().unwrap_or_default();
            let own = (member.host == self.own).then(|| state.map(State::progress)).flatten();
            (member, member.host == self.own || peer.is_connected, own.or(peer.progress))
        };
        let mut members = state.map(|state| state.replica.members()).unwrap_or_default();
        members.sort_unstable();
        Status {
            epoch: self.epoch,
            term: self.node.term(),
            leader: self.node.leader(),
            voters: self.voters(),
            departing: self.departing(),
            progress: state.map(State::progress),
            members: members.into_iter().map(member).collect(),
            reserved: self.reservations().map(|(id, _)| id).collect(),
            unconfirmed: state.and_then(|state| Some(state.unconfirmed.as_ref()?.revision)),
            disk: self.disk.clone(),
            halted: self.halted.clone(),
            is_removed: self.removed.is_some(),
            is_stale: self.is_stale,
        }
    }

    /// Takes the next output.
    pub fn output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Returns the time of the next `tick`.
    #[must_use]
    pub const fn deadline(&self) -> Option<Nanos> {
        if self.removed.is_some() && !self.writing.is_busy() { None } else { Some(self.next_tick) }
    }

    /// Advances time.
    pub fn tick(&mut self, now: Nanos) {
        self.at(now);
        if self.now < self.next_tick {
            return;
        }
        // After a jump of the clock, or a pause of this host, the past is not made up for.
        self.next_tick = self.now.after(self.timing.tick);
        if self.removed.is_some() {
            self.retry_write();
            return self.pump();
        }
        if self.halted.is_none() {
            self.node.tick(self.writing.is_busy(), &mut self.prng);
        }
        self.retry_write();
        self.tick_held();
        self.tick_origin();
        self.tick_leading();
        if self.now >= self.next_progress {
            self.next_progress = self.now.after(self.timing.progress);
            self.tell_progress_to_all();
        }
        self.pending.hurry();
        self.pump();
    }

    /// Reports that a connection to a host is up or down.
    pub fn connected(&mut self, now: Nanos, host: HostId, is_connected: bool) {
        self.at(now);
        if host == self.own || self.removed.is_some() {
            return;
        }
        let since = self.now;
        let peer = self.peers.entry(host).or_default();
        if peer.is_connected == is_connected {
            return;
        }
        let progress = peer.progress;
        *peer = Peer { is_connected, since, progress, ..Peer::default() };
        if is_connected {
            self.tell_progress(host);
            self.tell_formats(host);
        } else if let Some(member) = self.member(host) {
            self.node.unreachable(node_of(host, member.seat));
        }
        self.origin_connected(host, is_connected);
        self.pump();
    }

    /// Begins a request. Its answer is an output.
    pub fn submit(&mut self, now: Nanos, request: Request) -> RequestId {
        self.at(now);
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.request(id, request);
        self.pump();
        id
    }

    /// Moves time forward; it never goes back.
    fn at(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    fn member(&self, host: HostId) -> Option<Member> {
        self.state.as_ref()?.member(host)
    }

    fn is_live(&self, host: HostId) -> bool {
        let is_heard = |peer: &Peer| {
            peer.is_connected && !peer.is_stranger && self.formats.common(peer.formats).is_some()
        };
        host == self.own || self.peers.get(&host).is_some_and(is_heard)
    }

    fn voters(&self) -> Vec<HostId> {
        self.node.conf().voters.iter().map(|node| node::host_of(*node)).collect()
    }

    /// Returns the hosts of nodes that are no members any more, and that the log still counts on.
    #[must_use]
    pub fn departing(&self) -> Vec<HostId> {
        let members = self.state.as_ref().map(|state| state.replica.members()).unwrap_or_default();
        let is_member =
            |node: u64| members.iter().any(|member| node_of(member.host, member.seat) == node);
        let conf = self.node.conf();
        let nodes = conf.voters.iter().chain(&conf.learners).copied();
        nodes.filter(|node| !is_member(*node)).map(node::host_of).collect()
    }

    /// Returns true if the hosts are a majority of the voters.
    fn is_quorum(&self, hosts: impl Fn(HostId) -> bool) -> bool {
        let voters = self.voters();
        let count = voters.iter().filter(|voter| hosts(**voter)).count();
        count * 2 > voters.len()
    }

    fn send(&mut self, to: HostId, body: Body) {
        let seat = self.member(to).map(|member| member.seat);
        self.send_to_seat(to, seat, body);
    }

    fn send_to_seat(&mut self, to: HostId, seat: Option<Seat>, body: Body) {
        let formats = self.peers.get(&to).map(|peer| peer.formats).unwrap_or_default();
        let Some(format) = self.formats.common(formats) else { return };
        let message = message::Message { epoch: self.epoch, from: self.seat, to: seat, body };
        self.out.push_back(Output::Send { to, bytes: message.to_bytes(format, self.formats) });
    }

    /// Announces the formats of this host. A program that knows the first one alone would not
    /// understand it, and so has nothing to announce.
    fn tell_formats(&mut self, to: HostId) {
        if self.formats.newest() > 1 {
            let (epoch, from, body) = (self.epoch, self.seat, Body::Formats(self.formats));
            let message = message::Message { epoch, from, to: None, body };
            self.out.push_back(Output::Send { to, bytes: message.to_bytes(1, self.formats) });
        }
    }

    /// Notes the formats of a host.
    fn note_formats(&mut self, from: HostId, theirs: Formats) {
        let is_common = self.formats.common(theirs).is_some();
        let peer = self.peers.entry(from).or_default();
        let had_common = self.formats.common(core::mem::replace(&mut peer.formats, theirs));
        if is_common {
            peer.is_named = false;
        } else if !core::mem::replace(&mut peer.is_named, true) {
            let ours = self.formats;
            self.out.push_back(Output::OtherFormats { host: from, theirs, ours });
        }
        if had_common.is_some() && !is_common {
            self.origin_connected(from, false);
        }
    }

    fn answer(&mut self, request: RequestId, result: Result<Done, Refused>) {
        self.out.push_back(Output::Answer { request, result });
    }

    /// Answers a request that the log has decided, once a start of this host would know it as well.
    /// A disk that fails keeps no answer: the change is committed, whatever this disk does.
    fn answer_decided(&mut self, request: RequestId, result: Result<Done, Refused>) {
        if self.disk.is_some() {
            return self.answer(request, result);
        }
        self.pending.answers.push((request, result));
        self.pending.hurry();
    }
}

#[cfg(test)]
mod tests;
