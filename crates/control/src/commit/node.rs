//! The quorum log's engine (`raft`), behind a guard.
//!
//! The engine panics on input that contradicts itself, so that nothing reaches it unchecked
//! ([`validate`]). It draws election time-outs from the thread's random numbers; after each step
//! they are overwritten by numbers of this host's seed, so that a run repeats.

mod validate;

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use raft::eraftpb::{ConfChange, ConfChangeType, ConfState, Message, MessageType};
use raft::{INVALID_ID, RawNode, Ready, SnapshotStatus, StateRole};
use sluice_base::{HostId, Prng};

use super::bytes::{Malformed, Reader, Writer};
use super::log::Log;
use super::record::Conf;
use super::surface::Seat;

/// Entries of one message, in bytes.
const APPEND_BYTES_MAX: u64 = 1 << 20;
/// Appends on their way to one member.
const INFLIGHT_MAX: usize = 64;
/// Entries of a leader that are not committed, in bytes.
const UNCOMMITTED_BYTES_MAX: u64 = 8 << 20;

/// Returns the number of a node: the host and its seat.
pub(super) const fn node_of(host: HostId, seat: Seat) -> u64 {
    (host.0 as u64) << 48 | seat.get()
}

/// Returns the host of a node.
pub(super) fn host_of(node: u64) -> HostId {
    HostId(u16::try_from(node >> 48).expect("16 bits remain"))
}

/// Change of the voters by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Voter(u64),
    Learner(u64),
    Remove(u64),
}

impl Step {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (tag, node) = match self {
            Self::Voter(node) => (0, node),
            Self::Learner(node) => (1, node),
            Self::Remove(node) => (2, node),
        };
        let mut out = Writer::default();
        out.u8(1).u8(tag).u64(node);
        out.take()
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        Malformed::unless_known("a change of voters", from.u8()?, 1)?;
        let (tag, node) = (from.u8()?, from.u64()?);
        from.end()?;
        match tag {
            _ if node == INVALID_ID => Err(Malformed::of("a node is zero")),
            0 => Ok(Self::Voter(node)),
            1 => Ok(Self::Learner(node)),
            2 => Ok(Self::Remove(node)),
            _ => Err(Malformed::of("the change of voters is unknown")),
        }
    }

    fn conf_change(self) -> ConfChange {
        let (kind, node) = match self {
            Self::Voter(node) => (ConfChangeType::AddNode, node),
            Self::Learner(node) => (ConfChangeType::AddLearnerNode, node),
            Self::Remove(node) => (ConfChangeType::RemoveNode, node),
        };
        ConfChange { change_type: kind, node_id: node, ..ConfChange::default() }
    }
}

/// Times of the log, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    pub(super) heartbeat: usize,
    pub(super) election: usize,
}

pub(super) struct Node {
    raw: RawNode<Log>,
    own: u64,
    ticks: Ticks,
    timeout: usize,
    /// Term and role at the last draw of a time-out.
    drawn: (u64, StateRole),
    conf: Conf,
    /// The engine has a snapshot that is not durable yet.
    snapshot_pending: bool,
    applied: u64,
}

impl Node {
    /// Starts the engine on a log whose contents fit together.
    pub(super) fn new(own: u64, log: Log, ticks: Ticks, prng: &mut Prng) -> Result<Self, String> {
        validate::log(&log)?;
        let (conf, applied) = (log.conf.clone(), log.base());
        let config = raft::Config {
            id: own,
            election_tick: ticks.election,
            heartbeat_tick: ticks.heartbeat,
            applied,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_inflight_msgs: INFLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger).map_err(|why| why.to_string())?;
        let mut node = Self {
            raw,
            own,
            ticks,
            timeout: ticks.election,
            drawn: (0, StateRole::Follower),
            conf,
            snapshot_pending: false,
            applied,
        };
        node.draw(prng);
        Ok(node)
    }

    fn draw(&mut self, prng: &mut Prng) {
        let span = self.ticks.election as u64;
        self.timeout = self.ticks.election + usize::try_from(prng.below(span)).unwrap_or(0);
        self.settle(prng);
    }

    /// Overwrites what the engine has drawn.
    fn settle(&mut self, prng: &mut Prng) {
        let now = (self.raw.raft.term, self.raw.raft.state);
        if now != self.drawn {
            self.drawn = now;
            self.draw(prng);
            return;
        }
        self.raw.raft.set_randomized_election_timeout(self.timeout);
    }

    /// Advances time. A node that has writes on their way does not stand for election.
    pub(super) fn tick(&mut self, is_writing: bool, prng: &mut Prng) {
        if self.is_leader() || !is_writing {
            self.raw.tick();
            self.settle(prng);
        }
    }

    /// Takes a message, if it is consistent.
    pub(super) fn step(
        &mut self,
        message: Message,
        is_writing: bool,
        prng: &mut Prng,
    ) -> Result<(), Malformed> {
        validate::message(&message, &self.raw.raft)?;
        if message.msg_type == MessageType::MsgTimeoutNow && is_writing {
            return Ok(());
        }
        // What the engine does not accept, it has ignored.
        let _ = self.raw.step(message);
        self.settle(prng);
        Ok(())
    }

