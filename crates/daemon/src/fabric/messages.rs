//! Messages between the configurations of members: a message that is as large as 16 MiB arrives
//! whole, once and in its order, or not at all.
//!
//! ```text
//!   configuration ── send_config ──> thread ── fragments, on the member's connection
//!   ConfigPort <── connected, received, gone ── thread
//! ```
//!
//! They travel beside claims ([`sluice_control::session`]), behind holds. A connection that breaks
//! loses what is under way; the configuration sends again what it still wants known.

use std::fmt;
use std::sync::Arc;

use sluice_base::{HostId, Nanos};
use sluice_control::plane::MessageEvent;
use sluice_control::rpc::Failure;
use sluice_control::session::SendError;

use super::Fabric;
use super::member::{Member, MemberRequest};

/// Receives events of the connections to members, and their messages.
///
/// The fabric's thread calls it and must not wait: a method that cannot pass something on at once
/// drops it. Calls for one member come in this order: `connected`, any number of `received` and
/// `unsent`, `gone`. The sender of a message is the member whose certificate its connection has
/// shown.
pub(crate) trait ConfigPort: fmt::Debug + Send + Sync {
    /// Returns true if all members have one configuration.
    fn is_one(&self) -> bool {
        false
    }
    /// Takes the authority that is to follow the fabric's present one, from a member.
    ///
    /// # Errors
    /// [`Failure::UnknownTopic`] if this host's certificates are made by hand.
    fn next_authority(&self, from: HostId, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let _ = (from, body);
        Err(Failure::UnknownTopic)
    }
    /// Notes a connection to a member.
    ///
    /// # Errors
    /// [`SendError::TooOld`] in `takes_messages`: nothing can be sent to the member.
    fn connected(&self, host: HostId, takes_messages: Result<(), SendError>);
    /// Takes a message of a member.
    fn received(&self, host: HostId, message: Vec<u8>);
    /// Notes that a message for a host was not taken for sending. It may come at any time.
    fn unsent(&self, host: HostId, why: SendError);
    /// Notes that the connection to a member ended. Messages that were under way are lost.
    fn gone(&self, host: HostId);
}

/// Stands for the configuration of a host whose file says everything: it takes nothing.
#[derive(Debug)]
pub(crate) struct NoConfig;

impl ConfigPort for NoConfig {
    fn connected(&self, _: HostId, _: Result<(), SendError>) {}
    fn received(&self, _: HostId, _: Vec<u8>) {}
    fn unsent(&self, _: HostId, _: SendError) {}
    fn gone(&self, _: HostId) {}
}

impl Fabric {
    /// Sends a message to the configuration of a member, behind those sent before.
    /// [`ConfigPort::unsent`] says if that is not possible.
    pub(crate) fn send_config(&self, host: HostId, message: impl Into<Arc<[u8]>>) {
        self.ask(MemberRequest::Message(host, message.into()));
    }
}

impl Member {
    pub(super) fn send_message(&mut self, now: Nanos, host: HostId, message: Arc<[u8]>) {
        if let Err(why) = self.plane.send_message(now, host, message) {
            self.config.unsent(host, why);
        }
    }

    /// Passes events of messages to the configuration.
    pub(super) fn pass_messages(&mut self) {
        while let Some((host, event)) = self.plane.message_event() {
            match event {
                MessageEvent::Connected { takes_messages } => {
                    let takes = takes_messages.then_some(()).ok_or(SendError::TooOld);
                    self.config.connected(host, takes);
                }
                MessageEvent::Received(message) => self.config.received(host, message),
                MessageEvent::Gone => self.config.gone(host),
            }
        }
    }
}

#[cfg(test)]
mod tests;
