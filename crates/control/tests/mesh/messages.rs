//! Messages between hosts, each of which says where it belongs.

use std::collections::BTreeMap;

use sluice_base::HostId;

/// Bytes before the content: connection, position in it, sender, receiver.
const HEADER_SIZE: usize = 20;

/// The messages of all pairs of hosts, from and to.
#[derive(Default)]
pub(crate) struct Messages {
    /// Number of connections so far.
    connections: BTreeMap<(HostId, HostId), u64>,
    /// Messages sent on the present connection.
    sent: BTreeMap<(HostId, HostId), u64>,
    /// Messages received on the present connection.
    received: BTreeMap<(HostId, HostId), u64>,
    pub(crate) all: u64,
}

impl Messages {
    /// Notes a new connection.
    pub(crate) fn connected(&mut self, from: HostId, to: HostId) {
        *self.connections.entry((from, to)).or_default() += 1;
        self.sent.remove(&(from, to));
        self.received.remove(&(from, to));
    }

    /// Returns the next message, with that many bytes of content.
    pub(crate) fn next(&self, from: HostId, to: HostId, size: usize) -> Vec<u8> {
        let position = self.sent.get(&(from, to)).copied().unwrap_or(0);
        self.make(from, to, position, size)
    }

    fn make(&self, from: HostId, to: HostId, position: u64, size: usize) -> Vec<u8> {
        let connection = self.connections.get(&(from, to)).copied().unwrap_or(0);
        let mut bytes = [connection.to_be_bytes(), position.to_be_bytes()].concat();
        bytes.extend(from.0.to_be_bytes());
        bytes.extend(to.0.to_be_bytes());
        bytes.extend((0..size).map(|n| (n as u64 * 31 + position).to_le_bytes()[0]));
        bytes
    }

    /// Notes that the message was taken for sending.
    pub(crate) fn sent(&mut self, from: HostId, to: HostId) {
        *self.sent.entry((from, to)).or_default() += 1;
    }

    /// Checks that a message is the next one of its connection, and whole.
    pub(crate) fn received(&mut self, from: HostId, to: HostId, message: &[u8]) {
        let position = self.received.get(&(from, to)).copied().unwrap_or(0);
        let expected = self.make(from, to, position, message.len().saturating_sub(HEADER_SIZE));
        assert!(message == expected, "message {position} from {from:?} to {to:?} is another");
        self.received.insert((from, to), position + 1);
        self.all += 1;
        let sent = self.sent.get(&(from, to)).copied().unwrap_or(0);
        assert!(position < sent, "message {position} from {from:?} to {to:?} was not sent");
    }

    /// Returns true if all messages of the present connections were received.
    pub(crate) fn all_received(&self) -> bool {
        self.sent.iter().all(|(pair, sent)| self.received.get(pair) == Some(sent))
    }
}