    /// Stands for election at once, if it is the only voter.
    pub(super) fn campaign_alone(&mut self, prng: &mut Prng) {
        if self.conf.voters == [self.own] && !self.is_leader() {
            let _ = self.raw.campaign();
            self.settle(prng);
        }
    }

    /// Appends a command; false if this node cannot.
    pub(super) fn propose(&mut self, data: Vec<u8>) -> bool {
        self.is_leader() && self.raw.propose(Vec::new(), data).is_ok()
    }

    /// Appends a change of the voters; false if this node cannot.
    pub(super) fn propose_step(&mut self, step: Step) -> bool {
        self.is_leader()
            && !self.raw.raft.has_pending_conf()
            && self.raw.propose_conf_change(step.to_bytes(), step.conf_change()).is_ok()
    }

    /// Carries out a change of the voters. Those that contradict the configuration do nothing.
    pub(super) fn apply_step(&mut self, step: Step) {
        if let Ok(state) = self.raw.apply_conf_change(&step.conf_change()) {
            self.conf = conf(&state);
        }
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader && !self.conf.voters.contains(&self.own) {
            let term = raft.term;
            raft.become_follower(term, INVALID_ID);
        }
    }

    pub(super) fn ready(&mut self) -> Option<Ready> {
        self.raw.has_ready().then(|| self.raw.ready())
    }

    /// Hands a `Ready` back, whose entries and snapshot the log has by now.
    pub(super) fn taken(&mut self, ready: Ready) {
        self.raw.advance_append_async(ready);
    }

    /// Reports that all up to a `Ready` is durable.
    pub(super) fn persisted(&mut self, ready: u64) {
        self.raw.on_persist_ready(ready);
        self.snapshot_pending = false;
        self.report_applied();
    }

    pub(super) fn applied(&mut self, index: u64) {
        self.applied = index;
        self.report_applied();
    }

    fn report_applied(&mut self) {
        // Entries that came with a snapshot are applied before the engine knows that they are
        // durable; it takes no more than that, and hears of the rest later.
        let log = &self.raw.raft.raft_log;
        let known = self.applied.min(log.committed).min(log.persisted);
        if !self.snapshot_pending && known > log.applied() {
            self.raw.advance_apply_to(known);
        }
    }

    pub(super) fn installed(&mut self, index: u64, conf: Conf) {
        (self.conf, self.applied) = (conf, index);
        self.snapshot_pending = true;
    }

    pub(super) fn log(&self) -> &Log {
        self.raw.store()
    }

    pub(super) fn log_mut(&mut self) -> &mut Log {
        self.raw.mut_store()
    }

    /// Sends a node what it lacks, after a snapshot was made for it.
    pub(super) fn send_append(&mut self, to: u64) {
        if self.is_leader() && self.raw.raft.prs().get(to).is_some() {
            self.raw.raft.send_append(to);
        }
    }

    pub(super) fn conf(&self) -> &Conf {
        &self.conf
    }

    pub(super) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Returns the leader of the term, as far as this node knows.
    pub(super) fn leader(&self) -> Option<HostId> {
        let leader = self.raw.raft.leader_id;
        (leader != INVALID_ID).then(|| host_of(leader))
    }

    pub(super) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    pub(super) fn hard(&self) -> (u64, u64, u64) {
        let hard = self.raw.raft.hard_state();
        (hard.term, hard.vote, hard.commit)
    }

    pub(super) fn committed(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Returns true if a member has, by the leader's knowledge, nearly all of the log.
    pub(super) fn has_caught_up(&self, node: u64) -> bool {
        let progress = self.raw.raft.prs().get(node);
        progress.is_some_and(|progress| {
            // In a young log a node that has nothing is few entries behind, too. As a voter it
            // could not vote, for it does not know the epoch.
            let has_some = progress.matched > 0;
            has_some && progress.recent_active && progress.matched + 8 >= self.committed()
        })
    }

    /// Reports that the connection to a node is down.
    pub(super) fn unreachable(&mut self, node: u64) {
        self.raw.report_unreachable(node);
    }

    /// Reports that a snapshot has left this host.
    pub(super) fn snapshot_sent(&mut self, to: u64) {
        self.raw.report_snapshot(to, SnapshotStatus::Finish);
    }

    pub(super) fn transfer(&mut self, to: u64) {
        self.raw.transfer_leader(to);
    }
}

impl core::fmt::Debug for Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let hard = self.hard();
        f.debug_struct("Node").field("own", &self.own).field("hard", &hard).finish_non_exhaustive()
    }
}

pub(super) fn conf(state: &ConfState) -> Conf {
    let (mut voters, mut learners) = (state.voters.clone(), state.learners.clone());
    voters.sort_unstable();
    learners.sort_unstable();
    Conf { voters, learners }
}
