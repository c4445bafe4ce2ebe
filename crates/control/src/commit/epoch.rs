//! Epochs: going on without a quorum, and coming back to those who did.
//!
//! ```text
//!   quorum lost for good ── recover at one survivor ──> next epoch, the survivor its only voter
//!   a message of a newer epoch ──> own tail kept aside, log empty, state in force until a snapshot
//!   a message of an older epoch ──> refused by name
//! ```
//!
//! A new epoch begins with all that the survivor's log holds, committed or not: what a quorum had
//! committed and the survivor has heard of is not lost. What only the lost hosts knew is.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use sluice_base::HostId;

use super::Commit;
use super::log::Log;
use super::node::{Node, Ticks, node_of};
use super::record::{Conf, Kind, LogEntry, Record};
use super::surface::{Done, Epoch, Output, Refused, Replica, RequestId};

impl<R: Replica> Commit<R> {
    /// Begins a new epoch at this host.
    pub(super) fn recover(
        &mut self,
        request: RequestId,
        without: &[HostId],
    ) -> Result<(), Refused> {
        let members = match &self.state {
            Some(state) if self.removed.is_none() => state.replica.members(),
            _ => return Err(Refused::NotMember),
        };
        if let Some(why) = &self.halted {
            return Err(Refused::Halted(why.clone()));
        }
        if self.is_stale {
            return Err(Refused::Behind);
        }
        self.may_recover(without)?;
        // The log's last entries may be committed somewhere: they are part of the new epoch.
        let tail = self.node.log().after(self.revision());
        let mut effects = Vec::new();
        for entry in tail {
            let Some(state) = self.state.as_mut() else { return Err(Refused::NotMember) };
            match state.apply(&entry) {
                Ok(effect) => effects.push(effect),
                Err(why) => {
                    self.halt(why.clone());
                    return Err(Refused::Halted(why));
                }
            }
        }
        let epoch =
            Epoch { number: self.epoch.number + 1, founder: self.own, base: self.revision() };
        self.found(epoch, &members)?;
        self.pending.answers.push((request, Ok(Done::Recovered(epoch))));
        // Until the epoch is durable, a start would not know that they are part of the log.
        self.pending.effects = effects;
        Ok(())
    }

    /// Refuses to leave a quorum that is there, or hosts that are.
    fn may_recover(&self, without: &[HostId]) -> Result<(), Refused> {
        if let Some(live) = without.iter().find(|host| self.is_live(**host)) {
            let why = format!("host {} is connected: evict it, or stop it first", live.0);
            return Err(Refused::Unfit(why));
        }
        if self.is_quorum(|host| !without.contains(&host)) {
            let why = "the other voters are a quorum: bring them back, or name them too, if they \
                       are lost for good";
            return Err(Refused::Unfit(why.into()));
        }
        Ok(())
    }

    /// Makes this host the only voter of a new epoch.
    fn found(&mut self, epoch: Epoch, members: &[super::Member]) -> Result<(), Refused> {
        let own = node_of(self.own, self.seat);
        self.pending.hurry();
        let Some(state) = self.state.as_mut() else { return Err(Refused::NotMember) };
        // An entry of its own tells the hashes of the epochs apart.
        let (index, term) = (state.revision + 1, self.node.term() + 1);
        let mark = format!("epoch {} of host {}", epoch.number, epoch.founder.0);
        let entry = LogEntry { index, term, kind: Kind::Voters, data: mark.into_bytes() };
        state.apply(&entry).map_err(Refused::Halted)?;
        let nodes = members.iter().map(|member| node_of(member.host, member.seat));
        let learners: Vec<_> = nodes.filter(|node| *node != own).collect();
        let conf = Conf { voters: vec![own], learners };
        let bytes = state.to_bytes();
        self.epoch = epoch;
        let log = Log::new((index, term), Vec::new(), (term, 0, index), conf.clone(), &bytes);
        self.restart(log).map_err(Refused::Halted)?;
        let seat = self.seat;
        self.pending.records.extend([
            Record::Identity { seat, epoch },
            Record::Truncate { from: 0 },
            Record::Snapshot { index, term, conf, state: bytes },
            Record::HardState { term, vote: 0, commit: index },
        ]);
        self.node.campaign_alone(&mut self.prng);
        Ok(())
    }

    /// Puts a new engine in place of the old one, whose work is forgotten.
    fn restart(&mut self, log: Log) -> Result<(), String> {
        self.pending.forget_engine();
        self.writing.forget_engine();
        let (heartbeat, election) = (self.timing.heartbeat, self.timing.election);
        let own = node_of(self.own, self.seat);
        self.node = Node::new(own, log, Ticks { heartbeat, election }, &mut self.prng)?;
        self.leading = super::Leading::default();
        Ok(())
    }

    /// Enters a newer epoch, which others have begun.
    pub(super) fn enter_epoch(&mut self, epoch: Epoch) {
        let old = core::mem::replace(&mut self.epoch, epoch);
        self.pending.hurry();
        let seat = self.seat;
        self.pending.records.push(Record::Identity { seat, epoch });
        if old.number == 0 {
            // A new host: its log is empty.
            return;
        }
        let (_, _, commit) = self.node.hard();
        let entries = self.node.log().after(epoch.base.min(commit));
        if !entries.is_empty() {
            self.out.push_back(Output::KeptAside { epoch: old, entries: entries.len() });
            self.aside.push((old, entries.clone()));
            self.pending.records.push(Record::Aside { epoch: old, entries });
        }
        let log = Log::new((0, 0), Vec::new(), (0, 0, 0), Conf::default(), &[]);
        if let Err(why) = self.restart(log) {
            self.halt(why);
        }
        self.pending.records.push(Record::Truncate { from: 0 });
        self.pending.records.push(Record::HardState { term: 0, vote: 0, commit: 0 });
        if let Some(state) = &self.state {
            self.is_stale = true;
            self.pending.records.push(Record::Kept { state: state.to_bytes() });
        }
    }
}
