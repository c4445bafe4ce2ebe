//! Messages of other members: who may say what, and in which epoch.

use core::fmt;

use raft::eraftpb::{self, MessageType};
use sluice_base::{HostId, Nanos};

use super::Commit;
use super::bytes::Malformed;
use super::format::Formats;
use super::message::{Body, Head, Message};
use super::node::node_of;
use super::record::Record;
use super::state::State;
use super::surface::{Epoch, MESSAGE_BYTES_MAX, Output, Replica, Revision, Seat};

/// A message that was not taken. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwelcome {
    /// The bytes are no message, or contradict themselves or the log.
    Malformed(Malformed),
    /// The sender is in an older epoch than this host.
    OldEpoch {
        /// The sender's.
        theirs: Epoch,
        /// This host's.
        ours: Epoch,
    },
    /// Two hosts were told to go on without each other. One of them must join anew.
    OtherEpoch {
        /// The sender's.
        theirs: Epoch,
        /// This host's.
        ours: Epoch,
    },
    /// The sender is no member, or not with this disk.
    Stranger(HostId),
    /// The message is for an earlier disk of this host.
    OtherSeat,
    /// A host may speak of its own transactions only.
    OtherOriginator(HostId),
    /// The sender and this host have no format of messages in common.
    OtherFormats {
        /// The sender's.
        theirs: Formats,
        /// This host's.
        ours: Formats,
    },
    /// This host has left the fabric.
    Removed,
}

impl fmt::Display for Unwelcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => why.fmt(f),
            Self::OldEpoch { theirs, ours } => write!(
                f,
                "it is of epoch {}, and the fabric is in epoch {} since `recover` at host {}",
                theirs.number, ours.number, ours.founder.0
            ),
            Self::OtherEpoch { theirs, ours } => write!(
                f,
                "hosts {} and {} have both begun epoch {}: evict one of them and let it join anew",
                theirs.founder.0, ours.founder.0, ours.number
            ),
            Self::Stranger(host) => write!(f, "host {} is no member with this disk", host.0),
            Self::OtherSeat => f.write_str("it is for an earlier disk of this host"),
            Self::OtherOriginator(host) => {
                write!(f, "it speaks of a transaction of host {}", host.0)
            }
            Self::OtherFormats { theirs, ours } => write!(
                f,
                "its program writes {theirs} of these messages, and this host's reads {ours}: \
                 upgrade the older one (`sluice upgrade`)"
            ),
            Self::Removed => f.write_str("this host has left the fabric"),
        }
    }
}

impl core::error::Error for Unwelcome {}

impl From<Malformed> for Unwelcome {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl<R: Replica> Commit<R> {
    /// Takes a message of a host that the transport has authenticated.
    ///
    /// # Errors
    /// The message was not taken; nothing has changed.
    pub fn receive(&mut self, now: Nanos, from: HostId, bytes: &[u8]) -> Result<(), Unwelcome> {
        self.at(now);
        if self.removed.is_some() {
            return Err(Unwelcome::Removed);
        }
        let head = Head::parse(bytes)?;
        if let Some(theirs) = head.formats.filter(|_| self.formats.newest() > 1) {
            self.note_formats(from, theirs);
        }
        if !self.formats.has(head.format) && head.formats.is_some() {
            self.pump();
            let (theirs, ours) = (head.formats.unwrap_or_default(), self.formats);
            return Err(Unwelcome::OtherFormats { theirs, ours });
        }
        let message = Message::parse(bytes, self.formats)?;
        if let Body::Formats(theirs) = message.body {
            self.note_formats(from, theirs);
            self.pump();
            return Ok(());
        }
        if head.format == 1 {
            // It may have been restarted with an older program.
            self.note_formats(from, Formats::FIRST);
        }
        let result = self.take(from, message);
        self.pump();
        result
    }

    fn take(&mut self, from: HostId, message: Message) -> Result<(), Unwelcome> {
        if message.to.is_some_and(|seat| seat != self.seat) {
            self.tell_progress(from);
            return Err(Unwelcome::OtherSeat);
        }
        let seat = message.from;
        // Before a snapshot a new host knows nobody, and it does not matter what it is told of.
        if let Body::Removed(revision) = message.body {
            return self.take_removed(from, message.epoch, revision);
        }
        if message.body == Body::Stranger {
            self.out.push_back(Output::Stranger { by: from });
            return Ok(());
        }
        self.check_sender(from, seat, &message.body)?;
        self.check_epoch(from, seat, message.epoch, &message.body)?;
        match message.body {
            Body::Raft(raft) => self.take_raft(from, seat, raft),
            Body::Reserve { id, .. } if id.host != from => Err(Unwelcome::OtherOriginator(id.host)),
            Body::Reserve { id, base, dry, change } => {
                self.reserve(id, base, dry, change);
                Ok(())
            }
            Body::Vote { id, .. } if id.host != self.own => {
                Err(Unwelcome::OtherOriginator(id.host))
            }
            Body::Vote { id, vote } => {
                self.take_vote(from, id, vote);
                Ok(())
            }
            Body::Propose(command) => self.take_proposal(from, command),
            Body::Query(id) => {
                self.query(from, id);
                Ok(())
            }
            Body::Progress(progress) => {
                self.take_progress(from, progress);
                Ok(())
            }
            Body::Removed(_) | Body::Stranger | Body::Formats(_) => Ok(()),
        }
    }

