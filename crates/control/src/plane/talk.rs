//! Questions to other members and their questions to this host ([`crate::rpc`]), each on the
//! existing session.

use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};
use sluice_wire::fabric::Topic;

use super::Plane;
use super::surface::Event;
use crate::rpc::{self, Failure};

impl Plane {
    /// Asks a member. [`rpc::Event::Done`] with this number follows, after `limit` at the latest.
    ///
    /// # Errors
    /// Nothing was asked, and nothing follows.
    pub fn ask_host(
        &mut self,
        now: Nanos,
        host: HostId,
        topic: Topic,
        limit: Nanos,
        body: &[u8],
    ) -> Result<u64, Failure> {
        let now = self.clock.at(now);
        self.ask_member(now, host, topic, limit, body)
    }

    /// As [`Self::ask_host`], by this plane's own clock.
    pub(super) fn ask_member(
        &mut self,
        now: Nanos,
        host: HostId,
        topic: Topic,
        limit: Nanos,
        body: &[u8],
    ) -> Result<u64, Failure> {
        let (rpc, inside) = self.session(host).ok_or(Failure::NotConnected)?.rpc(now);
        let asked = rpc.ask(inside, topic, limit, body);
        self.looked_at(now, host);
        asked
    }

    /// Answers a question of a member: the `ticket` of [`rpc::Event::Asked`]. An answer to a
    /// question that is not open any more is dropped and counted.
    pub fn reply_to(
        &mut self,
        now: Nanos,
        host: HostId,
        ticket: u64,
        answer: Result<&[u8], Failure>,
    ) {
        let now = self.clock.at(now);
        self.reply_member(now, host, ticket, answer);
        self.looked_at(now, host);
    }

    /// Answers a question by this plane's own clock, while its session is looked at anyway.
    pub(super) fn reply_member(
        &mut self,
        now: Nanos,
        host: HostId,
        ticket: u64,
        answer: Result<&[u8], Failure>,
    ) {
        if let Some(session) = self.session(host) {
            let (rpc, inside) = session.rpc(now);
            rpc.reply(inside, ticket, answer);
        }
    }

    /// Returns the next question of a member, or end of an own one. Take all.
    pub fn talk(&mut self) -> Option<(HostId, rpc::Event)> {
        self.outbox.next_talk()
    }

    /// Returns the counters of questions and answers with a member; `None` if the host is no
    /// member.
    #[must_use]
    pub fn talk_counts(&self, host: HostId) -> Option<rpc::Counts> {
        self.peers.get(host)?.session.as_ref().map(crate::session::Session::rpc_counts)
    }

    /// Takes the events of a session's questions.
    pub(super) fn hear_talk(&mut self, now: Nanos, host: HostId) {
        let peer = self.peers.get_mut(host).and_then(|peer| peer.session.as_mut());
        let Some(session) = peer else { return };
        let (rpc, _) = session.rpc(now);
        let events: Vec<_> = core::iter::from_fn(|| rpc.event()).collect();
        for event in events {
            match event {
                rpc::Event::Wrong(what) => self.outbox.event(Event::WrongTalk(host, what)),
                // These questions are answered here, without a detour to the caller.
                rpc::Event::Asked { ticket, topic: Topic::HOLD, body, .. } => {
                    self.hear_hold(now, host, ticket, &body);
                }
                rpc::Event::Asked { ticket, topic: Topic::OWNER, body, .. } => {
                    self.hear_asked_for(now, host, ticket, &body);
                }
                rpc::Event::Done { id, topic: Topic::HOLD, answer } => {
                    self.hold_answered(now, host, id, answer.map(drop));
                }
                // The endpoint has the question, even if its host was not notified.
                rpc::Event::Done { topic: Topic::OWNER, .. } => {}
                event @ (rpc::Event::Asked { .. } | rpc::Event::Done { .. }) => {
                    self.outbox.talk(host, event);
                }
            }
        }
    }
}
