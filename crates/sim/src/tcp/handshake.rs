//! Opening a connection (RFC 9293 clause 3.5).
//!
//! ```text
//!   client: SYN_SENT -- SYN, ACK --> DONE
//!   server: LISTEN -- SYN --> SYN_RECEIVED -- ACK --> DONE
//! ```
//!
//! SYN and SYN-ACK take no offset in the stream. Both are sent again on the sender's timer, with
//! its backoff. Simultaneous opening and closing are not modelled.

use sluice_base::Nanos;

use super::segment::{Flags, Segment};
use super::{Connection, Role};

/// Progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    Listen,
    /// `due`: the SYN is to be sent now.
    SynSent {
        due: bool,
    },
    /// `due`: the SYN-ACK is to be sent now.
    SynReceived {
        due: bool,
    },
    Done,
}

impl Handshake {
    pub(super) const fn of(role: Role) -> Self {
        match role {
            Role::Client => Self::SynSent { due: true },
            Role::Server => Self::Listen,
            Role::Established => Self::Done,
        }
    }
}

impl Connection {
    /// Takes a segment before the connection is open. Returns true if the connection is open now.
    #[inline(never)]
    pub(super) fn receive_opening(&mut self, now: Nanos, segment: &Segment) -> bool {
        let syn = segment.flags.contains(Flags::SYN);
        let ack = segment.flags.contains(Flags::ACK);
        match self.handshake {
            Handshake::Listen if syn => {
                self.handshake = Handshake::SynReceived { due: true };
                self.sender.offered(0, segment.window);
            }
            Handshake::SynSent { .. } if syn && ack => {
                self.sender.offered(0, segment.window);
                self.receiver.ack_now = true;
                self.open(now);
            }
            Handshake::SynReceived { .. } if syn => {
                self.handshake = Handshake::SynReceived { due: true };
            }
            Handshake::SynReceived { .. } if ack => self.open(now),
            _ => {}
        }
        self.handshake == Handshake::Done
    }

    /// Opens the connection: the peer has answered.
    fn open(&mut self, now: Nanos) {
        self.handshake = Handshake::Done;
        let sender = &mut self.sender;
        sender.deadline = Nanos::MAX;
        if sender.timeouts == 0 {
            // Only an answer to a SYN that was sent once gives a sample (Karn). It is one for the
            // time-out alone: a SYN takes less time on each link than a full segment, so that a
            // controller would take a full segment's own time for a queue.
            let rtt = now.since(sender.last_send);
            sender.rtt.sample(rtt, &self.config);
        } else {
            // RFC 5681 clause 3.1: a lost SYN leaves a window of one segment.
            sender.timeouts = 0;
            sender.window.cwnd = u64::from(self.config.mss);
            sender.rtt.after_syn_timeout(&self.config);
        }
        sender.last_send = now;
    }

    /// Returns the SYN or SYN-ACK that is due.
    #[inline(never)]
    pub(super) fn poll_opening(&mut self, now: Nanos) -> Option<Segment> {
        let flags = match &mut self.handshake {
            Handshake::SynSent { due } if *due => {
                *due = false;
                Flags::SYN
            }
            Handshake::SynReceived { due } if *due => {
                *due = false;
                Flags::SYN.with(Flags::ACK)
            }
            _ => return None,
        };
        self.sender.last_send = now;
        self.sender.deadline = now.after(self.sender.rtt.rto(&self.config));
        Some(self.emit(now, 0, 0, flags))
    }

    /// Handles the timer before the connection is open.
    pub(super) fn expire_opening(&mut self, now: Nanos) {
        if self.sender.deadline > now {
            return;
        }
        self.sender.deadline = Nanos::MAX;
        self.sender.timeouts = self.sender.timeouts.saturating_add(1);
        self.sender.rtt.back_off();
        self.stats.timeouts += 1;
        match &mut self.handshake {
            Handshake::SynSent { due } | Handshake::SynReceived { due } => *due = true,
            Handshake::Listen | Handshake::Done => {}
        }
    }
}

#[cfg(test)]
mod tests;