    /// Checks that the sender is a member. A host that lags may not know the leader yet, so that
    /// the leader's messages of the log are taken from anybody: the log checks their term. A host
    /// that was evicted votes in the log until the log's configuration is without it.
    fn check_sender(&mut self, from: HostId, seat: Seat, body: &Body) -> Result<(), Unwelcome> {
        let of_leader = matches!(body, Body::Raft(raft) if is_of_leader(raft));
        let is_in_conf = self.has_in_conf(node_of(from, seat));
        let Some(state) = &self.state else { return Ok(()) };
        let member = state.member(from);
        let is_stranger = member.is_some_and(|member| member.seat != seat);
        let revision = state.revision;
        let peer = self.peers.entry(from).or_default();
        if core::mem::replace(&mut peer.is_stranger, is_stranger) != is_stranger && is_stranger {
            self.origin_connected(from, false);
        }
        match member {
            Some(member) if member.seat == seat => Ok(()),
            _ if of_leader || is_in_conf && matches!(body, Body::Raft(_)) => Ok(()),
            // The log still counts on it.
            _ if is_in_conf => Err(Unwelcome::Stranger(from)),
            Some(_) => {
                self.send_to_seat(from, Some(seat), Body::Stranger);
                Err(Unwelcome::Stranger(from))
            }
            None => {
                if !self.is_stale {
                    self.send_to_seat(from, Some(seat), Body::Removed(revision));
                }
                Err(Unwelcome::Stranger(from))
            }
        }
    }

    fn check_epoch(
        &mut self,
        from: HostId,
        seat: Seat,
        theirs: Epoch,
        body: &Body,
    ) -> Result<(), Unwelcome> {
        let ours = self.epoch;
        if theirs == ours {
            return Ok(());
        }
        if theirs.number < ours.number {
            // The reply tells of the newer epoch. A host without one joins, and is not told: the
            // log reaches it.
            if theirs.number > 0 || matches!(body, Body::Raft(_)) {
                self.tell_progress(from);
                return Err(Unwelcome::OldEpoch { theirs, ours });
            }
            return Ok(());
        }
        if theirs.number == ours.number {
            return Err(Unwelcome::OtherEpoch { theirs, ours });
        }
        let is_from_member = self.member(from).is_some_and(|member| member.seat == seat);
        let is_of_leader = matches!(body, Body::Raft(raft) if is_of_leader(raft));
        if is_from_member || is_of_leader {
            self.enter_epoch(theirs);
        }
        Ok(())
    }

    fn take_raft(
        &mut self,
        from: HostId,
        seat: Seat,
        raft: eraftpb::Message,
    ) -> Result<(), Unwelcome> {
        let own = node_of(self.own, self.seat);
        if raft.from != node_of(from, seat) || raft.to != own {
            return Err(Malformed::of("a message of the log for or of another node").into());
        }
        if raft.msg_type == MessageType::MsgSnapshot {
            self.check_snapshot(&raft)?;
        }
        if self.halted.is_some() && raft.msg_type == MessageType::MsgTimeoutNow {
            return Ok(());
        }
        let is_writing = self.writing.is_busy();
        self.node.step(raft, is_writing, &mut self.prng)?;
        Ok(())
    }

    /// Checks that the state of a snapshot can be read, before the log is dropped for it.
    fn check_snapshot(&mut self, raft: &eraftpb::Message) -> Result<(), Unwelcome> {
        let snapshot = raft.get_snapshot();
        match State::<R>::parse(&snapshot.data) {
            Ok(state) if state.revision == snapshot.get_metadata().index => Ok(()),
            Ok(_) => Err(Malformed::of("a snapshot of another entry than it says").into()),
            Err(why) => {
                if self.halted.is_none() {
                    self.halt(why);
                }
                Err(Malformed::of("a snapshot that this version does not understand").into())
            }
        }
    }

    fn take_proposal(
        &mut self,
        from: HostId,
        command: super::command::Command,
    ) -> Result<(), Unwelcome> {
        use super::command::Command;
        let id = command.id();
        let is_of_originator = matches!(command, Command::Transaction(_) | Command::Abort(_));
        if is_of_originator && id.host != from {
            return Err(Unwelcome::OtherOriginator(id.host));
        }
        self.append(command);
        Ok(())
    }

    /// A member says that this host is none. It is believed if it knows more of the log.
    fn take_removed(
        &mut self,
        from: HostId,
        epoch: Epoch,
        revision: Revision,
    ) -> Result<(), Unwelcome> {
        let known = (self.epoch.number, self.revision());
        let is_member_there = self.member(from).is_some();
        if self.state.is_none() {
            // Not a member yet, or evicted before the first snapshot.
            self.out.push_back(Output::Stranger { by: from });
            return Ok(());
        }
        if (epoch.number, revision) <= known || !is_member_there {
            return Err(Unwelcome::Stranger(from));
        }
        self.leave(from);
        Ok(())
    }

    /// Stops, once the log goes on without this host.
    pub(super) fn leave_if_removed(&mut self) {
        let Some(state) = self.state.as_ref().filter(|_| !self.is_stale) else { return };
        let is_member = state.member(self.own).is_some_and(|member| member.seat == self.seat);
        if !is_member
            && !self.has_in_conf(node_of(self.own, self.seat))
            && !self.node.conf().voters.is_empty()
        {
            self.leave(self.own);
        }
    }

    /// Stops: this host is no member any more.
    pub(super) fn leave(&mut self, by: HostId) {
        if self.removed.is_none() {
            self.removed = Some(by);
            self.pending.forget_engine();
            self.writing.forget_engine();
            self.pending.records.push(Record::Removed { by });
            self.out.push_back(Output::Removed { by });
        }
    }
}

/// Returns true for messages that only a leader sends.
fn is_of_leader(raft: &eraftpb::Message) -> bool {
    matches!(
        raft.msg_type,
        MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
    )
}

const _: () = assert!(MESSAGE_BYTES_MAX > 4 * super::CHANGE_BYTES_MAX);
