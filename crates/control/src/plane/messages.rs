//! Messages to other members and from them, each on the existing session
//! ([`Session::send`](crate::session::Session::send)).

use alloc::sync::Arc;

use sluice_base::{HostId, Nanos};

use super::Plane;
use crate::session::SendError;

pub use super::outbox::MessageEvent;

impl Plane {
    /// Sends a message to a member. It arrives whole, after those sent before it, or not at all:
    /// the end of the connection loses it ([`MessageEvent::Gone`]).
    ///
    /// # Errors
    /// Nothing is sent.
    pub fn send_message(
        &mut self,
        now: Nanos,
        host: HostId,
        message: Arc<[u8]>,
    ) -> Result<(), SendError> {
        self.clock.at(now);
        let session = self.session(host).ok_or(SendError::NotConnected)?;
        session.send(message)?;
        self.peers.reschedule(host, &self.publisher);
        Ok(())
    }

    /// Returns the next event of messages, with the member that it is about. Take all.
    pub fn message_event(&mut self) -> Option<(HostId, MessageEvent)> {
        self.outbox.next_message()
    }

    /// Follows the messages of a host's session after a call, before which it was up or not.
    pub(super) fn hear_messages(&mut self, host: HostId, was_up: bool) {
        let Some(peer) = self.peers.get_mut(host) else { return };
        let Some(session) = &mut peer.session else { return };
        let is_up = session.is_up();
        if is_up && !was_up {
            let takes_messages = session.takes_messages();
            self.outbox.message(host, MessageEvent::Connected { takes_messages });
        }
        while let Some(message) = session.message() {
            // A connection that ends in the call that opens it was never reported.
            if is_up || was_up {
                self.outbox.message(host, MessageEvent::Received(message));
            }
        }
        if was_up && !is_up {
            self.outbox.message(host, MessageEvent::Gone);
        }
    }
}
