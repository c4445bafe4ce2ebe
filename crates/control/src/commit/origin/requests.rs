//! Requests of this host's operator: admission, confirmations.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use sluice_base::Nanos;

use super::{Command, Commit, Confirmation, Phase};
use crate::commit::surface::{
    CHANGE_BYTES_MAX, Done, Policy, Proposal, REQUESTS_MAX, Refused, Replica, Request, RequestId,
    TEXT_BYTES_MAX,
};

impl<R: Replica> Commit<R> {
    pub(in crate::commit) fn request(&mut self, id: RequestId, request: Request) {
        let result = match request {
            Request::Commit(proposal) => self.admit_or_queue(id, proposal),
            Request::Check(change) => {
                let proposal = Proposal {
                    change,
                    author: String::new(),
                    time_ms: 0,
                    comment: String::new(),
                    policy: Policy::Quorum,
                    confirm_within: None,
                };
                self.admit(id, proposal, true);
                Ok(())
            }
            Request::Confirm => self.confirm(id, Command::Confirm),
            Request::Revert => self.confirm(id, Command::Revert),
            Request::Recover { without } => self.recover(id, &without),
        };
        if let Err(refused) = result {
            self.answer(id, Err(refused));
        }
    }

    fn admit_or_queue(&mut self, id: RequestId, proposal: Proposal) -> Result<(), Refused> {
        let Some(round) = &self.origin.round else {
            self.admit(id, proposal, false);
            return Ok(());
        };
        if round.phase == Phase::Abort && !self.is_quorum(|host| self.is_live(host)) {
            return Err(self.no_quorum(|host| self.is_live(host)));
        }
        if self.origin.queue.len() >= REQUESTS_MAX {
            return Err(Refused::Busy);
        }
        let longest = self.timing.reserve.0.saturating_add(self.timing.propose.0);
        self.origin.queue.push_back((id, proposal, self.now.after(Nanos(longest))));
        Ok(())
    }

    /// Begins a transaction, if nothing that this host knows speaks against it.
    pub(super) fn admit(&mut self, id: RequestId, proposal: Proposal, is_dry: bool) {
        match self.admissible(&proposal, is_dry) {
            Ok(()) => self.begin(id, proposal, is_dry),
            Err(refused) => self.answer(id, Err(refused)),
        }
    }

    fn admissible(&self, proposal: &Proposal, is_dry: bool) -> Result<(), Refused> {
        let state = self.standing()?;
        if proposal.change.len() > CHANGE_BYTES_MAX {
            return Err(Refused::TooLarge("change"));
        }
        if proposal.author.len() > TEXT_BYTES_MAX || proposal.comment.len() > TEXT_BYTES_MAX {
            return Err(Refused::TooLarge("comment"));
        }
        if is_dry && self.origin.dry.len() >= REQUESTS_MAX {
            return Err(Refused::Busy);
        }
        if let Some(waits) = &state.unconfirmed {
            return Err(Refused::Unconfirmed(waits.revision));
        }
        let checked = state.replica.check(&proposal.change);
        checked.map_err(|why| Refused::Unfit(why.to_string())).map(|_| ())
    }

    /// Returns the state, if this host may change it.
    fn standing(&self) -> Result<&super::super::State<R>, Refused> {
        let state = self.state.as_ref().ok_or(Refused::NotMember)?;
        let is_member = state.member(self.own).is_some_and(|member| member.seat == self.seat);
        if self.removed.is_some() || !is_member {
            return Err(Refused::NotMember);
        }
        if let Some(why) = &self.halted {
            return Err(Refused::Halted(why.clone()));
        }
        if self.is_stale || self.start_to_take().is_some() {
            return Err(Refused::Behind);
        }
        Ok(state)
    }

    fn confirm(
        &mut self,
        request: RequestId,
        command: impl Fn(super::TxnId) -> Command,
    ) -> Result<(), Refused> {
        let state = self.standing()?;
        let waits = state.unconfirmed.as_ref().ok_or(Refused::NothingToConfirm)?;
        let (id, revision) = (waits.id, waits.revision);
        if !self.is_quorum(|host| self.is_live(host)) {
            return Err(self.no_quorum(|host| self.is_live(host)));
        }
        if self.origin.confirmations.len() >= REQUESTS_MAX {
            return Err(Refused::Busy);
        }
        let until = self.now.after(self.timing.propose);
        let (command, resend_at) = (command(id), self.now.after(self.timing.resend));
        self.propose(command.clone());
        let waiting = Confirmation { request, id, revision, command, until, resend_at };
        self.origin.confirmations.push(waiting);
        Ok(())
    }

    /// Answers the confirmations that the log has decided.
    pub(in crate::commit) fn settle_confirmations(&mut self) {
        let Some(state) = self.state.as_ref() else { return };
        let waits = state.unconfirmed.as_ref().map(|waits| waits.id);
        let all = core::mem::take(&mut self.origin.confirmations);
        let (left, decided): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|confirmation| Some(confirmation.id) == waits);
        let undone = |id| state.history().rev().find(|record| record.id == id && record.undoes);
        let answers: Vec<_> = decided
            .into_iter()
            .map(|confirmation| {
                let undone = undone(confirmation.id).map(|record| record.revision);
                let result = match (&confirmation.command, undone) {
                    (Command::Revert(_), Some(revision)) => Ok(Done::Reverted(revision)),
                    (Command::Confirm(_), None) => Ok(Done::Confirmed(confirmation.revision)),
                    (Command::Confirm(_), Some(_)) => {
                        Err(Refused::TooLate("it was undone before".into()))
                    }
                    _ => Err(Refused::TooLate("it was confirmed before".into())),
                };
                (confirmation.request, result)
            })
            .collect();
        self.origin.confirmations = left;
        for (request, result) in answers {
            self.answer_decided(request, result);
        }
    }

    /// Repeats and ends requests.
    pub(super) fn tick_requests(&mut self) {
        let (now, again) = (self.now, self.now.after(self.timing.resend));
        let mut due = Vec::new();
        for confirmation in &mut self.origin.confirmations {
            if confirmation.resend_at <= now {
                confirmation.resend_at = again;
                due.push(confirmation.command.clone());
            }
        }
        for command in due {
            self.propose(command);
        }
        let is_over = |confirmation: &mut Confirmation| confirmation.until <= now;
        let over: Vec<_> = self.origin.confirmations.extract_if(.., is_over).collect();
        for confirmation in over {
            self.answer(confirmation.request, Err(Refused::InDoubt(confirmation.id)));
        }
        while let Some((id, ..)) = self.origin.queue.pop_front_if(|(.., until)| *until <= now) {
            self.answer(id, Err(Refused::Busy));
        }
    }
}
